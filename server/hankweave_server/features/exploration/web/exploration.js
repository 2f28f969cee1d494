/** Attempts at a step: how they join the page. */
import { join } from "./places.js";

join({ later: [() => import("./exploration-later.js")] });

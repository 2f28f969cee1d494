/** The mirror of an execution: how it joins the page. */
import { join } from "./places.js";

join({ later: [() => import("./mirror-later.js")] });

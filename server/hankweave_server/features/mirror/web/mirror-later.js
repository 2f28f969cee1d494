/** What joins after the first paint. */
import { MirrorLine } from "./views/mirror-line.js";

/** @type {import("./places.js").Part} */
export default { notices: [MirrorLine] };

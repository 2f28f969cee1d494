/** What joins after the first paint. */
import { FindBreak } from "./views/find-break.js";
import { TextHistory } from "./views/text-history.js";
import { WhoWrote } from "./views/who-wrote.js";

/** @type {import("./places.js").Part} */
export default {
  dialogs: [
    { kind: "find-break", view: FindBreak },
    { kind: "text-history", view: TextHistory },
  ],
  margins: [WhoWrote],
};

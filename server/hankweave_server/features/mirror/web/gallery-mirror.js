/** The line about a mirror, as the gallery shows it. */
import { html } from "./dom.js";
import { sessionOf } from "./gallery-views.js";
import { join } from "./places.js";
import { MirrorLine } from "./views/mirror-line.js";

const UP_TO_DATE = {
  address: "git@github.com:ann/quakes-mirror.git",
  owner: "ann-laptop:/home/ann/runs/quakes",
  leaseHeld: true,
  mirroredSeq: 412,
  eventsBehind: 0,
  secondsBehind: 0,
};
const CUT = { ...UP_TO_DATE, eventsBehind: 23, secondsBehind: 190, leaseHeld: false };
const PROBLEM = { code: "MIRROR_UNREACHABLE", message: "", since: new Date(Date.now() - 190_000).toISOString() };

join({
  samples: [
    [
      "MirrorLine",
      () =>
        [
          sessionOf({ answers: { "mirror.status": UP_TO_DATE } }),
          sessionOf({ answers: { "mirror.status": { ...UP_TO_DATE, eventsBehind: 3, secondsBehind: 2 } } }),
          sessionOf({ answers: { "mirror.status": CUT }, problems: new Map([[PROBLEM.code, PROBLEM]]) }),
        ].map((session) => html`<div class="state-of"><section class="banners"><${MirrorLine} session=${session} /></section></div>`),
    ],
  ],
});

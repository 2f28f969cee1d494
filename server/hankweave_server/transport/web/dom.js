/** What every view imports: preact with its hooks, and htm bound to it. */
import { Fragment, h, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";

export {
  useCallback,
  useEffect,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "./vendor/hooks.mjs";
export { Fragment, render };
export const html = htm.bind(h);

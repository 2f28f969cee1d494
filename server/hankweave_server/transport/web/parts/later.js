/** What follows after the first paint. */
import { useEffect, useState } from "../dom.js";

/**
 * The modules of the views that are not needed at first, once they are there.
 * @template T
 * @param {() => Promise<T>} load @param {boolean} isTime whether they are wanted now
 * @param {(error: Error) => void} onError
 * @returns {T | null}
 */
export function useLater(load, isTime, onError) {
  const [loaded, setLoaded] = useState(/** @type {T | null} */ (null));
  useEffect(() => {
    if (!isTime || loaded !== null) return;

    // All at once, not one after the other as they are found in each other's imports.
    for (const link of document.querySelectorAll("link[rel=later]")) link.setAttribute("rel", "modulepreload");
    load().then((modules) => setLoaded(() => modules), onError);
  }, [isTime]);
  return loaded;
}

/** Small hooks that several views need. */
import { useEffect, useLayoutEffect, useRef, useState } from "../dom.js";

/** Draws again whenever the store has changed. @param {import("../store.js").Store} store */
export function useStore(store) {
  const [, draw] = useState(0);
  // At once: what changes before the first paint is not told later.
  useLayoutEffect(() => store.subscribe(() => draw(store.version)), [store]);
  return store;
}

/** The time, every so many milliseconds, while `runs`. @param {number} every @param {boolean} runs */
export function useNow(every, runs = true) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!runs) return undefined;
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every, runs]);
  return runs ? now : Date.now();
}

/**
 * Does something soon after any of the inputs has changed, however often they do: a stream that
 * never rests does not put it off.
 * @param {() => void} act
 * @param {number} every milliseconds
 * @param {any[]} inputs
 */
export function useNowAndThen(act, every, inputs) {
  const newest = useRef(act);
  const timer = useRef(0);
  newest.current = act;
  useEffect(() => {
    timer.current ||= setTimeout(() => {
      timer.current = 0;
      newest.current();
    }, every);
  }, inputs);
  useEffect(() => () => clearTimeout(timer.current), []);
}

/** Whether what asks is still in the page; for what comes back later. */
export function useOpen() {
  const isOpen = useRef(true);
  useEffect(() => () => void (isOpen.current = false), []);
  return isOpen;
}

/**
 * What an asynchronous question is answered, for these inputs; a late answer to an earlier one is
 * dropped. `delay` waits until the inputs rest.
 * @param {() => Promise<any>} ask
 * @param {any[]} inputs
 * @param {number} [delay]
 */
export function useAnswer(ask, inputs, delay = 0) {
  const [answer, setAnswer] = useState(
    /** @type {any} */ ({ data: null, error: null, isAsking: true }),
  );
  useEffect(() => {
    let isCurrent = true;
    setAnswer((before) => ({ ...before, isAsking: true }));
    const timer = setTimeout(() => {
      ask().then(
        (data) => isCurrent && setAnswer({ data, error: null, isAsking: false }),
        (error) => isCurrent && setAnswer({ data: null, error, isAsking: false }),
      );
    }, delay);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, inputs);
  return answer;
}

/** Whether the screen is as a media query says. @param {string} query */
export function useMedia(query) {
  const list = useRef(matchMedia(query));
  const [matches, setMatches] = useState(list.current.matches);
  useEffect(() => {
    const change = () => setMatches(list.current.matches);
    list.current.addEventListener("change", change);
    return () => list.current.removeEventListener("change", change);
  }, []);
  return matches;
}

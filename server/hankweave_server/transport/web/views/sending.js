/** Sends the command of a decision once, as of the run that was looked at when it was opened. */
import { useState } from "../dom.js";
import { useOpen } from "../parts/hooks.js";

const BEHIND = {
  message: "The execution has moved on since this was opened.",
  hint: "Close this, check the current state, and decide again.",
};

/**
 * @param {import("../session.js").Session} session
 * @param {{type: keyof import("hankweave").Commands, data: object, onDone: (answer: any) => void,
 *   late: (answer: any) => string}} command `late`: what is said where it was closed meanwhile
 */
export function useSending(session, { type, data, onDone, late }) {
  const [guard] = useState(session.guard);
  const [error, setError] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const isOpen = useOpen();
  const go = async () => {
    if (isBusy || session.obstacle !== null) return;
    if (session.guard.expectedRunId !== guard.expectedRunId) return setError(BEHIND);

    setBusy(true);
    setError(null);
    try {
      const answer = await session.ask(type, { ...guard, ...data });
      if (isOpen.current) onDone(answer);
      else session.say(late(answer));
    } catch (failure) {
      if (!isOpen.current) session.say(/** @type {Error} */ (failure).message);
      setError(failure);
      setBusy(false);
    }
  };
  return { go, error, isBusy };
}

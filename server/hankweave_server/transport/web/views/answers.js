/** What people answered to questions for permission, or time in their place. */
import { useEffect, useState } from "../dom.js";

const KEPT = 200;
const BY = ["client", "timeout"];

/** @typedef {{at: number, decision: string, by: string}} Answer */

/** @param {any} event @returns {Answer[]} none if a rule has answered */
const answersOf = ({ timestamp, data }) =>
  BY.includes(data.by) ? [{ at: Date.parse(timestamp), decision: data.decision, by: data.by }] : [];

/** @param {import("../session.js").Session} session @returns {Answer[]} oldest first */
export function useAnswersOfPeople(session) {
  const { store } = session;
  const [answers, setAnswers] = useState(/** @type {Answer[]} */ ([]));
  useEffect(() => {
    if (!store.isLoaded) return undefined;

    let isCurrent = true;
    const add = (/** @type {Answer[]} */ more) => setAnswers((known) => [...known, ...more].slice(-KEPT));
    const hear = (/** @type {any} */ event) => {
      if (event.type === "permission.resolved") add(answersOf(event));
    };
    store.hearers.add(hear);
    const query = {
      types: ["permission.resolved"],
      until: store.lastSeq,
      newestFirst: true,
    };
    session.ask("events.query", query).then(
      ({ events = [] }) => isCurrent && setAnswers((known) => [...events.flatMap(answersOf).slice(0, KEPT).reverse(), ...known]),
      (error) => isCurrent && session.say(error.message),
    );
    return () => {
      isCurrent = false;
      store.hearers.delete(hear);
    };
  }, [store.isLoaded]);
  return answers;
}

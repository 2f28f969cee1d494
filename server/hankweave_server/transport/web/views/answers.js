/** What people answered to questions for permission, or time in their place. */
import { useEffect, useState } from "../dom.js";

const KEPT = 200;
const BY = ["client", "timeout"];

/** @typedef {{at: number, decision: string, by: string}} Answer */

/** @param {import("../session.js").Session} session @returns {Answer[]} oldest first */
export function useAnswersOfPeople(session) {
  const { store } = session;
  const [answers, setAnswers] = useState(/** @type {Answer[]} */ ([]));
  useEffect(() => {
    if (!store.isLoaded) return undefined;

    let isCurrent = true;
    const add = (/** @type {Answer[]} */ more) => setAnswers((known) => [...known, ...more].slice(-KEPT));
    const hear = (/** @type {any} */ { type, timestamp, data }) => {
      if (type === "permission.resolved" && BY.includes(data.by))
        add([{ at: Date.parse(timestamp), decision: data.decision, by: data.by }]);
    };
    store.hearers.add(hear);
    const query = {
      where: [
        { field: "type", op: "eq", value: "permission.resolved" },
        { field: "data.by", op: "in", value: BY },
      ],
      until: store.lastSeq,
      select: ["timestamp", "data.decision", "data.by"],
      orderBy: { field: "seq", direction: "desc" },
      limit: KEPT,
    };
    session.ask("events.query", query).then(
      ({ rows = [] }) =>
        isCurrent &&
        setAnswers((known) => [
          ...rows.map((/** @type {any} */ row) => ({ at: Date.parse(row.timestamp), decision: row["data.decision"], by: row["data.by"] })).reverse(),
          ...known,
        ]),
      (error) => isCurrent && session.say(error.message),
    );
    return () => {
      isCurrent = false;
      store.hearers.delete(hear);
    };
  }, [store.isLoaded]);
  return answers;
}

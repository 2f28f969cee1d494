/** Events in a list: of a stretch of the journal, or those that a question finds. */
import { html, useMemo, useRef, useState } from "../dom.js";
import { time, visible } from "../format.js";
import { Found, Stretch, gist } from "../journal.js";
import { Trouble } from "../parts/dialog.js";
import { useNowAndThen } from "../parts/hooks.js";
import { VirtualList } from "../parts/virtual-list.js";

const ROW = 28;
const REST = 150;

/**
 * @param {{session: import("../session.js").Session, id: string, since?: number, until?: number,
 *   question?: object | null, atEnd?: boolean}} props
 */
export function EventList({ session, id, since = 0, until = 0, question = null, atEnd = false }) {
  const [, draw] = useState(0);
  const [at, setAt] = useState(-1);
  const range = useRef({ first: 0, last: 0 });
  const key = JSON.stringify(question);
  const source = useMemo(() => {
    const changed = () => draw((n) => n + 1);
    return question === null
      ? new Stretch(session.ask, since, until, changed)
      : new Found(session.ask, question, changed);
  }, [key, since]);
  if (source instanceof Stretch) source.until = until;
  // What arrives while one looks is fetched in portions.
  useNowAndThen(() => source.want(range.current.first, range.current.last), REST, [source, until]);
  const see = (first, last) => {
    range.current = { first, last };
    source.want(first, last);
  };
  const open = (row) =>
    source.at(row) && session.look({ dialog: { kind: "event", event: source.at(row) } });

  if (source instanceof Found && source.error) return html`<${Trouble} error=${source.error} />`;
  return html`<${VirtualList}
    key=${key}
    id=${id}
    count=${source.count}
    rowHeight=${ROW}
    label="Events"
    selected=${at}
    atEnd=${atEnd && question === null}
    onSelect=${setAt}
    onOpen=${open}
    onRange=${see}
    empty=${source.hasMore ? "Searching …" : "No event matches."}
    row=${(row) => drawn(source.at(row))}
  />`;
}

function drawn(event) {
  if (event === undefined) return html`<span class="seq">…</span>`;

  return html`<span class="seq">${event.seq}</span>
    <time>${time(event.timestamp)}</time>
    <span class="type">${event.type}</span>
    <span class="gist">${visible(gist(event))}</span>`;
}

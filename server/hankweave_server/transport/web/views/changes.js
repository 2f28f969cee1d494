/** Which files differ between two moments, and how. */
import { html, useState } from "../dom.js";
import { plural, visible } from "../format.js";
import { Delta } from "../parts/basics.js";
import { Diff } from "../parts/diff.js";
import { Trouble } from "../parts/dialog.js";
import { useAnswer } from "../parts/hooks.js";

const AT_FIRST = 200; // Files that are listed; more when they are asked for.

export const STATUS = { created: "+", modified: "~", deleted: "−" };

/**
 * @param {{session: import("../session.js").Session, page: any, open?: number}} props `page` is the
 *   first one; `open`: so many of its files show their differences at once.
 */
export function Changes({ session, page, open = 0 }) {
  const [more, setMore] = useState({ files: /** @type {any[]} */ ([]), cursor: page.cursor });
  const [shown, setShown] = useState(AT_FIRST);
  const files = [...page.files, ...more.files];
  if (files.length === 0) return html`<p class="empty">No tracked file differs.</p>`;

  const { stats, from, to } = page;
  const between = to === null ? { from } : { from, to };
  const goOn = () =>
    session.try(async () => {
      setShown(shown + AT_FIRST);
      if (files.length > shown) return;

      const next = await session.ask("checkpoint.diff", { ...between, cursor: more.cursor });
      setMore({ files: [...more.files, ...next.files], cursor: next.cursor });
    });
  return html`<div class="changes">
    <p class="hint">
      ${plural(stats.files, "file")}, <${Delta} added=${stats.added} removed=${stats.removed} />
    </p>
    ${files.slice(0, shown).map((file, at) => html`
      <${Change} key=${file.path} session=${session} between=${between} file=${file} isFirst=${at < open} />`)}
    ${(more.cursor || files.length > shown) && html`<button onClick=${goOn}>More files</button>`}
  </div>`;
}

function Change({ session, between, file, isFirst }) {
  const [isOpen, setOpen] = useState(isFirst);
  return html`<details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
    <summary><${ChangeName} file=${file} /></summary>
    ${isOpen && html`<${Patch} session=${session} between=${between} path=${file.path} />`}
  </details>`;
}

/** A file's name, what became of it, and how many lines. @param {{file: any, tag?: any}} props */
export function ChangeName({ file, tag = null }) {
  return html`<span class=${`change a-${file.status}`}>
    <span aria-hidden="true">
      ${STATUS[file.status]}
    </span> <span class="path">${visible(file.path)}</span>
    <span class="hidden">, ${file.status}</span> ${tag}
    <${Delta} added=${file.added} removed=${file.removed} />
  </span>`;
}

/** @param {any} props `version` changes where the file may have. */
export function Patch({ session, between, path, version = 0 }) {
  const answer = useAnswer(
    () => session.ask("checkpoint.diff", { ...between, paths: [path], patch: true }),
    [path, version],
  );
  if (answer.error) return html`<${Trouble} error=${answer.error} />`;
  if (answer.data === null) return html`<p class="empty">Comparing …</p>`;

  const patch = answer.data.files.find((each) => each.path === path)?.patch;
  if (patch === undefined)
    return html`<p class="empty">The difference is too large to show.</p>`;
  return html`<${Diff} patch=${patch} label=${`Difference of ${visible(path)}`} />`;
}

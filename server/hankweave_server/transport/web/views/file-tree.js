/** The files of a moment, folder by folder, and beside them the content of one. */
import { html, useMemo, useState } from "../dom.js";
import { bytes, plural, visible } from "../format.js";
import { VirtualList } from "../parts/virtual-list.js";
import { Content } from "./content.js";

const ROW = 26;
const LINK = 0o120000;
const KIND = 0o170000;

/**
 * @param {{session: import("../session.js").Session, view: any, where: any, sha: string,
 *   first?: string | null}} props `first`: the file that is shown at first.
 */
export function FileTree({ session, view, where, sha, first = null }) {
  const [more, setMore] = useState({ files: /** @type {any[]} */ ([]), cursor: view.cursor });
  const [closed, setClosed] = useState(new Set());
  const [path, setPath] = useState(first);
  const files = useMemo(() => [...view.tree, ...more.files], [view, more]);
  const rows = useMemo(() => unfolded(files, closed), [files, closed]);
  const [at, setAt] = useState(() => rows.findIndex((row) => row.path === first));
  if (files.length === 0) return html`<p class="empty">There are no tracked files yet.</p>`;

  const open = (row) => {
    const each = rows[row];
    setAt(row);
    if (each.file) setPath(each.path);
    else {
      const next = new Set(closed);
      if (!next.delete(each.path)) next.add(each.path);
      setClosed(next);
    }
  };
  const goOn = () =>
    session.try(async () => {
      const page = await session.ask("replay.view", { ...where, limit: 1_000, cursor: more.cursor });
      setMore({ files: [...more.files, ...page.tree], cursor: page.cursor });
    });
  return html`<div class="tree">
    <div class="names">
      <p class="hint">${plural(view.stats.files, "file")}, ${bytes(view.stats.bytes)}</p>
      <${VirtualList}
        id="file"
        count=${rows.length}
        rowHeight=${ROW}
        label="Files of this moment"
        selected=${at}
        onSelect=${(row) => (rows[row].file ? open(row) : setAt(row))}
        onOpen=${open}
        row=${(row) => drawn(rows[row], closed)}
      />
      ${more.cursor && html`<button onClick=${goOn}>More files</button>`}
    </div>
    ${
      path === null
        ? html`<p class="empty">Choose a file to read it as it was.</p>`
        : html`<${Content} key=${`${sha} ${path}`} session=${session} sha=${sha} path=${path} />`
    }
  </div>`;
}

function unfolded(files, closed) {
  const rows = [];
  let folders = [];
  for (const file of files) {
    const parts = file.path.split("/");
    const name = parts.pop();
    let isHidden = false;
    parts.forEach((part, depth) => {
      const path = parts.slice(0, depth + 1).join("/");
      if (!isHidden && folders[depth] !== path) rows.push({ path, name: part, depth, file: null });
      isHidden ||= closed.has(path);
    });
    folders = parts.map((_, depth) => parts.slice(0, depth + 1).join("/"));
    if (!isHidden) rows.push({ path: file.path, name, depth: parts.length, file });
  }
  return rows;
}

function drawn({ path, name, depth, file }, closed) {
  const style = { paddingLeft: `${0.5 + depth}rem` };
  if (file === null) {
    return html`<span class="folder" style=${style}><span aria-hidden="true">${closed.has(path) ? "▸" : "▾"}</span> ${visible(name)}<span class="hidden">, folder, ${closed.has(path) ? "closed" : "open"}</span></span>`;
  }

  const isLink = (file.mode & KIND) === LINK;
  return html`
    <span class="leaf" style=${style}>
      ${visible(name)}${isLink ? " (link)" : file.mode & 0o111 ? " (program)" : ""}
    </span>
    <span class="size">${bytes(file.size)}</span>`;
}

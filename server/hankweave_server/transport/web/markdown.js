/**
 * Markdown as elements of the page. The library only takes the text apart; elements are made of its
 * tokens here, from a list of those that are known, so no HTML of an agent is ever read as HTML.
 */
import { Fragment, html } from "./dom.js";
import { unmasked, visible } from "./format.js";

const ELEMENTS = new Set([
  ...["p", "ul", "ol", "li", "blockquote", "em", "strong", "s"],
  ...["table", "thead", "tbody", "tr", "th", "td"],
]);
const LINK = /^https?:\/\//i;

/** @type {Promise<any> | null} */
let library = null;

/** The library, once it is there. @returns {Promise<any>} */
export function markdown() {
  library ??= import("./vendor/markdown-it.mjs").then(
    ({ default: make }) => {
      const reader = make({ html: false, linkify: true });
      reader.validateLink = (/** @type {string} */ address) => LINK.test(address);
      return reader;
    },
    (error) => {
      library = null;
      throw error;
    },
  );
  return library;
}

/** @param {any} reader the library @param {string} text */
export function drawn(reader, text) {
  return elements(reader.parse(unmasked(text), {}));
}

/** @param {any[]} tokens */
function elements(tokens) {
  /** @type {{opened: any, children: any[]}[]} */
  const stack = [{ opened: null, children: [] }];
  for (const token of tokens) {
    if (token.nesting === 1) stack.push({ opened: token, children: [] });
    else if (token.nesting === -1 && stack.length > 1) {
      const { opened, children } = /** @type {any} */ (stack.pop());
      stack.at(-1)?.children.push(element(opened, children));
    } else {
      stack.at(-1)?.children.push(leaf(token));
    }
  }
  return stack[0].children;
}

/** @param {any} token @param {any[]} children */
function element(token, children) {
  const { tag, hidden } = token;
  if (hidden) return html`<${Fragment}>${children}<//>`;
  if (/^h[1-6]$/.test(tag)) return html`<p class=${`heading n-${tag}`}>${children}</p>`;
  if (tag === "a") return link(token.attrGet("href") ?? "", children);
  if (tag === "table") return html`<div class="scrolls" tabindex="0" role="group" aria-label="Table"><table>${children}</table></div>`;
  if (tag === "ol") return html`<ol start=${token.attrGet("start") ?? undefined}>${children}</ol>`;
  if (ELEMENTS.has(tag)) return html`<${tag}>${children}<//>`;
  return html`<${Fragment}>${children}<//>`;
}

/** What it leads to can be read: the words of a link may say something else. */
function link(address, children) {
  if (!LINK.test(address)) return html`<${Fragment}>${children}<//>`;
  return html`<a href=${address} title=${visible(address)} target="_blank" rel="noopener noreferrer">${children}</a>`;
}

/** @param {any} token */
function leaf({ type, content, children, info }) {
  switch (type) {
    case "inline":
      return html`<${Fragment}>${elements(children ?? [])}<//>`;
    case "code_inline":
      return html`<code>${content}</code>`;
    case "fence":
    case "code_block":
      return html`<pre class="code" data-language=${visible(info ?? "").slice(0, 20) || undefined}><code>${content}</code></pre>`;
    case "hr":
      return html`<hr />`;
    case "softbreak":
      return "\n";
    case "hardbreak":
      return html`<br />`;
    case "image":
      // Nothing is fetched from elsewhere: its address may tell who reads this, and when.
      return html`<span class="tag">picture: ${content || "without a name"}</span>`;
    default:
      return content;
  }
}

/**
 * The places at which features join the page.
 *
 * The page imports no feature. It names the script of each that is installed, NAME.js, which joins
 * here before anything is drawn; what is not needed for the first paint joins after it.
 */

/** @typedef {import("./session.js").Session} Session */
/**
 * @typedef {object} Part
 * @property {{before: string, of: (session: Session) => import("./commands.js").Command}[]} [commands]
 *   `before`: the id of the command that follows
 * @property {((store: import("./store.js").Store, event: any) => void)[]} [facts]
 *   hear all that the server tells: events of the journal, and others
 * @property {((props: {session: Session}) => any)[]} [notices] between the time and the steps
 * @property {{isFor: (codon: any) => boolean, id: string, words: string}[]} [remedies]
 *   commands by their ids, for a step that has failed
 * @property {{kind: string, view: (props: any) => any}[]} [dialogs] get what the dialog is opened with
 * @property {{name: string, title: string, countOf: (state: any, codonId: string | null) => number | null, view: (props: any) => any}[]} [tabs]
 *   of a step; there is none where its count is null
 * @property {((props: {session: Session}) => any)[]} [asides] below the files of a step
 * @property {((props: {session: Session, sha: string, path: string}) => any)[]} [margins] of a text
 * @property {[title: string, draw: () => any][]} [samples] in the gallery
 * @property {(() => Promise<{default: Part}>)[]} [later] after the first paint
 */

/** @type {Set<Part>} */
const parts = new Set();

/** @param {Part} part */
export const join = (part) => void parts.add(part);

/** @template {keyof Part} Place @param {Place} place @returns {NonNullable<Part[Place]>} in the order of the features */
export const at = (place) => /** @type {any} */ ([...parts].flatMap((/** @type {any} */ part) => part[place] ?? []));

export async function joinLater() {
  for (const { default: part } of await Promise.all(at("later").map((load) => load()))) join(part);
}

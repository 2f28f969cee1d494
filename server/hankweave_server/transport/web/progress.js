/** How far long work is, in words: what the server counts while it goes on. */
import { bytes } from "./format.js";

/** @typedef {import("hankweave").Events["store.progress"]} Progress */

const WORDS = {
  "branch checking": "Reading the checkpoint",
  "branch copying": "Copying the store",
  "branch writing": "Writing files",
  "capture reading": "Reading changed files",
  "fsck checking": "Reading the store",
  "gc examining": "Looking for checkpoints to prune",
  "gc packing": "Packing the store",
  "gc sweeping": "Removing unused objects",
  "gc tracing": "Finding objects in use",
  "restore checking": "Reading the checkpoint",
  "restore reading": "Saving the current files",
  "restore writing": "Restoring files",
};
const IN_ANY = { flushing: "Waiting for the disk", scanning: "Scanning the files" };

/** A phase that a newer server knows has its own word. @param {Progress} progress */
export function sentence({ operation, phase, done, total, unit }) {
  const what = WORDS[`${operation} ${phase}`] ?? IN_ANY[phase] ?? phase;
  if (total === null) return done === 0 ? what : `${what}: ${amount(done, unit)}`;
  if (unit === "bytes") return `${what}: ${bytes(done)} of ${bytes(total)}`;
  return `${what}: ${done.toLocaleString("en")} of ${amount(total, unit)}`;
}

function amount(count, unit) {
  return unit === "bytes" ? bytes(count) : `${count.toLocaleString("en")} ${unit}`;
}

/** What programs print for a terminal, as parts that have a colour by its name. Pure. */
import { unmasked } from "./format.js";
import Anser from "./vendor/anser.mjs";

const PLAIN = /\x1b\[|\r/;
// Titles of windows, links, and sequences without a parameter.
const OTHERS = /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[()][0-9A-B]|\x1b[=>78DEHMc]/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];

/**
 * @param {string} text
 * @returns {{text: string, look: string}[]} `look`: classes, as "of-red bold"; empty for none
 */
export function colouredParts(text) {
  const told = text.replace(OTHERS, "");
  if (!PLAIN.test(told)) return [{ text: unmasked(told), look: "" }];

  return Anser.ansiToJson(overwritten(told), { use_classes: true, remove_empty: true }).map((part) => ({
    text: unmasked(part.content),
    look: lookOf(part),
  }));
}

/** A line that a program wrote over, as the terminal shows it in the end. @param {string} text */
function overwritten(text) {
  return text.replace(/\r+\n/g, "\n").replace(/^.*\r(?=[^\n])/gm, "").replaceAll("\r", "");
}

/** @param {any} part */
function lookOf({ fg, fg_truecolor: mixed, decorations }) {
  const name = fg === "ansi-truecolor" ? nearest(mixed) : named(fg);
  const kept = decorations.filter((/** @type {string} */ each) => each === "bold" || each === "dim");
  return [name && `of-${name}`, ...kept].filter(Boolean).join(" ");
}

/** @param {string | null} fg */
function named(fg) {
  const palette = fg?.match(/^ansi-palette-(\d+)$/);
  if (palette) return ofPalette(Number(palette[1]));
  return NAMES.find((name) => fg?.endsWith(`-${name}`)) ?? "";
}

/** The cube of 216 colours, and the greys after it. @param {number} index */
function ofPalette(index) {
  if (index < 16) return NAMES[index % 8];
  if (index > 231) return "";

  const at = index - 16;
  return nearest([Math.floor(at / 36), Math.floor(at / 6) % 6, at % 6].map((each) => each * 51).join());
}

/** The name of a colour whose contrast nobody knows: ours have enough. @param {string} mixed */
function nearest(mixed) {
  const parts = (mixed ?? "").split(",").map(Number);
  const most = Math.max(...parts);
  if (most - Math.min(...parts) < 40) return "";
  return NAMES[parts.reduce((sum, part, at) => sum + (part > most * 0.6 ? 1 << at : 0), 0)] ?? "";
}

#!/usr/bin/env -S node --experimental-websocket
// @ts-check
// Follow an execution until its work is done, then roll it back to the end of a codon.
//
//     node --experimental-websocket examples/clients/follow.mjs EXECUTION CODON
//
// It needs no package, and the flag only before Node 22. After a lost connection it reconnects
// without missing an event: the only number that a client has to keep is `lastSeq`.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

/** @typedef {import("../../protocol/hankweave.js").ServerFrame} ServerFrame */
/** @typedef {import("../../protocol/hankweave.js").ClientFrame} ClientFrame */
/** @typedef {import("../../protocol/hankweave.js").ReplyTo<"rollback.toCodon">} RollbackReply */
/** @typedef {{ send: (frame: ClientFrame) => void, hasAsked: boolean }} Link */

const PATIENCE = 60; // tries, half a second apart, to find a server that went away

const [execution, codon] = process.argv.slice(2);
if (!execution || !codon) end(2, "usage: follow.mjs EXECUTION CODON");
if (!globalThis.WebSocket) end(2, "This node has no WebSocket: try node --experimental-websocket.");

let lastSeq = 0; // the newest event that has come
let liveFrom = 0; // events up to this one are the past: work may have gone on there
let isOver = false;
/** @type {string | undefined} The id of the rollback, once it is asked for. */
let asked;

for (let tries = 0; tries < PATIENCE; tries += 1) {
  if (await connection()) tries = 0;
  await sleep(500);
}
end(69, `There is no server of ${execution}.`);

/** Opens a connection and takes its frames until it is closed; false where there was none. */
async function connection() {
  const found = address();
  if (!found) return false;

  const socket = new WebSocket(found.url);
  /** @type {Link} */
  const link = { send: (frame) => socket.send(JSON.stringify(frame)), hasAsked: false };
  const { token } = found;
  const hello = { protocolVersion: 1, sinceSeq: lastSeq, token, clientName: "follow.mjs" };
  let hasOpened = false;
  socket.onopen = () => {
    hasOpened = true;
    link.send({ type: "handshake", data: { mode: "readandwrite", ...hello } });
  };
  socket.onmessage = ({ data }) => take(JSON.parse(data), link);
  await new Promise((resolve) => {
    socket.onclose = resolve;
    socket.onerror = resolve;
  });
  return hasOpened;
}

/**
 * Reads where the server is, and the token that lets one in; a start may change both.
 * A lock without a port is that of a server that does not listen yet.
 */
function address() {
  const folder = join(execution, ".hankweave");
  try {
    const { port } = JSON.parse(readFileSync(join(folder, "runtime.lock"), "utf8"));
    const token = readFileSync(join(folder, "server.token"), "utf8").trim();
    return port ? { url: `ws://127.0.0.1:${port}/ws`, token } : null;
  } catch {
    return null;
  }
}

/** @param {ServerFrame} frame @param {Link} link */
function take(frame, link) {
  switch (frame.type) {
    case "handshake.response":
      liveFrom = frame.data.totalEvents;
      console.log("connected as", frame.data.clientId);
      break;
    case "command.failed":
      return end(1, `${frame.data.code}: ${frame.data.message} ${frame.data.hint ?? ""}`);
    case "command.succeeded":
      return tell(/** @type {RollbackReply} */ (frame));
    case "codon.started":
    case "codon.completed":
      isOver = false;
      console.log(frame.seq, frame.type, frame.data.codonId);
      break;
    case "server.idle":
      // After these two the plan may go on by itself.
      isOver ||= !["startup", "rollback-completed"].includes(frame.data.reason);
      console.log(frame.seq, frame.type, frame.data.message);
      break;
    case "server.started":
      // A command that was on its way to the server before may be done, or not: do not guess.
      if (asked) end(1, "The server was started anew; look at what is there, then ask again.");
  }

  if ("seq" in frame && frame.seq) lastSeq = frame.seq;
  if (lastSeq >= liveFrom && (isOver || asked)) goBack(link);
}

/** Asks once on each connection: under its old id, it is done once all the same. @param {Link} link */
function goBack(link) {
  if (link.hasAsked) return;

  link.hasAsked = true;
  asked ??= crypto.randomUUID();
  const reason = "An example went back.";
  const data = /** @type {const} */ ({ codonId: codon, checkpointType: "end", reason });
  link.send({ id: asked, type: "rollback.toCodon", data });
}

/** @param {RollbackReply} reply */
function tell({ data: { added, updated, removed, safety, totals } }) {
  // Long lists are incomplete: then the totals are sent as well.
  const all = totals ?? { added: added.length, updated: updated.length, removed: removed.length };
  const counts = `${all.added} added, ${all.updated} updated, ${all.removed} removed`;
  console.log(`back at the end of ${codon}: ${counts}`);
  if (safety) console.log("what was there is kept in", safety.checkpointSha);
  process.exit(0);
}

/** @param {number} code @param {string} text @returns {never} */
function end(code, text) {
  console.error(text);
  process.exit(code);
}

/**
 * Read websocket.log, the record of every frame between a server and its clients.
 *
 * The log may be read while the server writes it, so the last line can be incomplete. A line that
 * is not a valid entry is skipped and counted in `skippedLines`; a missing file is an empty log.
 * `hankweave_client.log_reader` is the same reader for Python.
 */

import { createReadStream, readFileSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { createInterface } from "node:readline";

export class WebSocketLogReader {
  #entries = [];

  /** @param {string} logPath the path of a websocket.log */
  constructor(logPath) {
    this.logPath = logPath;
    this.skippedLines = 0;
  }

  /** Read the whole log into memory and return its entries. */
  async readLog() {
    return this.#load(await orEmpty(() => readFile(this.logPath, "utf8")));
  }

  /** Do the same without a promise. */
  readLogSync() {
    let text = "";
    try {
      text = readFileSync(this.logPath, "utf8");
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
    return this.#load(text);
  }

  /** Pass each entry to `callback` in turn, without keeping any of them in memory. */
  async streamRead(callback) {
    const input = createReadStream(this.logPath, "utf8");
    const lines = createInterface({ input, crlfDelay: Infinity });
    try {
      for await (const line of lines) {
        const entry = entryOf(line);
        if (entry) await callback(entry);
      }
    } catch (error) {
      if (error.code !== "ENOENT") throw error;
    }
  }

  /** Return a copy of the entries that were read. */
  getEntries() {
    return [...this.#entries];
  }

  /** @param {"in" | "out"} direction in: client to server; out: server to client */
  filterByDirection(direction) {
    return this.#entries.filter((entry) => entry.direction === direction);
  }

  filterByMessageType(type) {
    return this.#entries.filter((entry) => entry.message?.type === type);
  }

  /** Return the entries logged between two instants, both included; each a string or a Date. */
  filterByTimeRange(start, end) {
    const [from, to] = [new Date(start), new Date(end)];
    return this.#entries.filter((entry) => {
      const loggedAt = new Date(entry.loggedAt);
      return loggedAt >= from && loggedAt <= to;
    });
  }

  getCodonMessages(codonId) {
    return this.#entries.filter((entry) => entry.message?.data?.codonId === codonId);
  }

  /** The name of `getCodonMessages` in early versions of Hankweave. */
  getPhaseMessages(phaseId) {
    return this.getCodonMessages(phaseId);
  }

  getSessionMessages(sessionId) {
    return this.#entries.filter((entry) => entry.message?.data?.sessionId === sessionId);
  }

  /** Return the entries of the server's events, without replies to a handshake. */
  getServerEvents() {
    return this.filterByDirection("out").filter(({ message }) => isEvent(message));
  }

  /** Return the entries of the clients' commands, without handshakes. */
  getClientCommands() {
    return this.filterByDirection("in").filter(({ message }) => isCommand(message));
  }

  getStatistics() {
    const entries = this.#entries;
    const messageTypes = {};
    let size = 0;
    for (const { message, metadata } of entries) {
      const type = typeof message?.type === "string" ? message.type : "unknown";
      messageTypes[type] = (messageTypes[type] ?? 0) + 1;
      size += metadata?.size ?? 0;
    }
    return {
      totalEntries: entries.length,
      incomingCount: this.filterByDirection("in").length,
      outgoingCount: this.filterByDirection("out").length,
      messageTypes,
      averageMessageSize: entries.length ? Math.round(size / entries.length) : 0,
      timeRange: entries.length
        ? { start: entries[0].loggedAt, end: entries[entries.length - 1].loggedAt }
        : null,
    };
  }

  /** Write entries to a file in the log's own format. */
  exportToFile(entries, path) {
    writeFileSync(path, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
  }

  #load(text) {
    const lines = text.split("\n").filter((line) => line.trim());
    this.#entries = lines.map(entryOf).filter(Boolean);
    this.skippedLines = lines.length - this.#entries.length;
    return this.getEntries();
  }
}

/** Return the entries of a log. */
export async function readWebSocketLog(path) {
  return new WebSocketLogReader(path).readLog();
}

/** Return the statistics of a log. */
export async function getWebSocketLogStats(path) {
  const reader = new WebSocketLogReader(path);
  await reader.readLog();
  return reader.getStatistics();
}

function isEvent(message) {
  return [message?.type, message?.id, message?.timestamp].every(isText) && isObject(message.data);
}

function isCommand(message) {
  return [message?.type, message?.id].every(isText);
}

function isText(value) {
  return typeof value === "string";
}

function isObject(value) {
  return typeof value === "object" && value !== null;
}

async function orEmpty(read) {
  try {
    return await read();
  } catch (error) {
    if (error.code === "ENOENT") return "";
    throw error;
  }
}

function entryOf(line) {
  try {
    const entry = JSON.parse(line);
    const isEntry = ["in", "out"].includes(entry?.direction) && "message" in entry;
    return isEntry && !Number.isNaN(Date.parse(entry.loggedAt)) ? entry : null;
  } catch {
    return null;
  }
}

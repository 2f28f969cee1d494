/** The real server as a real process, with hanks whose agents do what a test says. */
import { execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statfsSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PATIENCE } from "./browser.mjs";

export const COMMAND =
  process.env.HANKWEAVE ?? new URL("../../.venv/bin/hankweave", import.meta.url).pathname;

export const says = (text) => ({ say: text });
export const thinks = (text) => ({ think: text });
export const writes = (path, text) => ({ write: { path, text } });
export const waitsFor = (path) => ({ waitForFile: path });

/** One codon of a scripted agent. */
export function codon(id, steps, fields = {}) {
  return {
    id,
    name: `Codon ${id}`,
    model: "scripted",
    continuationMode: "fresh",
    promptText: JSON.stringify({ steps }),
    agent: { type: "scripted" },
    trackedFiles: ["**"],
    ...fields,
  };
}

export class Daemon {
  /**
   * In a directory of its own, which is gone when the test is over.
   * @param {(folder: string) => object[]} hank
   * @param {{descriptors?: number, name?: string, state?: string, overrides?: object}} place how many
   *   descriptors it may have, name and overrides of its hank, and the folder of the user's state, if
   *   others share it; `inMemory`: on no disk, for a long run whose durability is not what is tested
   */
  static async start(context, hank, options = [], place = {}) {
    const folder = mkdtempSync(join(place.inMemory ? memory() : tmpdir(), "hankweave-browser-"));
    const daemon = new Daemon(folder);
    daemon.place = place;
    context.after(async () => {
      await daemon.stop();
      rmSync(folder, { recursive: true, force: true });
    });
    mkdirSync(join(folder, "hank"));
    const meta = place.name === undefined ? {} : { meta: { name: place.name, version: "1.0.0" } };
    const { overrides } = place;
    writeFileSync(join(folder, "hank", "hank.json"), JSON.stringify({ ...meta, overrides, hank: hank(folder) }));
    await daemon.run(options);
    return daemon;
  }

  constructor(folder) {
    this.folder = folder;
    this.execution = join(folder, "execution");
    this.workTree = join(this.execution, "agentRoot");
  }

  async run(options = []) {
    const words = [
      "run",
      join(this.folder, "hank", "hank.json"),
      "--execution",
      this.execution,
      "--json",
      "--no-exit-on-complete", // Its stdout is a pipe, and pages come and go.
      "--confinement=none", // The gates of tests lie beside the execution, where no agent looks.
      ...options,
    ];
    const { descriptors } = this.place ?? {};
    const begin = descriptors ? ["sh", "-c", `ulimit -n ${descriptors}; exec "$@"`, "sh"] : [];
    const [program, ...rest] = [...begin, COMMAND, ...words];
    this.process = spawn(program, rest, {
      stdio: ["ignore", "pipe", "inherit"],
      env: this.environment,
    });
    this.ended = new Promise((resolve) => this.process.once("exit", resolve));
    const ready = await within(PATIENCE, "server.ready", this.#ready());
    this.port = ready.data.port;
  }

  get environment() {
    const { state = join(this.folder, "state") } = this.place ?? {};
    return { ...process.env, XDG_STATE_HOME: state, HANKWEAVE_RUNTIME_EXECUTION_BASE_DIR: join(state, "executions") };
  }

  /** Runs a command of the same user to its end, and returns its exit code and what it printed. */
  command(...words) {
    return new Promise((resolve) => {
      execFile(COMMAND, words, { env: this.environment }, (error, stdout) => resolve({ code: error?.code ?? 0, stdout }));
    });
  }

  #ready() {
    let text = "";
    return new Promise((resolve, reject) => {
      this.process.once("exit", () => reject(new Error(`the server ended: ${text}`)));
      this.process.stdout.on("data", (chunk) => {
        if (text.length > 1_000_000) return;
        text += chunk;
        const line = text.split("\n").find((each) => each.includes('"server.ready"'));
        if (line !== undefined) resolve(JSON.parse(line));
      });
    });
  }

  /** The address of the page, with the token of a role. */
  page(role = "controller", port = this.port) {
    return `http://127.0.0.1:${port}/#token=${this.token(role)}`;
  }

  token(role = "controller") {
    const name = role === "viewer" ? "server.viewer-token" : "server.token";
    return readFileSync(join(this.execution, ".hankweave", name), "utf-8").trim();
  }

  /** The commands of the protocol that change something, as its document says. */
  commands() {
    const path = new URL("../../protocol/asyncapi.json", import.meta.url);
    const { operations } = JSON.parse(readFileSync(path, "utf-8"));
    return Object.entries(operations)
      .filter(([, each]) => each["x-changes"])
      .map(([name]) => name);
  }

  /** kill -9. */
  async kill() {
    this.process.kill("SIGKILL");
    await this.ended;
  }

  async stop() {
    if (this.process.exitCode !== null || this.process.signalCode !== null) return;
    this.process.kill("SIGTERM");
    await within(PATIENCE, "the end of the server", this.ended);
  }
}

/** A file system without a disk, where there is one with room. */
function memory() {
  try {
    const { bavail, bsize } = statfsSync("/dev/shm");
    return bavail * bsize > 2 ** 30 ? "/dev/shm" : tmpdir();
  } catch {
    return tmpdir();
  }
}

export function within(ms, what, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${what} did not come within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

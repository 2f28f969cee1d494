/** A wire between the page and the server that can be cut or held: a relay of TCP on another port. */
import { connect, createServer } from "node:net";

export class Wire {
  /** @param {number} port the server's */
  static async to(port) {
    const wire = new Wire(port);
    await new Promise((resolve) => wire.server.listen(0, "127.0.0.1", resolve));
    return wire;
  }

  constructor(port) {
    this.target = port; // Another server can be put there later.
    this.isCut = false;
    this.isHeld = false;
    this.sockets = new Set();
    this.server = createServer((socket) => this.#join(socket));
  }

  get port() {
    return this.server.address().port;
  }

  cut() {
    this.isCut = true;
    for (const socket of this.sockets) socket.destroy();
  }

  mend() {
    this.isCut = false;
  }

  /** The page is heard, and hears nothing. */
  hold() {
    this.isHeld = true;
    for (const socket of this.sockets) socket.emit("held");
  }

  release() {
    this.isHeld = false;
    for (const socket of this.sockets) socket.emit("released");
  }

  close() {
    this.cut();
    this.server.close();
  }

  #join(near) {
    if (this.isCut) return near.destroy();

    const far = connect(this.target, "127.0.0.1");
    for (const socket of [near, far]) {
      this.sockets.add(socket);
      socket.on("close", () => this.sockets.delete(socket));
      socket.on("error", () => undefined);
    }
    // The server lets only its own address in: the request is made out to it.
    near.once("data", (first) => {
      far.write(first.toString("latin1").replaceAll(`:${this.port}`, `:${this.target}`), "latin1");
      near.pipe(far);
    });
    far.pipe(near);
    far.on("held", () => far.unpipe(near).pause());
    far.on("released", () => far.pipe(near));
    near.on("close", () => far.destroy());
    far.on("close", () => near.destroy());
  }
}

/** Where the token does not hold: a server that was started again has another one. */
import { html, useState } from "../dom.js";

/** @param {{session: import("../session.js").Session}} props */
export function TokenForm({ session }) {
  const [token, setToken] = useState("");
  const tried = session.client.token !== null;
  return html`<main id="content" class="ask" tabindex="-1">
    <h1>Hankweave</h1>
    <p role="alert">
      ${
        tried
          ? "The token of this link does not hold any more: each start of a server makes a new one."
          : "This server asks for its token."
      }
    </p>
    <form
      onSubmit=${(event) => {
        event.preventDefault();
        session.tryToken(token);
      }}
    >
      <label for="token">
        Token, from <code>.hankweave/server.token</code>; or, to look only, from <code>.hankweave/server.viewer-token</code>
      </label>
      <input
        id="token"
        type="password"
        autocomplete="off"
        required
        value=${token}
        onInput=${(event) => setToken(event.target.value)}
      />
      <button class="main" type="submit">Connect</button>
    </form>
    <p>Or open the link again that <code>hankweave run</code> has printed.</p>
  </main>`;
}

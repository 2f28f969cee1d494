/** Where the token does not hold: new ones were asked for, or another server has the port. */
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
          ? "The token in this link does not hold: the server has new ones, or is another execution's."
          : "This server requires its token."
      }
    </p>
    <form
      onSubmit=${(event) => {
        event.preventDefault();
        session.tryToken(token);
      }}
    >
      <label for="token">
        Token, from <code>.hankweave/server.token</code>; or, for read-only access, from <code>.hankweave/server.viewer-token</code>
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
    <p><span>Or open the link that <code>hankweave run</code> printed.</span></p>
  </main>`;
}

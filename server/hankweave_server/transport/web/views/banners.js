/** What a person has to know or to answer, above everything else. */
import { html } from "../dom.js";
import { duration, laidOut, time, visible } from "../format.js";
import { useNow } from "../parts/hooks.js";
import { sentence } from "../progress.js";
import { Act } from "./header.js";

/** @param {{session: import("../session.js").Session}} props */
export function Banners({ session }) {
  const { store } = session;
  const { connection, problems, permissions, rollback, errors } = store;
  const last = errors.at(-1);
  // What the server does of itself, a checkpoint above all, is too often done to be told up here.
  const work = [...store.progress.values()].filter((each) => each.commandId !== undefined);
  const isRestoring = work.some((each) => each.operation === "restore");
  return html`<section class="banners" aria-label="Notices">
    ${
      connection.phase === "waiting" &&
      store.isLoaded &&
      html`<p class="banner bad">
      This page shows the state at event ${store.lastSeq}. Newer events appear when the connection is back.
    </p>`
    }
    ${
      connection.phase === "open" &&
      connection.mode === "readonly" &&
      html`<p class="banner">
      This link is read-only. To make changes, use the link that <code>hankweave run</code> prints as “watch it”.
    </p>`
    }
    ${[...problems.values()].map(
      (each) =>
        html`
          <p key=${each.code} class="banner bad" role="alert">
            The server has been degraded since ${time(each.since)}: ${each.message}
          </p>`,
    )}
    ${
      rollback !== null &&
      !isRestoring &&
      html`<p class="banner">
      <progress max=${rollback.of} value=${rollback.step} aria-label="Rollback">
      </progress> ${rollback.message}
    </p>`
    }
    ${work.map(
      (each) =>
        html`
          <p key=${each.operationId} class="banner">
            <progress
              max=${each.total ?? undefined}
              value=${each.total === null ? undefined : each.done}
              aria-label="Progress"
            ></progress> ${visible(sentence(each))}
          </p>`,
    )}
    ${[...permissions.values()].map((asked) => html`
      <${Permission} key=${asked.requestId} session=${session} asked=${asked} />`)}
    ${
      last !== undefined &&
      html`<p class="banner bad" role="alert">
      ${time(last.timestamp)}: ${visible(last.message)}
      <button onClick=${() => {
        errors.length = 0;
        store.changed();
      }}>Dismiss</button>
    </p>`
    }
  </section>`;
}

function Permission({ session, asked }) {
  const now = useNow(1_000);
  const { requestId, toolName, toolInput, codonId, reason, expiresAt } = asked;
  const answer = (decision) =>
    session.act(decision === "allow" ? "Allowed." : "Denied.", "permission.answer", {
      requestId,
      decision,
    });
  return html`<section class="banner ask" aria-label=${`Permission for ${toolName}`}>
    <p role="alert">
      <strong>${visible(codonId)}</strong> asks for permission to call <strong>${visible(toolName)}</strong>. ${visible(reason ?? "")}
    </p>
    <pre tabindex="0" aria-label="Arguments">${laidOut(toolInput)}</pre>
    <p>
      <${Act} session=${session} main=${true} onClick=${() => answer("allow")}>Allow<//>
      <${Act} session=${session} onClick=${() => answer("deny")}>Deny<//>
      <span> Answered automatically in ${duration(Date.parse(expiresAt) - now)}.</span>
    </p>
  </section>`;
}

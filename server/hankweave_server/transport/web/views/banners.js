/** What a person has to know or to answer, between the time and the steps; none if there is nothing. */
import { html } from "../dom.js";
import { commandOf } from "../commands.js";
import { clockSpan, inTree, unbroken, unmasked, visible } from "../format.js";
import { stepOf } from "../moments.js";
import { Button, Delta, Since } from "../parts/basics.js";
import { useNow } from "../parts/hooks.js";
import { Icon } from "../parts/icon.js";
import { Lines } from "../parts/lines.js";
import { at } from "../places.js";
import { sentence } from "../progress.js";
import { moreOfReason, reasonOf, standingOf, titleOfCodon, unanswered } from "../standing.js";
import { useCall } from "./call.js";
import { Past } from "./past.js";

/** @param {{session: import("../session.js").Session}} props */
export function Banners({ session }) {
  const { store } = session;
  const { connection, problems, rollback, errors } = store;
  const { asked, failed, active } = standingOf(store);
  const last = errors.at(-1);
  // What the server does of itself, a checkpoint above all, is too often done to be told up here.
  const work = [...store.progress.values()].filter((each) => each.commandId !== undefined);
  const now = useNow(10_000, last !== undefined || problems.size > 0);
  const isRestoring = work.some((each) => each.operation === "restore");
  return html`<section class="banners" aria-label="Notices">
    <${Past} session=${session} />
    ${connection.phase !== "open" && store.isLoaded && html`<${Lost} session=${session} />`}
    ${
      connection.phase === "open" &&
      connection.mode === "readonly" &&
      html`<p class="banner r-plain">
        <span>
          This link is read-only. To make changes, use the link that <code>hankweave run</code> prints as “watch it”.
        </span>
      </p>`
    }
    ${[...problems.values()].map(
      (each) =>
        html`
          <p key=${each.code} class="banner r-bad">
            <${Icon} name="failed" />
            <span><span role="alert">The server has a problem: ${line(each.message)}</span> <span class="hint"><${Since} at=${each.since} now=${now} /></span></span>
          </p>`,
    )}
    ${
      rollback !== null &&
      !isRestoring &&
      html`<p class="banner r-accent">
        <progress class="meter" max=${rollback.of} value=${rollback.step} aria-label="Rollback">
        </progress> <span>${line(rollback.message)}</span>
      </p>`
    }
    ${work.map(
      (each) =>
        html`
          <p key=${each.operationId} class="banner r-accent">
            <progress
              class="meter"
              max=${each.total ?? undefined}
              value=${each.total === null ? undefined : each.done}
              aria-label="Progress"
            ></progress> <span>${visible(sentence(each))}</span>
          </p>`,
    )}
    ${at("notices").map((Joined) => html`<${Joined} session=${session} />`)}
    ${active?.wait && html`<${Limit} session=${session} active=${active} />`}
    ${asked !== null && html`
      <${Permission} key=${asked.requestId} session=${session} asked=${asked} />`}
    ${failed !== null && session.looks.moment === null && html`<${Failure} session=${session} failed=${failed} />`}
    ${
      last !== undefined &&
      html`<p class="banner r-bad">
        <${Icon} name="failed" />
        <span><span role="alert">${line(last.message)}</span> <span class="hint"><${Since} at=${last.timestamp} now=${now} /></span></span>
        <${Button} onClick=${() => {
          errors.length = 0;
          store.changed();
        }}>Dismiss<//>
      </p>`
    }
  </section>`;
}

function Lost({ session }) {
  const { phase, retryAt } = session.store.connection;
  const now = useNow(500, phase === "waiting");
  const wait = Math.max(0, Math.ceil(((retryAt ?? now) - now) / 1_000));
  return html`<p class="banner r-bad">
    <${Icon} name="offline" />
    <span>
      <strong role="status">The connection is lost.</strong> This page shows the state at event ${session.store.lastSeq}; newer events appear when it is back.
    </span>
    ${phase === "waiting" && html`<span class="hint" aria-hidden="true">again in ${wait} s</span>`}
    <${Button} onClick=${() => session.client.retryNow()}>Try now<//>
  </p>`;
}

function Limit({ session, active }) {
  const now = useNow(1_000);
  const { kind, until, message } = active.wait;
  const command = commandOf(session, "continue");
  return html`<p class="banner r-wait">
    <${Icon} name="waiting" />
    <span>
      <strong>${visible(titleOfCodon(session.store.state, active.codonId))}</strong> waits for the end of a ${kind} limit, in ${clockSpan(Date.parse(until) - now)}. <span class="hint">${line(message ?? "")}</span>
    </span>
    <${Button} why=${command.why} onWhy=${session.say} onClick=${command.run}>Continue now<//>
  </p>`;
}

/** The step that failed, why, and the ways out. */
function Failure({ session, failed }) {
  const name = titleOfCodon(session.store.state, failed.codonId);
  const message = unmasked(failed.failureReason?.message ?? "");
  const command = (/** @type {string} */ id, /** @type {string} */ words, look = "") => {
    const { key, why = null, run } = commandOf(session, id);
    return html`<${Button} hotkey=${key} look=${look} why=${why} onWhy=${session.say} onClick=${run}>
      ${words}
    <//>`;
  };
  return html`<section class="banner r-bad" aria-label="The step that failed">
    <${Icon} name="failed" />
    <p role="alert">
      <strong>${visible(name)}</strong> failed: <span title=${message}>${unmasked(reasonOf(failed))}</span> <span class="hint">${unmasked([failed.attempt > 1 && `attempt ${failed.attempt}`, moreOfReason(failed)].filter(Boolean).join(" · "))}</span>
    </p>
    <span class="ways">
      ${command("show", "Show")}
      ${at("remedies").filter(({ isFor }) => isFor(failed)).map(({ id, words }) => command(id, words))}
      ${command("before", "Back to before it")}
      ${command("retry", "Retry", "primary")}
    </span>
  </section>`;
}

/** A call that waits for an answer: what it would do, what can be answered, what happens otherwise. */
function Permission({ session, asked }) {
  const { store } = session;
  const now = useNow(1_000);
  const { toolName, codonId, reason, suggestion = null } = asked;
  const call = useCall(session, asked);
  const others = store.permissions.size - 1;
  const said = [reason && line(reason).replace(/\.$/, ""), unanswered(asked, now), others > 0 && `${others} more after it`].filter(Boolean);
  const { looks } = session;
  const isBelow = looks.tab === "transcript" && looks.compare === null && looks.moment === null && stepOf(store, looks) === codonId;
  const act = (/** @type {string} */ id, /** @type {any} */ words, look = "") => {
    const { key, why = null, run } = commandOf(session, id);
    return html`<${Button} hotkey=${key} look=${look} why=${why} onWhy=${session.say} onClick=${run}>
      ${words}
    <//>`;
  };
  return html`<section class=${`banner ask r-wait${isBelow ? " below" : ""}`} aria-label=${`Permission for ${toolName}`}>
    <${Icon} name="waiting" />
    <p>
      <span role="alert">
        <strong>${visible(titleOfCodon(store.state, codonId))}</strong> wants to ${call.verb} <code>${visible(inTree(call.object, store.server?.agentRootPath))}</code> ${call.delta && html`<${Delta} ...${call.delta} />`}
      </span>${" "}
      <span class="hint">
        ${said.join(" · ")}${suggestion !== null && html` · <${Button} look="link" onClick=${commandOf(session, "rule").run}>change the rule<//>`}
      </span>
    </p>
    <span class="ways">
      ${act("deny", "Deny…", "danger")}
      ${suggestion !== null && act("always", html`Always for <code>${visible(suggestion)}</code>`, "always")}
      ${act("allow", "Allow once", "primary")}
    </span>
    ${
      call.lines !== null
        ? html`<${Lines} lines=${call.lines} label="What it would change" />`
        : call.detail !== "" &&
          html`<pre tabindex="0" aria-label="What it would do">${call.detail}</pre>`
    }
  </section>`;
}

/** What may have several lines, in one. @param {string} text */
const line = (text) => visible(unbroken(text));

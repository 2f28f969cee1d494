/** What it has cost, over time and by codon. */
import { html, useEffect, useRef, useState } from "../dom.js";
import { compact, count, dollars, time, visible } from "../format.js";
import { useNowAndThen, useOpen } from "../parts/hooks.js";
import { titleOfCodon } from "../standing.js";
import { attemptRuns, costOf, thread, tokensOf, totals, unusedCosts } from "../state.js";

const PAGE = 1_000;
const POINTS = 2_000; // Kept; of more, every other one goes.
const REST = 1_500;
const TYPES = ["token.usage", "sentinel.output"];
const TOKENS = ["inputTokens", "outputTokens", "cacheCreationTokens", "cacheReadTokens"];

/** @param {{session: import("../session.js").Session}} props */
export function CostView({ session }) {
  const { store } = session;
  const series = useSeries(session);
  const { cost, tokens } = totals(store.state);
  const unused = unusedCosts(store.state);
  const tried = attemptRuns(store.state);
  const kept = new Set(thread(store.state));
  const [shown, setShown] = useState(ROWS);
  const codons = store.state.runs
    .flatMap((run) => run.codons.map((codon) => ({ codon, run })))
    .sort((a, b) => costOf(b.codon) - costOf(a.codon));
  const runs = store.state.runs.filter(({ runId }) => !tried.has(runId)); // Newest first.
  const numberOf = (/** @type {any} */ run) => (tried.has(run.runId) ? "—" : runs.length - runs.indexOf(run));
  return html`<section class="cost" aria-label="Cost and tokens">
    <p>${summary(session.store.figures, cost, unused)}</p>
    <div class="charts">
      <${Chart} title="Cost" points=${series} of="cost" words=${dollars} total=${cost} />
      <${Chart} title="Tokens" points=${series} of="tokens" words=${compact} total=${tokens} />
    </div>
    <div class="table" tabindex="0" role="region" aria-label="By step, the most expensive first">
      <table>
        <thead>
          <tr>
            <th scope="col">Step</th>
            <th scope="col" class="of-run">Run</th>
            <th scope="col">State</th>
            <th scope="col" class="number">Cost</th>
            <th scope="col" class="number">Tokens</th>
          </tr>
        </thead>
        <tbody>
          ${codons.slice(0, shown).map(
            ({ codon, run }, at) => html`<tr key=${at}>
            <td>
              ${visible(titleOfCodon(store.state, codon.codonId))}${codon.attempt > 1 ? ` (attempt ${codon.attempt})` : ""}
            </td>
            <td class="of-run" title=${run.runId}>${numberOf(run)}</td>
            <td>${codon.status}${kept.has(codon) ? "" : tried.has(run.runId) ? ", attempt" : codon.status === "failed" ? "" : ", rolled back"}</td>
            <td class="number">
              ${dollars(costOf(codon))}
            </td><td class="number">${count(tokensOf(codon))}</td>
          </tr>`,
          )}
        </tbody>
        <tfoot>
          ${Object.entries({ "rolled back": unused.rolledBack, "for attempts": unused.attempts }).map(
            ([what, dear]) => dear > 0 && html`
            <tr key=${what}>
              <td colspan="3">Of this, ${what}</td>
              <td class="number">${dollars(dear)}</td><td></td>
            </tr>`,
          )}
          <tr>
            <td colspan="3">
              All runs
            </td><td class="number">${dollars(cost)}</td><td class="number">${count(tokens)}</td>
          </tr>
        </tfoot>
      </table>
      ${codons.length > shown && html`
        <button onClick=${() => setShown(shown + ROWS)}>
          More of ${count(codons.length)} steps
        </button>`}
    </div>
  </section>`;
}

/** What was paid, of how much, for what is gone, and what is expected. */
function summary({ budgetUsd, forecast }, cost, { rolledBack, attempts }) {
  const parts = [`${dollars(cost)} paid${budgetUsd === null ? "" : ` of ${dollars(budgetUsd)}`}`];
  if (rolledBack > 0) parts.push(`${dollars(rolledBack)} of it rolled back`);
  if (attempts > 0) parts.push(`${dollars(attempts)} of it for attempts`);
  if (forecast?.costAtEnd != null)
    parts.push(`about ${dollars(forecast.costAtEnd)} at the end${forecast.basis ? ` (${visible(forecast.basis)})` : ""}`);
  return parts.join(" · ");
}

/** The sums over time: read once, then only what is new. */
function useSeries(session) {
  const { store } = session;
  const sums = useRef({ seq: 0, cost: 0, tokens: 0, open: new Map(), points: [] });
  const [points, setPoints] = useState(/** @type {any[]} */ ([]));
  const isOpen = useOpen();
  const isReading = useRef(false);
  const read = async () => {
    if (isReading.current) return;

    isReading.current = true;
    let cursor;
    const since = sums.current.seq;
    try {
      do {
        const page = await session.ask("events.query", {
          types: TYPES,
          since,
          limit: PAGE,
          cursor,
        });
        for (const event of page.events ?? []) if (event.seq > sums.current.seq) addUp(sums.current, event);
        cursor = page.cursor;
        if (isOpen.current) setPoints([...sums.current.points]);
      } while (cursor && isOpen.current);
    } catch {
      // The next event of the kind reads on.
    }
    isReading.current = false;
  };
  useEffect(() => void read(), []);
  useNowAndThen(read, REST, [store.usage]);
  return points;
}

function addUp(sums, { seq, type, timestamp, runId, data }) {
  sums.seq = seq;
  const codon = `${runId} ${data.codonId}`; // One that was stopped has no final figures.
  if (type === "sentinel.output") sums.cost += data.cost ?? 0;
  else {
    const spent = {
      cost: data.totalCost ?? 0,
      tokens: TOKENS.reduce((sum, key) => sum + (data[key] ?? 0), 0),
    };
    // The final figures of a codon are its totals: they replace what its messages came to.
    const open = sums.open.get(codon) ?? { cost: 0, tokens: 0 };
    const isFinal = data.final;
    sums.cost += isFinal ? spent.cost - open.cost : spent.cost;
    sums.tokens += isFinal ? spent.tokens - open.tokens : spent.tokens;
    if (isFinal) sums.open.delete(codon);
    else sums.open.set(codon, { cost: open.cost + spent.cost, tokens: open.tokens + spent.tokens });
  }
  sums.points.push({
    at: Date.parse(timestamp),
    timestamp,
    cost: sums.cost,
    tokens: sums.tokens,
  });
  if (sums.points.length > POINTS) sums.points = sums.points.filter((_, at) => at % 2 === 1);
}

const ROWS = 500;
const WIDTH = 600;
const HEIGHT = 160;

function Chart({ title, points, of, words, total }) {
  if (points.length === 0)
    return html`
      <figure>
        <figcaption>${title}: ${words(total)}</figcaption><p class="empty">Nothing has been spent yet.</p>
      </figure>`;

  const begin = points[0].at;
  const span = Math.max(1, points.at(-1).at - begin);
  const most = Math.max(...points.map((each) => each[of]), 1e-9);
  const x = (each) => ((each.at - begin) / span) * WIDTH;
  const y = (each) => HEIGHT - (each[of] / most) * (HEIGHT - 8);
  const steps = points.map((each) => `H${x(each).toFixed(1)}V${y(each).toFixed(1)}`).join("");
  return html`<figure>
    <figcaption>${title}: ${words(total)}</figcaption>
    <svg
      viewBox=${`0 0 ${WIDTH} ${HEIGHT}`}
      preserveAspectRatio="none"
      role="img"
      aria-label=${`${title} rose to ${words(points.at(-1)[of])} between ${time(points[0].timestamp)} and ${time(points.at(-1).timestamp)}`}
    >
      <path class="under" d=${`M0 ${HEIGHT}${steps}V${HEIGHT}Z`} />
      <path class="curve" d=${`M0 ${HEIGHT}${steps}`} vector-effect="non-scaling-stroke" />
    </svg>
    <div class="axis" aria-hidden="true">
      <span>
        ${time(points[0].timestamp)}
      </span><span>at most ${words(most)}</span><span>${time(points.at(-1).timestamp)}</span>
    </div>
  </figure>`;
}

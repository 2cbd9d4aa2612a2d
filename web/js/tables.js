/** The turns, the workers, and what happened. Rows are kept by key, so that focus and scroll position stay. */

/** @import { RunEvent, TurnRow, View, Worker } from "./types.d.ts" */
import { byId, h, icon, linePath, setAttribute, setClass, setShown, setStyle, setText, spoken, svg, sync } from "./dom.js";
import { NOTHING, count, exact, isFew, ms, number, percent, percentOf, runTime } from "./format.js";

const drawn = { events: -1, turns: -1 };

/** @param {View} view */
export function drawTables(view) {
  const { snapshot, edition } = view;
  if (!snapshot) return;
  const isOpen = snapshot.state !== "stopping" && snapshot.state !== "done";
  drawWorkers(snapshot.workers, snapshot.n_workers, isOpen ? (view.run?.join ?? null) : null);
  if (edition.turns !== drawn.turns) drawTurns(view.turns);
  if (edition.events !== drawn.events) drawEvents(view.events);
  drawn.turns = edition.turns;
  drawn.events = edition.events;
}

// --- turns -------------------------------------------------------------------------------------------------------

const GROUPS = /** @type {const} */ ([
  { expect: "respond", words: "response latency", limit: "missed after" },
  { expect: "stop", words: "time until the agent falls silent", limit: "fails after" },
  { expect: "ignore", words: "the agent must go on talking, or stay silent", limit: "" },
]);
const PERCENTILES = /** @type {const} */ (["p50", "p90", "p95", "p99"]);

/** @param {TurnRow[]} turns */
export function drawTurns(turns) {
  const hasSeveral = new Set(turns.map((turn) => turn.scenario)).size > 1;
  for (const group of GROUPS) {
    const body = byId(`turns-${group.expect}`);
    const own = turns.filter((turn) => turn.expect === group.expect);
    setShown(body, own.length > 0);
    setText(byId(`about-${group.expect}`), aboutGroup(group, own));
    const heading = body.firstElementChild;
    sync(body, [null, ...own], (turn) => (turn ? keyOf(turn) : ""), (turn) => {
      if (!turn) return /** @type {HTMLTableRowElement} */ (heading);
      return createTurn(turn, hasSeveral);
    }, (row, turn) => turn && updateTurn(row, turn));
  }
  setShown(byId("no-turns"), turns.length === 0);
  setShown(byId("few"), turns.some((turn) => PERCENTILES.some((name) => isFew(name, turn.times_ms?.count))));
}

/** All that does not change while a run goes on: another run may follow at the same address. @param {TurnRow} turn */
const keyOf = ({ scenario, position, id, audio, text }) => [scenario, position, id, audio, text].join("\n");

/** @param {(typeof GROUPS)[number]} group @param {TurnRow[]} turns */
function aboutGroup({ expect, words, limit }, turns) {
  const limits_ms = turns.flatMap((turn) => turn.limit_ms ?? []);
  if (!limits_ms.length) return words;
  // Seconds for the patience of a caller, milliseconds for that of an agent.
  const inUnit = (/** @type {number} */ value_ms) => (expect === "respond" ? exact(value_ms / 1000) : number(value_ms));
  const [least, most] = [inUnit(Math.min(...limits_ms)), inUnit(Math.max(...limits_ms))];
  const span = least === most ? most : `${least} to ${most}`;
  return `${words}; ${limit} ${span} ${expect === "respond" ? "s" : "ms"}`;
}

/** @param {TurnRow} turn @param {boolean} hasSeveral */
function createTurn(turn, hasSeveral) {
  const source = hasSeveral ? `${turn.scenario} · ${turn.audio}` : turn.audio;
  const name = h(
    "th",
    { scope: "row", title: turn.text },
    h("span", { class: "dim" }, String(turn.position)),
    "  ",
    h("b", {}, turn.id),
    " ",
    h("span", { class: "mono dim" }, source),
  );
  const share = h("td", { class: "l" }, h("span", { class: "outcome", "aria-hidden": "true" }, h("i"), h("i", { class: "bad" })), h("span"));
  const cells = [h("td"), h("td")];
  if (turn.expect === "ignore") cells.push(h("td", { class: "l dim", colspan: 7 }));
  else for (let i = 0; i < 6; i++) cells.push(h("td"));
  const row = h("tr", { class: "row" }, name, share, ...cells);
  if (turn.expect !== "ignore") {
    const spark = svg("svg", { width: 72, height: 20, viewBox: "0 0 72 20", class: "mini" }, svg("path"));
    row.append(h("td", { class: "l" }, spark));
  }
  return row;
}

/** @param {Element} row @param {TurnRow} turn */
function updateTurn(row, turn) {
  const [, share, played, missed, ...rest] = /** @type {HTMLElement[]} */ ([...row.children]);
  const [bar, text] = /** @type {HTMLElement[]} */ ([...share.children]);
  setStyle(/** @type {HTMLElement} */ (bar.children[0]), "flexGrow", String(turn.good));
  setStyle(/** @type {HTMLElement} */ (bar.children[1]), "flexGrow", String(Math.max(0, turn.played - turn.good)));
  const answered = percentOf(turn.good, turn.played);
  setText(text, answered === NOTHING ? NOTHING : `${answered} %`);
  setText(played, number(turn.played));
  setText(missed, number(turn.missed));
  if (turn.expect === "ignore") {
    setText(rest[0], ignored(turn));
    return;
  }
  PERCENTILES.forEach((name, index) => {
    const isOver = turn.over.includes(name);
    setText(rest[index], ms(turn.times_ms?.[name]));
    setClass(rest[index], [isFew(name, turn.times_ms?.count) && "few", isOver && "over"].filter(Boolean).join(" "));
    if (isOver) rest[index].append(spoken(" over its limit"));
  });
  setText(rest[4], ms(turn.ttfa_p95_ms));
  setText(rest[5], turn.mean_wer === null ? NOTHING : `${percent(turn.mean_wer)} %`);
  drawMini(rest[6], turn);
}

/** @param {TurnRow} turn */
function ignored({ false_barge_ins, spurious_responses, played }) {
  if (!played) return "not played so far";
  const found = [
    false_barge_ins && count(false_barge_ins, "false barge-in"),
    spurious_responses && count(spurious_responses, "spurious response"),
  ].filter(Boolean);
  return found.length ? found.join(", ") : "ignored every time";
}

/** @param {Element} cell @param {TurnRow} turn */
function drawMini(cell, { p95_over_time }) {
  const values = p95_over_time ?? [];
  const found = values.filter((value) => value !== null);
  const [low, high] = [0.8 * Math.min(...found), Math.max(...found)];
  const path = found.length ? linePath(values, { width: 72, height: 20, pad: 2, low, high }) : "";
  const spark = cell.children[0];
  setAttribute(spark.children[0], "d", path);
  setAttribute(spark, "role", "img");
  setAttribute(spark, "aria-label", found.length ? `from ${ms(found[0])} to ${ms(found.at(-1))} ms` : "too few values");
}

// --- workers -----------------------------------------------------------------------------------------------------

/** @param {Worker[]} workers @param {number} n @param {string | null} join */
function drawWorkers(workers, n, join) {
  sync(byId("worker-rows"), workers, (worker) => `${worker.name}\n${worker.host}`, createWorker, updateWorker);
  setShown(byId("worker-table"), workers.length > 0);
  setShown(byId("no-workers"), workers.length === 0);
  setShown(byId("about-lateness"), workers.length > 0);
  setText(byId("more-workers"), `The first ${workers.length} of ${number(n)} are listed, those in trouble first. `);
  setShown(byId("more-workers"), n > workers.length);
  setText(byId("join-command"), join ?? "");
  setShown(byId("join"), join !== null);
}

/** @param {Worker} worker */
function createWorker({ name, host }) {
  return h(
    "tr",
    { class: "row" },
    h("th", { scope: "row" }, h("b", {}, name), " ", h("span", { class: "mono dim" }, host)),
    h("td", { class: "l" }, h("span", { class: "state" }, h("i"), h("span")), h("small", { class: "why" })),
    h("td"),
    h("td", { class: "l" }, h("span", { class: "meter", "aria-hidden": "true" }, h("i")), h("span")),
    h("td"),
    h("td"),
    h("td"),
    h("td"),
  );
}

/** @param {Element} row @param {Worker} worker */
function updateWorker(row, worker) {
  const [, state, calls, cpu, lag, late, unreliable, beat] = /** @type {HTMLElement[]} */ ([...row.children]);
  const [word, why] = /** @type {HTMLElement[]} */ ([...state.children]);
  setClass(word, `state ${worker.kind}`);
  setText(word.children[1], worker.state);
  setText(why, worker.why ?? "");
  setShown(why, worker.why !== null);
  setText(calls, number(worker.calls));
  const [meter, percentage] = /** @type {HTMLElement[]} */ ([...cpu.children]);
  setClass(meter, `meter ${worker.kind}`);
  // One loop holds all calls of a worker: its thread is what runs out of CPU first.
  const used = worker.loop_cpu_percent ?? worker.cpu_percent;
  setStyle(/** @type {HTMLElement} */ (meter.children[0]), "width", `${Math.min(100, used ?? 0)}%`);
  setText(percentage, used === null ? NOTHING : `${number(used)} %`);
  setText(lag, worker.lag_ms === null ? NOTHING : `${number(worker.lag_ms, 1)} ms`);
  setText(late, worker.frame_late_p99_ms === null ? NOTHING : `${number(worker.frame_late_p99_ms, 1)} ms`);
  const judged = worker.judged_turns;
  setText(unreliable, judged ? `${number(worker.unreliable_turns)} of ${number(judged)}` : NOTHING);
  setText(beat, worker.beat_age_s === null ? NOTHING : `${number(worker.beat_age_s, 1)} s`);
}

// --- events ------------------------------------------------------------------------------------------------------

const SIGNS = /** @type {Record<string, string>} */ ({ bad: "bad:", warn: "warning:", good: "good:" });

/** @param {RunEvent[]} events */
function drawEvents(events) {
  sync(byId("event-list"), events.toReversed(), ({ n, t_s, event, detail }) => [n, t_s, event, detail].join("\n"), createEvent, () => {});
  setShown(byId("no-events"), events.length === 0);
}

/** @param {RunEvent} event */
function createEvent({ t_s, event, detail, kind }) {
  const text = h("span", {}, h("b", {}, event), ` ${detail}`);
  if (SIGNS[kind]) text.prepend(spoken(`${SIGNS[kind]} `));
  return h("li", { class: kind }, h("time", {}, runTime(t_s)), icon(kind, 14), text);
}

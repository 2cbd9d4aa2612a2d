/** Banners, the four tiles, and the strip of further numbers below them. */

/** @import { Assertion, Banner, Column, Distribution, Snapshot, TurnRow, View } from "./types.d.ts" */
import { byId, h, icon, linePath, setAttribute, setClass, setShown, setText, svg, sync } from "./dom.js";
import { NOTHING, exact, isFew, ms, number, percent, percentOf, rate } from "./format.js";
import { bannersOf, hasEnded } from "./store.js";

// --- banners -----------------------------------------------------------------------------------------------------

/** @param {View} view */
export function drawBanners(view) {
  const files = hasEnded(view) ? [] : (view.snapshot?.result?.files ?? []);
  sync(byId("banners"), bannersOf(view), (banner) => banner.what + banner.kind, createBanner, (element, banner) => {
    const [title, text, more] = /** @type {HTMLElement[]} */ ([...element.children[1].children]);
    setText(title, banner.title);
    setText(text, banner.text);
    setShown(more, banner.what === "done");
    if (banner.what === "done") drawReports(more, view, files);
  });
}

/** An alert is told when it comes. What counts down in it afterwards is not told again. @param {Banner} banner */
function createBanner({ kind }) {
  const body = h("div", { "aria-live": "off" }, h("b"), h("p"), h("p", { class: "reports" }));
  return h("section", { class: `banner ${kind}`, role: "alert" }, icon(kind, 18), body);
}

const FILES = /** @type {Record<string, string>} */ ({
  "report.html": "HTML",
  "report.json": "JSON",
  "report.md": "Markdown",
  "junit.xml": "JUnit",
});

/** @param {Element} element @param {View} view @param {string[]} files */
function drawReports(element, view, files) {
  const directory = view.snapshot?.result?.directory;
  let words = "";
  if (hasEnded(view)) words = `The master has ended. ${directory ? `The reports are in ${directory}` : "Nothing was written."}`;
  else if (files.length) words = `Reports${directory ? ` in ${directory}` : ""}: `;
  sync(element, ["words", ...files], (each) => each, (each) => (each === "words" ? h("span") : link(each)), (child, each) => {
    if (each === "words") setText(child, words);
  });
}

/** @param {string} file */
const link = (file) => h("a", { href: `/files/${encodeURIComponent(file)}` }, FILES[file] ?? file);

// --- tiles -------------------------------------------------------------------------------------------------------

/** @typedef {[before: string, value: string, after: string]} Part */

/**
 * @typedef {object} Reading
 * @property {string} value
 * @property {string} [unit]
 * @property {string} [n] what the value is made of
 * @property {Part[]} parts
 * @property {Assertion} [limit] what the plan holds it to
 */

/**
 * @typedef {object} Tile
 * @property {string} name
 * @property {string} color
 * @property {"live" | "p95_ms" | "barge_in_success_rate" | "missed_rate"} spark
 * @property {number} [top] of the spark's scale; without one it fits what is drawn
 * @property {(snapshot: Snapshot, turns: TurnRow[]) => Reading} read
 */

/** @type {Tile[]} */
const TILES = [
  { name: "Concurrent calls", color: "calls", spark: "live", read: readCalls },
  { name: "Response latency p95", color: "p95", spark: "p95_ms", read: readLatency },
  { name: "Barge-in success", color: "agent", spark: "barge_in_success_rate", top: 1.15, read: readBargeIn },
  { name: "Missed responses", color: "p99", spark: "missed_rate", read: readMissed },
];

/** @param {Snapshot} snapshot @returns {Reading} */
function readCalls({ calls, state }) {
  /** @type {Part[]} */
  const parts = [["", rate(calls.starts_per_s), " starts/s"], ["", number(calls.started), " started"]];
  return { value: number(calls.live), unit: state === "done" ? "" : `of ${number(calls.wanted)}`, parts };
}

/** @param {Snapshot} snapshot @returns {Reading} */
function readLatency({ summary, assertions }) {
  const times = summary.response_latency_ms;
  const parts = NAMES.map((name) => /** @type {Part} */ ([`${name} `, marked(name, times), ""]));
  return {
    value: marked("p95", times),
    unit: "ms",
    n: `n ${number(times.count)}`,
    parts,
    limit: limitNamed(assertions, "p95_response_latency_ms", /^(p[\d.]+|mean|max)_response_latency_ms$/),
  };
}

/** @param {Snapshot} snapshot @returns {Reading} */
function readBargeIn({ summary, assertions }) {
  const times = summary.barge_in_stop_ms;
  /** @type {Part[]} */
  const parts = [["stops in p50 ", ms(times.p50), ""], ["p95 ", marked("p95", times), " ms"]];
  return {
    value: percent(summary.barge_in_success_rate),
    unit: "%",
    n: `n ${number(summary.barge_in_turns)}`,
    parts,
    limit: limitNamed(assertions, "min_barge_in_success_rate"),
  };
}

/** @param {Snapshot} snapshot @param {TurnRow[]} turns @returns {Reading} */
function readMissed({ summary, assertions }, turns) {
  const of = respondTurns(summary);
  const limits_ms = new Set(turns.filter((turn) => turn.expect === "respond").map((turn) => turn.limit_ms));
  const within = limits_ms.size === 1 ? `in ${exact(Number([...limits_ms][0]) / 1000)}\u00a0s` : "in time";
  return {
    value: percentOf(summary.missed_responses, of),
    unit: "%",
    parts: [["", number(summary.missed_responses), ` of ${number(of)} turns got no answer ${within}`]],
    limit: limitNamed(assertions, "max_missed_responses"),
  };
}

/** All turns that were to be answered: each was, or was missed. @param {Snapshot["summary"]} summary */
const respondTurns = (summary) => summary.response_latency_ms.count + summary.missed_responses;

const NAMES = /** @type {const} */ (["p50", "p90", "p99"]);

/**
 * A percentile in ms, with a star if it is of few values.
 * @param {"p50" | "p90" | "p95" | "p99"} name
 * @param {Distribution} times
 */
export const marked = (name, times) => ms(times[name]) + (isFew(name, times.count) ? "*" : "");

/**
 * The limit of the whole run with this name, or the first one like it.
 * @param {Assertion[]} assertions
 * @param {string} name
 * @param {RegExp} [like]
 */
function limitNamed(assertions, name, like) {
  const whole = assertions.filter((each) => each.scenario === null);
  return whole.find((each) => each.name === name) ?? whole.find((each) => like?.test(each.name));
}

/** What the tag says, and its kind. @param {Assertion} limit @returns {[string, string]} */
function limitTag({ name, limit, state }) {
  const value = exact(/_rate$|_wer$/.test(name) ? 100 * limit : limit) + (/_rate$|_wer$/.test(name) ? " %" : "");
  const isLeast = name.startsWith("min_");
  // The tile is about p95: a limit on something else says on what.
  const what = /_ms$/.test(name) && !name.startsWith("p95_") ? `${name.split("_")[0]} ` : "";
  const words = {
    passing: [/_ms$/.test(name) ? `within ${value}` : `${isLeast ? "≥" : "≤"} ${value}`, "good"],
    failing: [/_ms$/.test(name) ? `over ${value}` : `${isLeast ? "<" : ">"} ${value}`, "bad"],
    open: [`limit ${value}`, "mute"],
    cant_tell: [`${value}: can’t tell`, "warn"],
  };
  const [text, kind] = words[state];
  return [what + text, kind];
}

const tiles = TILES.map((tile) => {
  const parts = {
    tag: h("span", { class: "tag" }),
    value: h("span", { class: "value" }, NOTHING),
    unit: h("span", { class: "unit" }),
    n: h("span", { class: "n" }),
    sub: h("div", { class: "sub" }),
    spark: svg("svg", { class: `spark ${tile.color}`, viewBox: "0 0 300 40", preserveAspectRatio: "none", "aria-hidden": "true" }, svg("path", { class: "area" }), svg("path", { class: "line" })),
  };
  const { tag, value, unit, n, sub, spark } = parts;
  const heading = h("h2", {}, h("span", {}, tile.name), tag);
  const element = h("article", { class: "card tile" }, heading, h("div", { class: "v" }, value, unit, n), sub, spark);
  return { tile, element, ...parts };
});

const strip = byId("strip");
let sparksDrawn = -1;

/** Before the first answer. */
export function drawSkeleton() {
  byId("overview").append(...tiles.map(({ element }) => element));
}

/** @param {View} view */
export function drawOverview(view) {
  const { snapshot } = view;
  if (!snapshot) return;
  const isEmpty = snapshot.calls.started === 0;
  for (const each of tiles) {
    const reading = each.tile.read(snapshot, view.turns);
    const hasValue = reading.value !== NOTHING && !isEmpty;
    setClass(each.element, `card tile${snapshot.trusted ? "" : " untrusted"}`);
    setText(each.value, hasValue ? reading.value : NOTHING);
    setText(each.unit, hasValue ? (reading.unit ?? "") : "");
    setText(each.n, hasValue ? (reading.n ?? "") : "");
    drawParts(each.sub, isEmpty ? [["no calls yet", "", ""]] : hasValue ? reading.parts : [[WAITING, "", ""]]);
    const [text, kind] = snapshot.trusted ? (reading.limit ? limitTag(reading.limit) : ["", ""]) : ["not trusted", "warn"];
    setText(each.tag, text);
    setClass(each.tag, `tag ${kind}`);
    setShown(each.tag, text !== "" && !isEmpty);
  }
  drawStrip(snapshot);
  if (view.edition.timeline === sparksDrawn) return;
  sparksDrawn = view.edition.timeline;
  for (const { tile, spark } of tiles) drawSpark(spark, view.timeline?.[tile.spark] ?? [], tile.top);
}

const WAITING = "nothing was measured so far";

/** @param {Element} element @param {Part[]} parts */
function drawParts(element, parts) {
  const create = () => h("span", {}, h("span"), h("b"), h("span"));
  sync(element, parts.map((part, index) => ({ part, index })), ({ index }) => String(index), create, (child, { part }) => {
    part.forEach((text, index) => setText(child.children[index], text));
  });
}

/** @param {Element} spark @param {Column} values @param {number} [high] */
function drawSpark(spark, values, high) {
  const [area, line] = [...spark.children];
  const path = linePath(values, { width: 300, height: 40, pad: 2, high });
  setAttribute(line, "d", path);
  // The area under each stretch between two gaps is closed by itself.
  const closed = path.replace(/M([\d.]+) ([^M]*)/g, (stretch, from) => {
    const to = [...stretch.matchAll(/[ML]([\d.]+) /g)].at(-1)?.[1] ?? from;
    return `${stretch.replace("h1", "")}L${to} 40L${from} 40Z`;
  });
  setAttribute(area, "d", closed);
}

// --- the strip ---------------------------------------------------------------------------------------------------

/**
 * Name, value, unit and what the value is made of.
 * @param {Snapshot} snapshot
 * @returns {[string, string, string, string][]}
 */
export function stripOf({ summary, account, frame_lateness_ms: lateness }) {
  const noise = number(summary.noise_turns);
  const of = respondTurns(summary);
  const ended = account.finished + account.failed + account.lost;
  const unreliable = summary.unreliable_turns;
  return [
    ["First audio p95", marked("p95", summary.ttfa_ms), "ms", `n ${number(summary.ttfa_ms.count)}`],
    ["False barge-ins", percentOf(summary.false_barge_ins, summary.noise_turns), "%", `${number(summary.false_barge_ins)} of ${noise}`],
    ["Spurious responses", percentOf(summary.spurious_responses, summary.noise_turns), "%", `${number(summary.spurious_responses)} of ${noise}`],
    ["Talk-over", percentOf(summary.talk_overs, of), "%", `${number(summary.talk_overs)} of ${number(of)} turns`],
    ["Failed calls", percent(summary.failed_session_rate), "%", `${number(account.failed)} of ${number(ended)} ended`],
    ["Word error rate", percent(summary.mean_wer), "%", summary.mean_wer === null ? "no transcripts" : `${percent(summary.pooled_wer)} % of all words`],
    ["Unreliable turns", percent(summary.unreliable_turn_rate), "%", `${number(unreliable)} ${unreliable === 1 ? "turn" : "turns"}`],
    ["Frames late p99", ms(lateness.p99) + (isFew("p99", lateness.count) ? "*" : ""), "ms", `ours, n ${number(lateness.count)}`],
  ];
}

/** @param {Snapshot} snapshot */
function drawStrip(snapshot) {
  setClass(strip, `card strip${snapshot.trusted ? "" : " untrusted"}`);
  const create = () => h("div", {}, h("dt"), h("dd", {}, h("b"), h("span")), h("dd", { class: "n" }));
  sync(strip, stripOf(snapshot), ([name]) => name, create, (cell, [name, value, unit, note]) => {
    const [dt, dd, n] = [...cell.children];
    setText(dt, name);
    setText(dd.children[0], value);
    setText(dd.children[1], value === NOTHING ? "" : unit);
    setText(n, note);
  });
  setShown(byId("strip-untrusted"), !snapshot.trusted);
}

/** What the run is held to, why calls failed, and whether every call is accounted for. */

/** @import { Account, Assertion, Snapshot, View } from "./types.d.ts" */
import { byId, h, icon, setAttribute, setClass, setShown, setStyle, setText, spoken, sync } from "./dom.js";
import { count, exact, number } from "./format.js";

const WORDS = {
  passing: { kind: "good", word: "passing", tag: "pass" },
  failing: { kind: "bad", word: "failing", tag: "failing" },
  open: { kind: "mute", word: "open", tag: "open" },
  cant_tell: { kind: "warn", word: "can’t tell", tag: "can’t tell" },
};
const ORDER = /** @type {const} */ (["failing", "cant_tell", "passing", "open"]);

/** @param {View} view */
export function drawVerdicts({ snapshot }) {
  if (!snapshot) return;
  drawAssertions(snapshot);
  drawReasons(snapshot);
  drawAccount(snapshot.account);
}

// --- assertions --------------------------------------------------------------------------------------------------

/** @param {Snapshot} snapshot */
function drawAssertions({ assertions, trusted }) {
  const n = (/** @type {string} */ state) => assertions.filter((each) => each.state === state).length;
  const tags = trusted
    ? ORDER.filter(n).map((state) => ({ kind: WORDS[state].kind, text: `${n(state)} ${WORDS[state].tag}` }))
    : [{ kind: "warn", text: "not trusted" }];
  sync(byId("assertion-tags"), tags, ({ kind }) => kind, () => h("span"), (tag, { kind, text }) => {
    setClass(tag, `tag ${kind}`);
    setText(tag, text);
  });
  setShown(byId("no-assertions"), assertions.length === 0);
  sync(byId("assertion-list"), assertions, ({ scenario, name, limit }) => [scenario, name, limit].join("\n"), createAssertion, (row, each) => {
    updateAssertion(row, each, trusted);
  });
}

/** @param {Assertion} assertion */
function createAssertion({ name, limit, scenario }) {
  const relation = `${name.startsWith("min_") ? "≥" : "≤"} ${exact(limit)}`;
  const title = h("span", { class: "name" }, h("code", {}, name), " ", h("span", { class: "dim" }, relation));
  if (scenario !== null) title.append(" ", h("small", {}, scenario));
  return h(
    "li",
    {},
    h("span", { class: "sign" }),
    title,
    h("span", { class: "value" }),
    h("span", { class: "meter", "aria-hidden": "true" }, h("i"), h("u")),
    h("small", { class: "note" }),
  );
}

/** @param {Element} row @param {Assertion} assertion @param {boolean} trusted */
function updateAssertion(row, assertion, trusted) {
  const { kind, word } = trusted ? WORDS[assertion.state] : { kind: "mute", word: "not trusted" };
  const [sign, , value, meter, note] = /** @type {HTMLElement[]} */ ([...row.children]);
  if (row.className !== kind) {
    setClass(row, kind);
    sign.replaceChildren(icon(kind), spoken(word));
  }
  setText(value, valueOf(assertion, assertion.actual));
  const canTell = assertion.state !== "cant_tell";
  setText(note, canTell ? "" : `of reliable turns alone: ${valueOf(assertion, assertion.actual_reliable)}`);
  setShown(note, !canTell);
  const place = placeOf(assertion);
  setShown(meter, place !== null);
  if (!place) return;
  setStyle(/** @type {HTMLElement} */ (meter.children[0]), "width", `${place.actual.toFixed(1)}%`);
  setStyle(/** @type {HTMLElement} */ (meter.children[1]), "left", `${place.limit.toFixed(1)}%`);
}

/**
 * A value held against its limit. It is rounded only as far as one still sees on which side it lies.
 * @param {Pick<Assertion, "name" | "limit">} assertion
 * @param {number | null} value
 */
export function valueOf({ name, limit }, value) {
  if (value === null) return "nothing measured";
  if (!name.endsWith("_ms")) return exact(value);
  const isClear = Math.abs(value) >= 100 && Math.round(value) !== Math.round(limit);
  return `${isClear ? number(value) : exact(value)} ms`;
}

/** Where a limit lies on its meter, unless the value is far beyond. */
const LIMIT_AT = 85;

/**
 * Where value and limit lie on a meter of 100; null without a value. Lower limits are on shares, whose scale ends at 1.
 * @param {Assertion} assertion
 */
export function placeOf({ name, limit, actual }) {
  if (actual === null) return null;
  const within = (/** @type {number} */ value) => Math.min(100, Math.max(0, value));
  if (name.startsWith("min_")) return { actual: within(100 * actual), limit: within(100 * limit) };
  if (limit <= 0) return { actual: actual > limit ? 100 : 0, limit: 0 };
  const full = Math.max((100 / LIMIT_AT) * limit, actual);
  return { actual: within((100 * actual) / full), limit: within((100 * limit) / full) };
}

// --- failures ----------------------------------------------------------------------------------------------------

/** @param {Snapshot} snapshot */
function drawReasons({ reasons, account }) {
  setText(byId("no-reasons"), account.started ? "No call has failed." : "No calls yet.");
  setShown(byId("no-reasons"), reasons.length === 0);
  const create = () => h("li", {}, h("span", { class: "name" }), h("span", { class: "value" }), h("small"));
  sync(byId("reason-list"), reasons, ({ reason }) => reason, create, (row, { reason, n, detail }) => {
    const [name, value, first] = /** @type {HTMLElement[]} */ ([...row.children]);
    setText(name, reason.replaceAll("_", " "));
    setText(value, number(n));
    setText(first, detail ?? "");
    setShown(first, detail !== null);
  });
}

// --- accounting --------------------------------------------------------------------------------------------------

const PARTS = /** @type {const} */ (["live", "finished", "failed", "cut", "lost"]);

/** @param {Account} account */
function drawAccount(account) {
  const { started, missing, maybe_started: maybe } = account;
  const sum = PARTS.map((part) => `${number(account[part])} ${part}`).join(" + ");
  setText(byId("account-sum"), ` started ${missing ? "≠" : "="} ${sum}`);
  setText(byId("account-started"), number(started));
  setShown(byId("account-maybe"), maybe > 0);
  setText(byId("account-maybe"), `Lost workers may have started ${maybe === 1 ? "one more" : `up to ${number(maybe)} more`}, of which nobody heard.`);
  setShown(byId("account-wrong"), missing !== 0);
  setText(byId("account-wrong"), `The sum does not hold: ${count(Math.abs(missing), "call")} ${missing > 0 ? "missing" : "too many"}. This is a fault of voicebench.`);
  setClass(byId("account-line"), missing ? "wrong" : "");
  const bar = byId("account-bar");
  const parts = PARTS.filter((part) => account[part] > 0);
  sync(bar, parts, (part) => part, (part) => h("i", { class: part }), (element, part) => {
    setStyle(/** @type {HTMLElement} */ (element), "flexGrow", String(account[part]));
  });
  setAttribute(bar, "aria-label", `${number(started)} started ${missing ? "is not" : "="} ${sum}`);
}

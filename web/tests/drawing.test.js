import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { installDocument } from "./fake_dom.js";

const document = installDocument();
const { linePath, sync, h } = await import("../js/dom.js");
const { drawTurns } = await import("../js/tables.js");
const { placeOf, valueOf } = await import("../js/verdicts.js");
const { stripOf } = await import("../js/overview.js");

// The page's own headings of the groups.
for (const expect of ["respond", "stop", "ignore"]) document.getElementById(`turns-${expect}`).append(h("tr"));

const sources = new URL("../", import.meta.url);
const read = (path) => readFileSync(new URL(path, sources), "utf8");
const modules = readdirSync(new URL("js/", sources)).filter((name) => name.endsWith(".js"));

const turn = (more) => ({
  scenario: "refund",
  id: "greeting",
  position: 1,
  expect: "respond",
  audio: "hello.wav",
  text: null,
  limit_ms: 8000,
  played: 10,
  good: 9,
  missed: 1,
  false_barge_ins: 0,
  spurious_responses: 0,
  times_ms: { count: 9, p50: 700, p90: 900, p95: 1000, p99: 1100 },
  ttfa_p95_ms: null,
  mean_wer: null,
  p95_over_time: null,
  over: [],
  ...more,
});

test("what a turn is called is text, whatever it looks like", () => {
  const id = "<img src=x onerror=alert(1)>";
  drawTurns([turn({ id, audio: "<b>", text: "<script>" })]);
  const body = document.getElementById("turns-respond");
  assert.equal(body.all("img").length, 0);
  assert.equal(body.all("b")[0].textContent, id);
});

test("a row is the same one as long as its turn is, and goes with it", () => {
  const body = document.getElementById("turns-respond");
  drawTurns([turn({ id: "a" }), turn({ id: "b" })]);
  const [, first, second] = body.children;
  drawTurns([turn({ id: "a", played: 11 }), turn({ id: "b" })]);
  assert.deepEqual(body.children.slice(1), [first, second]);
  assert.equal(first.children[2].textContent, "11");
  drawTurns([turn({ id: "b" })]);
  assert.deepEqual(body.children.slice(1), [second]);
});

test("what a turn lacks is a dash", () => {
  drawTurns([turn({ id: "new", played: 0, good: 0, missed: 0, times_ms: { count: 0, p50: null, p90: null, p95: null, p99: null } })]);
  const cells = document.getElementById("turns-respond").all("td").map((cell) => cell.textContent);
  assert.deepEqual(cells, ["–", "0", "0", "–", "–", "–", "–", "–", "–", ""]);
});

test("children are kept by key, in the order of the items", () => {
  const list = h("ul");
  const draw = (keys) => sync(list, keys, (key) => key, (key) => h("li", {}, key), () => {});
  draw(["a", "b", "c"]);
  const [a, b, c] = list.children;
  draw(["c", "a", "d"]);
  assert.deepEqual(list.children.map((child) => child.textContent), ["c", "a", "d"]);
  assert.equal(list.children[0], c);
  assert.equal(list.children[1], a);
  assert.equal(b.isConnected, false);
});

test("gaps in a line stay gaps", () => {
  const box = { width: 12, height: 12, pad: 1, high: 10 };
  assert.equal(linePath([0, 10, null, 10, 0], box), "M1.0 11.0L3.5 1.0M8.5 1.0L11.0 11.0");
  assert.equal(linePath([null, 5, null], box), "M6.0 6.0h1");
  assert.equal(linePath([], box), "");
});

test("a value and its limit on the meter", () => {
  const place = (name, limit, actual) => placeOf({ name, limit, actual });
  assert.equal(place("p95_ttfa_ms", 1000, null), null);
  const near = place("p95_ttfa_ms", 1000, 500);
  assert.ok(near.actual < near.limit && near.limit < 100);
  const beyond = place("p95_ttfa_ms", 1000, 4000);
  assert.equal(beyond.actual, 100);
  assert.equal(beyond.limit, 25);
  assert.deepEqual(place("min_barge_in_success_rate", 0.95, 0.5), { actual: 50, limit: 95 });
  assert.deepEqual(place("max_talk_overs", 0, 0), { actual: 0, limit: 0 });
  assert.deepEqual(place("max_talk_overs", 0, 2), { actual: 100, limit: 0 });
});

test("a value just beyond its limit is not rounded onto it", () => {
  assert.equal(valueOf({ name: "p95_ttfa_ms", limit: 1500 }, 1500.4), "1,500.4 ms");
  assert.equal(valueOf({ name: "p95_ttfa_ms", limit: 1500 }, 1548.2), "1,548 ms");
  assert.equal(valueOf({ name: "max_wer", limit: 0.15 }, 0.064), "0.064");
  assert.equal(valueOf({ name: "max_wer", limit: 0.15 }, null), "nothing measured");
});

test("before the first call nothing in the strip is 0 %", () => {
  const none = { count: 0, p50: null, p90: null, p95: null, p99: null };
  const summary = {
    response_latency_ms: none,
    ttfa_ms: none,
    barge_in_stop_ms: none,
    missed_responses: 0,
    talk_overs: 0,
    noise_turns: 0,
    false_barge_ins: 0,
    spurious_responses: 0,
    mean_wer: null,
    pooled_wer: null,
    unreliable_turns: 0,
    unreliable_turn_rate: null,
    failed_session_rate: null,
  };
  const account = { started: 0, live: 0, finished: 0, failed: 0, cut: 0, lost: 0 };
  const strip = stripOf({ summary, account, frame_lateness_ms: { count: 0, p99: null } });
  assert.equal(strip.length, 8);
  for (const [name, value] of strip) assert.equal(value, "–", name);
});

test("the sources keep to the page's policy", () => {
  for (const name of modules) {
    assert.doesNotMatch(read(`js/${name}`), /innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function/, name);
  }
  const page = read("index.html");
  assert.doesNotMatch(page, /\sstyle=|\son\w+=|<style|javascript:/i);
  assert.doesNotMatch(page, /<script(?![^>]*\ssrc=)/i);
  assert.doesNotMatch(page, /(?:src|href)="(?:https?:)?\/\//i);
});

test("every module is loaded ahead, and no file is asked for that is not there", () => {
  const page = read("index.html");
  for (const name of modules) assert.ok(page.includes(`js/${name}`), name);
  const asked = [...page.matchAll(/(?:src|href)="([^"#]+)"/g)].map(([, path]) => path).filter((path) => !path.startsWith("data:"));
  for (const path of asked) assert.ok(read(path).length, path);
  assert.ok(asked.length + 1 <= 14, "with the page itself");
});

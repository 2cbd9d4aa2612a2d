import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_EVENTS, Store, UnknownVersion, bannersOf, hasEnded, mergedEvents, mergedTimeline, pillOf } from "../js/store.js";

const timeline = (...live) => ({ window_s: 5, t_s: live.map((_, at) => 5 * at), live });
const points = (from, ...live) => ({ from, window_s: 5, t_s: live.map((_, at) => 5 * (from + at)), live });
const events = (...numbers) => numbers.map((n) => ({ n, t_s: n, event: "join", detail: "", kind: "good" }));
const snapshot = (seq, more = {}) => ({
  version: 1,
  seq,
  run_id: "run",
  state: "steady",
  pill: { text: "Steady", kind: "good", live: true },
  banners: [],
  new_events: [],
  points: null,
  reload: false,
  ...more,
});
const history = (seq, more = {}) => ({
  version: 1,
  csrf: "token",
  run: { id: "run" },
  turns: { rows: [] },
  timeline: timeline(1, 2, 3),
  events: events(1, 2),
  snapshot: snapshot(seq),
  ...more,
});
const loaded = (...args) => {
  const store = new Store();
  store.takeHistory(history(...args));
  return store;
};

// --- the timeline

test("points replace the end of the timeline and add to it", () => {
  const merged = mergedTimeline(timeline(1, 2, 3), points(2, 30, 40));
  assert.deepEqual(merged.live, [1, 2, 30, 40]);
  assert.deepEqual(merged.t_s, [0, 5, 10, 15]);
  assert.equal("from" in merged, false);
});

test("merging leaves the timeline before as it was", () => {
  const before = timeline(1, 2, 3);
  mergedTimeline(before, points(1, 9));
  assert.deepEqual(before.live, [1, 2, 3]);
});

test("points from the first window on are all of it, whatever was there before", () => {
  const merged = mergedTimeline(null, { ...points(0, 7), window_s: 10 });
  assert.deepEqual(merged, { window_s: 10, t_s: [0], live: [7] });
});

test("points that follow directly are taken, those beyond a hole are not", () => {
  assert.deepEqual(mergedTimeline(timeline(1, 2), points(2, 3)).live, [1, 2, 3]);
  assert.equal(mergedTimeline(timeline(1, 2), points(3, 4)), null);
  assert.equal(mergedTimeline(null, points(1, 4)), null);
});

test("windows of another length do not go together", () => {
  assert.equal(mergedTimeline(timeline(1, 2, 3), { ...points(1, 9), window_s: 10 }), null);
});

test("nulls in a column stay nulls", () => {
  assert.deepEqual(mergedTimeline(timeline(1, null), points(2, null, 4)).live, [1, null, null, 4]);
});

// --- the events

test("an event is taken once", () => {
  assert.deepEqual(mergedEvents(events(1, 2), events(2, 3)).map(({ n }) => n), [1, 2, 3]);
});

test("without new events the list is the same one", () => {
  const before = events(1, 2);
  assert.equal(mergedEvents(before, events(1)), before);
  assert.equal(mergedEvents(before, []), before);
});

test("only the last events are kept", () => {
  const all = Array.from({ length: MAX_EVENTS }, (_, at) => at + 1);
  const merged = mergedEvents(events(...all), events(MAX_EVENTS + 1));
  assert.equal(merged.length, MAX_EVENTS);
  assert.equal(merged[0].n, 2);
});

// --- snapshots

test("a snapshot that follows is all that is needed", () => {
  const store = loaded(7);
  assert.equal(store.takeSnapshot(snapshot(8, { points: points(3, 4), new_events: events(3) })), false);
  assert.deepEqual(store.view.timeline.live, [1, 2, 3, 4]);
  assert.equal(store.view.events.length, 3);
});

test("a snapshot that was seen before changes nothing", () => {
  const store = loaded(7);
  assert.equal(store.takeSnapshot(snapshot(7, { state: "done" })), false);
  assert.equal(store.view.snapshot.state, "steady");
});

test("after a hole everything is asked for, until it has come", () => {
  const store = loaded(7);
  assert.equal(store.takeSnapshot(snapshot(9, { points: points(3, 4) })), true);
  assert.equal(store.view.snapshot.seq, 9, "its numbers are shown all the same");
  assert.deepEqual(store.view.timeline.live, [1, 2, 3], "its points are not");
  assert.equal(store.takeSnapshot(snapshot(10, { points: points(3, 5) })), true);
  store.takeHistory(history(10, { timeline: timeline(1, 2, 3, 5) }));
  assert.equal(store.takeSnapshot(snapshot(11)), false);
});

test("what the master asks to be loaded again, and what can't be put together, is asked for", () => {
  assert.equal(loaded(7).takeSnapshot(snapshot(8, { reload: true })), true);
  assert.equal(loaded(7).takeSnapshot(snapshot(8, { points: points(9, 1) })), true);
});

test("a snapshot of another run is not mixed with this one", () => {
  const store = loaded(7);
  assert.equal(store.takeSnapshot(snapshot(8, { run_id: "next", state: "idle" })), true);
  assert.equal(store.view.snapshot.run_id, "run");
  store.takeHistory(history(1, { run: { id: "next" }, snapshot: snapshot(1, { run_id: "next" }) }));
  assert.equal(store.view.run.id, "next");
  assert.equal(store.takeSnapshot(snapshot(2, { run_id: "next" })), false);
});

test("an answer that is older than what came meanwhile does not turn time back", () => {
  const store = loaded(7);
  store.takeSnapshot(snapshot(9));
  store.takeSnapshot(snapshot(10, { points: points(3, 4), new_events: events(3) }));
  store.takeHistory(history(9));
  assert.equal(store.view.snapshot.seq, 10);
  assert.deepEqual(store.view.timeline.live, [1, 2, 3, 4]);
  assert.equal(store.view.events.length, 3);
});

test("another version is refused", () => {
  assert.throws(() => new Store().takeHistory(history(1, { version: 2 })), UnknownVersion);
  assert.throws(() => loaded(7).takeSnapshot(snapshot(8, { version: 2 })), UnknownVersion);
});

// --- what is said

const banner = (what) => ({ what, kind: "info", title: what, text: "" });
const viewed = (link, more) => ({ ...loaded(7).view, link, age_s: 40, snapshot: snapshot(7, more) });

test("the pill is the master's while it is heard", () => {
  assert.equal(pillOf(viewed("live")).text, "Steady");
  assert.equal(pillOf(viewed("polling")).text, "Steady");
  assert.equal(pillOf(new Store().view).text, "Connecting");
});

test("without news the pill is grey and still, whatever it was", () => {
  const overloaded = { pill: { text: "Generator overloaded", kind: "bad", live: true } };
  assert.deepEqual(pillOf(viewed("down", overloaded)), { text: "Not connected", kind: "mute", live: false });
});

test("that there is no news comes after overload and loss, and before the rest", () => {
  const banners = ["overloaded", "lost", "trouble", "stopping"].map(banner);
  const shown = bannersOf(viewed("down", { banners })).map(({ what }) => what);
  assert.deepEqual(shown, ["overloaded", "lost", "disconnected", "trouble", "stopping"]);
  assert.deepEqual(bannersOf(viewed("live", { banners })), banners);
});

test("the banner says how old the numbers are", () => {
  assert.match(bannersOf(viewed("down"))[0].title, /for 40 s$/);
  assert.match(bannersOf({ ...new Store().view, link: "down", age_s: 4 })[0].text, /^Nothing has been heard/);
});

test("a run that is over stays over when its master ends", () => {
  const view = viewed("down", { state: "done", pill: { text: "Done", kind: "good", live: false }, banners: [banner("done")] });
  assert.equal(pillOf(view).text, "Done");
  assert.deepEqual(bannersOf(view).map(({ what }) => what), ["done"]);
  assert.ok(hasEnded(view));
  assert.ok(!hasEnded(viewed("live", { state: "done" })));
});

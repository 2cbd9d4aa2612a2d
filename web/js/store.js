/** What the page knows, and what it says of it. No element of the page is touched here. */

/** @import { Banner, History, Link, Pill, Points, RunEvent, Snapshot, Timeline, Turns, View } from "./types.d.ts" */
import { duration } from "./format.js";

export const VERSION = 1;
export const MAX_EVENTS = 500;
const RECENT = 8;

/** The master speaks of things this page does not know. */
export class UnknownVersion extends Error {}

/**
 * The timeline with its end replaced. Null: this can't be put together, the whole of it is needed.
 * @param {Timeline | null} timeline
 * @param {Points} points
 * @returns {Timeline | null}
 */
export function mergedTimeline(timeline, points) {
  const { from, ...columns } = points;
  if (from === 0) return columns;
  // Windows that have become wider are others from the first on.
  if (!timeline || from > timeline.t_s.length || timeline.window_s !== points.window_s) return null;
  const merged = /** @type {any} */ ({ ...timeline });
  for (const [name, column] of Object.entries(columns)) {
    if (Array.isArray(column)) merged[name] = (merged[name] ?? []).slice(0, from).concat(column);
  }
  return merged;
}

/**
 * The events with new ones, each once, oldest first.
 * @param {RunEvent[]} events
 * @param {RunEvent[]} fresh
 */
export function mergedEvents(events, fresh) {
  const last = events.at(-1)?.n ?? 0;
  const added = fresh.filter((event) => event.n > last);
  return added.length ? events.concat(added).slice(-MAX_EVENTS) : events;
}

export class Store {
  constructor() {
    /** @type {View} */
    this.view = {
      link: "connecting",
      age_s: 0,
      run: null,
      snapshot: null,
      timeline: null,
      events: [],
      turns: [],
      edition: { timeline: 0, events: 0, turns: 0 },
    };
    this.csrf = "";
    /** What came while everything was asked for is newer than the answer, and is taken in again. @type {Snapshot[]} */
    this._recent = [];
    this._isIncomplete = false;
  }

  /** All of it anew. @param {History} history */
  takeHistory(history) {
    if (history.version !== VERSION) throw new UnknownVersion();
    this.csrf = history.csrf;
    this.view.run = history.run;
    this.view.snapshot = history.snapshot;
    this.view.timeline = history.timeline;
    this.view.events = history.events;
    this.view.turns = history.turns.rows;
    const { edition } = this.view;
    edition.timeline++;
    edition.events++;
    edition.turns++;
    this._isIncomplete = false;
    const newer = this._recent.filter((each) => each.run_id === history.snapshot.run_id);
    this._recent = [];
    for (const snapshot of newer) this.takeSnapshot(snapshot);
  }

  /**
   * One more snapshot.
   * @param {Snapshot} snapshot
   * @returns {boolean} whether something is missing between the last and this one, so that all has to be asked for
   */
  takeSnapshot(snapshot) {
    if (snapshot.version !== VERSION) throw new UnknownVersion();
    const { view } = this;
    const last = view.snapshot;
    if (!last || snapshot.run_id !== last.run_id) return true;
    if (snapshot.seq <= last.seq) return this._isIncomplete;
    this._recent = [...this._recent.slice(1 - RECENT), snapshot];
    view.snapshot = snapshot;
    const events = mergedEvents(view.events, snapshot.new_events);
    if (events !== view.events) view.edition.events++;
    view.events = events;
    if (snapshot.reload || snapshot.seq !== last.seq + 1) this._isIncomplete = true;
    if (!this._isIncomplete && snapshot.points) this._takePoints(snapshot.points);
    return this._isIncomplete;
  }

  /** @param {Points} points */
  _takePoints(points) {
    const timeline = mergedTimeline(this.view.timeline, points);
    if (!timeline) {
      this._isIncomplete = true;
      return;
    }
    this.view.timeline = timeline;
    this.view.edition.timeline++;
  }

  /** @param {Turns} turns */
  takeTurns(turns) {
    this.view.turns = turns.rows;
    this.view.edition.turns++;
  }

  /** @param {Link} link */
  setLink(link) {
    this.view.link = link;
  }
}

/** Whether what is shown is old: nobody knows how the run fares. A run that is over can't change any more. @param {View} view */
export const isDisconnected = (view) => view.link === "down" && view.snapshot?.state !== "done";

/** Whether the run is over and its master gone, as it should be. @param {View} view */
export const hasEnded = (view) => view.link === "down" && view.snapshot?.state === "done";

/**
 * The one word on the run. "Not connected" goes before all others: they would claim to be about now.
 * @param {View} view
 * @returns {Pill}
 */
export function pillOf(view) {
  if (isDisconnected(view)) return { text: "Not connected", kind: "mute", live: false };
  return view.snapshot?.pill ?? { text: "Connecting", kind: "mute", live: false };
}

const BEFORE_DISCONNECTED = ["overloaded", "lost"];

/**
 * The master's banners, and this page's own where it comes by weight.
 * @param {View} view
 * @returns {Banner[]}
 */
export function bannersOf(view) {
  const banners = view.snapshot?.banners ?? [];
  if (!isDisconnected(view)) return banners;
  const first = banners.filter((banner) => BEFORE_DISCONNECTED.includes(banner.what));
  const rest = banners.filter((banner) => !BEFORE_DISCONNECTED.includes(banner.what));
  return [...first, disconnectedBanner(view), ...rest];
}

/** @param {View} view @returns {Banner} */
function disconnectedBanner(view) {
  const age = duration(view.age_s);
  const again = "tries again after 1, 2 and 5 s, and then every 5 s";
  return {
    what: "disconnected",
    kind: "warn",
    title: `No news from the master for ${age}`,
    text: view.snapshot
      ? `The page shows the last snapshot, which is ${age} old, and ${again}. The run goes on without this page.`
      : `Nothing has been heard of it so far. The page ${again}.`,
  };
}

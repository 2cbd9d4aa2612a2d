/** How the page hears of the run: all of it once, then a stream; and how it says Start and Stop. */

/** @import { History, Link, Snapshot, Turns } from "./types.d.ts" */

/** Without a snapshot for so long the page no longer knows how the run fares. */
export const SILENCE_MS = 3000;
export const RETRY_MS = [1000, 2000, 5000];
export const POLL_MS = 2000;
/** So many streams that brought nothing, and there is something in between that lets none through. */
export const STREAM_FAILURES = 3;
const ANSWER_MS = 5000;
/** A stream that has holes all the time must not have the page ask for everything all the time. */
const RELOAD_EVERY_MS = 2000;

/**
 * What the transport needs of a browser; tests give it something else.
 * @typedef {object} Surroundings
 * @property {(url: string, init?: RequestInit) => Promise<Response>} fetch
 * @property {(url: string) => EventSource} openStream
 * @property {(run: () => void, ms: number) => number} setTimer
 * @property {(timer: number) => void} clearTimer
 * @property {() => number} now_ms
 */

/**
 * What it reports to. `snapshot` answers whether something is missing and all has to be asked for; `isOver`, whether no
 * more news is to be expected.
 * @typedef {object} Listener
 * @property {(history: History) => void} history
 * @property {(snapshot: Snapshot) => boolean} snapshot
 * @property {(turns: Turns) => void} turns
 * @property {(link: Link) => void} link
 * @property {() => boolean} isOver
 */

export class Transport {
  /** @param {Listener} listener @param {Surroundings} surroundings */
  constructor(listener, surroundings) {
    this._listener = listener;
    this._around = surroundings;
    /** @type {Link} */
    this._link = "connecting";
    /** @type {EventSource | null} */
    this._stream = null;
    /** @type {number | null} */
    this._timer = null;
    /** @type {number | null} */
    this._silence = null;
    this._tries = 0;
    this._streamFailures = 0;
    this._reloaded_ms = -Infinity;
    /** Answers to what was asked before the last stop are of no use. */
    this._round = 0;
    this._running = false;
    this.heard_ms = surroundings.now_ms();
  }

  /** Begin, or begin again: when the page is shown. */
  start() {
    if (this._running) return;
    this._running = true;
    this._tries = this._streamFailures = 0;
    this._watchSilence();
    this._connect();
  }

  /** When the page is hidden: browsers allow six streams to one address, and the seventh page would hang. */
  stop() {
    this._running = false;
    this._round++;
    this._closeStream();
    this._clear("_timer");
    this._clear("_silence");
  }

  /** Ask for everything once more. */
  async reload() {
    const now_ms = this._around.now_ms();
    if (now_ms - this._reloaded_ms < RELOAD_EVERY_MS) return;
    this._reloaded_ms = now_ms;
    const round = this._round;
    const history = await this._ask().catch(() => null);
    if (history && round === this._round) this._take(history);
  }

  /**
   * @param {"start" | "stop"} what
   * @param {object} body
   * @param {string} csrf
   * @throws {Error} with the master's sentence, when it refuses
   */
  async post(what, body, csrf) {
    const headers = { "Content-Type": "application/json", "X-CSRF-Token": csrf };
    let answer;
    try {
      answer = await this._around.fetch(`/api/${what}`, { method: "POST", headers, body: JSON.stringify(body) });
    } catch {
      throw new Error("The master can’t be reached. Nothing was changed.");
    }
    if (answer.ok) return;
    const refusal = await answer.json().catch(() => ({}));
    throw new Error(refusal.error ?? `The master refused it (${answer.status}).`);
  }

  async _connect() {
    const round = this._round;
    let history;
    try {
      history = await this._ask();
    } catch {
      if (round !== this._round) return;
      // The end of a run is the end of its master: that is no alarm, and nothing to wait three seconds for.
      if (this._listener.isOver()) this._setLink("down");
      this._retry();
      return;
    }
    if (round !== this._round) return;
    const isPolling = this._streamFailures >= STREAM_FAILURES;
    if (isPolling || !this._streamFailures) this._tries = 0;
    this._take(history);
    if (!this._running) return;
    if (isPolling) this._later(POLL_MS);
    else this._openStream();
  }

  /** @returns {Promise<History>} */
  async _ask() {
    const abort = new AbortController();
    const timer = this._around.setTimer(() => abort.abort(), ANSWER_MS);
    try {
      const answer = await this._around.fetch("/api/run", { cache: "no-store", signal: abort.signal });
      if (!answer.ok) throw new Error(`/api/run: ${answer.status}`);
      return await answer.json();
    } finally {
      this._around.clearTimer(timer);
    }
  }

  /** @param {History} history */
  _take(history) {
    this._heard();
    this._listener.history(history);
  }

  _openStream() {
    const stream = (this._stream = this._around.openStream("/api/events"));
    stream.addEventListener("snapshot", (event) => {
      this._tries = this._streamFailures = 0;
      this._heard();
      if (this._listener.snapshot(JSON.parse(event.data))) this.reload();
    });
    stream.addEventListener("turns", (event) => this._listener.turns(JSON.parse(event.data)));
    // The browser would try again by itself, at times of its own.
    stream.addEventListener("error", () => this._streamFailed());
  }

  _streamFailed() {
    this._closeStream();
    this._streamFailures++;
    if (this._streamFailures >= STREAM_FAILURES) this._later(0);
    else this._retry();
  }

  _closeStream() {
    this._stream?.close();
    this._stream = null;
  }

  _retry() {
    this._later(RETRY_MS[Math.min(this._tries++, RETRY_MS.length - 1)]);
  }

  /** @param {number} delay_ms */
  _later(delay_ms) {
    this._clear("_timer");
    this._timer = this._around.setTimer(() => this._connect(), delay_ms);
  }

  _heard() {
    this.heard_ms = this._around.now_ms();
    this._setLink(this._streamFailures >= STREAM_FAILURES ? "polling" : "live");
    this._watchSilence();
  }

  /** A connection may die without a word, so silence alone has to be enough. */
  _watchSilence() {
    this._clear("_silence");
    this._silence = this._around.setTimer(() => {
      if (this._listener.isOver()) return;
      this._setLink("down");
      if (this._stream) this._streamFailed();
    }, SILENCE_MS);
  }

  /** @param {Link} link */
  _setLink(link) {
    if (link === this._link) return;
    this._link = link;
    this._listener.link(link);
  }

  /** @param {"_timer" | "_silence"} name */
  _clear(name) {
    const timer = this[name];
    if (timer !== null) this._around.clearTimer(timer);
    this[name] = null;
  }
}

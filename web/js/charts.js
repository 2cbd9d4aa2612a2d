/** Three charts over run time that share their time axis and their cross-hair. */

/** @import { Column, RunEvent, Timeline, View } from "./types.d.ts" */
import { byId, h, setShown, setStyle, setText } from "./dom.js";
import { NOTHING, exact, ms, number, rate, runTime } from "./format.js";

/** Pixels left and right of all plots, so that the same instant lies at the same place in each. */
const LEFT = 54;
const RIGHT = 58;
const LAST_S = 300;
const EMPTY_S = 60;
const LABEL_PX = 15;
/** A limit so far above everything measured would flatten the lines: it is named at the top edge instead. */
const FAR_LIMIT = 2.5;
const TIME_STEPS_S = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000];
const PAGE_WINDOWS = 12;

/**
 * @typedef {object} Line
 * @property {keyof Timeline} key
 * @property {string} label at the line's end, and in the tip
 * @property {string} color name of a CSS variable
 * @property {number} [width]
 * @property {number[]} [dash]
 * @property {string} [scale]
 * @property {boolean} [isFilled]
 * @property {(value: unknown) => string} text
 * @property {string} unit
 */

/**
 * @typedef {object} Spec
 * @property {string} id
 * @property {number} height
 * @property {boolean} [isStacked] bars one upon the other instead of lines
 * @property {boolean} [hasLimits]
 * @property {boolean} [namesPhases]
 * @property {number} emptyTop of the scale, as long as nothing was measured
 * @property {Line[]} lines
 * @property {(view: View) => string} waiting what it waits for, or ""
 */

/** @param {Timeline | null} timeline @param {keyof Timeline} key */
const hasAny = (timeline, key) => /** @type {Column} */ (timeline?.[key] ?? []).some((value) => value !== null);

/** @type {Spec[]} */
const SPECS = [
  {
    id: "chart-latency",
    height: 300,
    hasLimits: true,
    namesPhases: true,
    emptyTop: 1000,
    lines: [
      { key: "p50_ms", label: "p50", color: "p50", width: 2, text: ms, unit: "ms" },
      { key: "p90_ms", label: "p90", color: "p90", width: 1.5, text: ms, unit: "ms" },
      { key: "p95_ms", label: "p95", color: "p95", width: 2.8, text: ms, unit: "ms" },
      { key: "p99_ms", label: "p99", color: "p99", width: 1.5, dash: [5, 3], text: ms, unit: "ms" },
    ],
    waiting: ({ timeline }) => (hasAny(timeline, "p50_ms") ? "" : "A percentile needs 20 answers within a minute"),
  },
  {
    id: "chart-calls",
    height: 136,
    emptyTop: 10,
    lines: [
      { key: "live", label: "calls", color: "calls", width: 2, isFilled: true, text: number, unit: "calls" },
      { key: "starts_per_s", label: "starts/s", color: "p90", width: 1.3, scale: "starts", text: rate, unit: "/s" },
    ],
    waiting: ({ timeline }) => (hasAny(timeline, "live") ? "" : "No calls yet"),
  },
  {
    id: "chart-wrong",
    height: 150,
    isStacked: true,
    emptyTop: 4,
    lines: [
      { key: "missed", label: "missed response", color: "p99", text: number, unit: "" },
      { key: "barge_in_failed", label: "barge-in failed", color: "both", text: number, unit: "" },
      { key: "false_barge_ins", label: "false barge-in", color: "p90", text: number, unit: "" },
      { key: "failed", label: "call failed", color: "bad", text: number, unit: "" },
    ],
    waiting: ({ timeline, snapshot }) => {
      const found = ["missed", "barge_in_failed", "false_barge_ins", "failed"].some((key) =>
        /** @type {Column} */ (timeline?.[/** @type {keyof Timeline} */ (key)] ?? []).some(Boolean),
      );
      return found ? "" : snapshot?.calls.started ? "Nothing has gone wrong so far" : "No calls yet";
    },
  },
];

/** Events that are worth a mark, and the shape of it. */
const MARKS = /** @type {Record<string, string>} */ ({ lost: "warn", unable: "warn", join: "ink2", left: "ink2" });

export class Charts {
  constructor() {
    /** @type {View | null} */
    this._view = null;
    this._edition = { timeline: -1, events: -1 };
    this._isRecent = false;
    /** Where the keys have put the cross-hair: it stays on its window when the axis moves on. */
    this._held_s = /** @type {number | null} */ (null);
    this._theme = readTheme();
    this._charts = SPECS.map((spec) => new Chart(spec, this));
    this._wireRange();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this._repaint());
  }

  get theme() {
    return this._theme;
  }

  get view() {
    return this._view;
  }

  /** @param {View} view */
  draw(view) {
    this._view = view;
    const { timeline, events } = view.edition;
    for (const chart of this._charts) chart.say(view);
    if (timeline === this._edition.timeline && events === this._edition.events) return;
    this._edition = { timeline, events };
    const window_s = view.timeline?.window_s;
    setText(byId("window-latency"), window_s ? `${exact(window_s)} s windows, caller’s side` : "");
    setText(byId("window-wrong"), window_s ? `per ${exact(window_s)} s` : "");
    for (const chart of this._charts) chart.setData(view);
    this._place();
  }

  /** What of the run the time axis shows. @returns {[number, number]} */
  span() {
    const { t_s: starts_s = [], window_s = 0 } = this._view?.timeline ?? {};
    const end_s = Math.max(EMPTY_S, (starts_s.at(-1) ?? 0) + window_s);
    return [this._isRecent ? Math.max(0, end_s - LAST_S) : 0, end_s];
  }

  /** The instants of the windows that are shown: the middle of each. */
  middles_s() {
    const { t_s: starts_s = [], window_s = 0 } = this._view?.timeline ?? {};
    return starts_s.map((start_s) => start_s + window_s / 2);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const steps = /** @type {Record<string, number>} */ ({
      ArrowLeft: -1,
      ArrowRight: 1,
      PageUp: -PAGE_WINDOWS,
      PageDown: PAGE_WINDOWS,
      Home: -Infinity,
      End: Infinity,
    });
    if (event.key === "Escape") return this.release();
    const step = steps[event.key];
    if (step === undefined || event.altKey || event.ctrlKey || event.metaKey) return undefined;
    event.preventDefault();
    const [from_s] = this.span();
    const shown = this.middles_s().filter((middle_s) => middle_s >= from_s);
    if (!shown.length) return undefined;
    const at = this._held_s === null ? shown.length - 1 - Math.sign(step) : shown.indexOf(this._held_s);
    const next = Math.max(0, Math.min(shown.length - 1, (at < 0 ? 0 : at) + step));
    this._held_s = shown[next];
    this._place();
    return this._held_s;
  }

  release() {
    this._held_s = null;
    for (const chart of this._charts) chart.hide();
    return undefined;
  }

  _place() {
    if (this._held_s === null) return;
    for (const chart of this._charts) chart.show(this._held_s);
  }

  _repaint() {
    this._theme = readTheme();
    for (const chart of this._charts) chart.repaint();
  }

  _wireRange() {
    const [recent, whole] = [byId("range-recent"), byId("range-whole")];
    const choose = (/** @type {boolean} */ isRecent) => {
      this._isRecent = isRecent;
      recent.setAttribute("aria-pressed", String(isRecent));
      whole.setAttribute("aria-pressed", String(!isRecent));
      this.release();
      if (this._view) for (const chart of this._charts) chart.setData(this._view);
    };
    recent.addEventListener("click", () => choose(true));
    whole.addEventListener("click", () => choose(false));
  }
}

class Chart {
  /** @param {Spec} spec @param {Charts} charts */
  constructor(spec, charts) {
    this._spec = spec;
    this._charts = charts;
    this._host = byId(spec.id);
    /** @type {uPlot | null} */
    this._plot = null;
    this._plotHost = h("div", { class: "plot", "aria-hidden": "true" });
    this._waiting = h("p", { class: "waiting" }, h("span"));
    this._tip = h("div", { class: "tip", "aria-hidden": "true" }, h("b"));
    for (const line of spec.lines) {
      const name = h("span", {}, h("i", { class: `swatch ${line.color}` }), line.label);
      this._tip.append(h("div", {}, name, h("b")));
    }
    this._tip.append(h("small"));
    this._host.append(this._plotHost, this._waiting, this._tip);
    this._host.addEventListener("keydown", (event) => {
      const at_s = charts.key(event);
      if (at_s !== undefined) setText(byId("reading"), this._reading(at_s));
    });
    this._host.addEventListener("blur", () => charts.release());
    new ResizeObserver(() => this._fit()).observe(this._host);
  }

  // --- data --------------------------------------------------------------------------------------------------------

  /** @param {View} view */
  say(view) {
    const waiting = this._spec.waiting(view);
    setText(/** @type {Element} */ (this._waiting.firstElementChild), waiting);
    setShown(this._waiting, waiting !== "");
  }

  /** @param {View} view */
  setData(view) {
    this._plot?.setData(this._dataOf(view));
  }

  repaint() {
    // Bars keep the colours that their paths were made with.
    this._plot?.redraw(true, true);
  }

  /** @param {View | null} view @returns {uPlot.AlignedData} */
  _dataOf(view) {
    const middles_s = this._charts.middles_s();
    const columns = this._spec.lines.map(({ key }) => /** @type {Column} */ (view?.timeline?.[key] ?? []));
    if (!this._spec.isStacked) return /** @type {uPlot.AlignedData} */ ([middles_s, ...columns]);
    // The highest is drawn first, and what stands below it is drawn over it.
    const sums = columns.map((_, of) => middles_s.map((_, at) => sum(columns.slice(0, of + 1).map((each) => each[at]))));
    return /** @type {uPlot.AlignedData} */ ([middles_s, ...sums.reverse()]);
  }

  _fit() {
    const width = this._host.clientWidth;
    // A card that is not shown has no width, and its chart has to wait.
    if (width < 100) return;
    const height = width < 480 ? Math.round(0.86 * this._spec.height) : this._spec.height;
    if (!this._plot) this._plot = new uPlot(this._options(width, height), this._dataOf(this._charts.view), this._plotHost);
    else if (this._plot.width !== width) this._plot.setSize({ width, height });
  }

  // --- the cross-hair ----------------------------------------------------------------------------------------------

  /** @param {number} at_s */
  show(at_s) {
    const plot = this._plot;
    if (plot) plot.setCursor({ left: plot.valToPos(at_s, "x"), top: 10 });
  }

  hide() {
    this._plot?.setCursor({ left: -10, top: -10 });
  }

  /** @param {uPlot} plot */
  _drawTip(plot) {
    const { idx, left = -1 } = plot.cursor;
    const isShown = idx != null && left >= 0;
    this._tip.classList.toggle("on", isShown);
    if (!isShown) return;
    const rows = /** @type {HTMLElement[]} */ ([...this._tip.children]);
    setText(rows[0], this._windowName(idx));
    this._spec.lines.forEach((line, at) => setText(rows[at + 1].children[1], this._valueOf(line, idx)));
    const events = this._eventsOf(idx);
    setText(rows[rows.length - 1], events);
    setShown(rows[rows.length - 1], events !== "");
    const width = this._tip.offsetWidth;
    const x = LEFT + left;
    setStyle(this._tip, "left", `${Math.max(0, x > 0.6 * plot.width ? x - width - 12 : x + 12)}px`);
  }

  /** @param {number} index */
  _windowName(index) {
    const { t_s: starts_s = [], window_s = 0 } = this._charts.view?.timeline ?? {};
    return `${runTime(starts_s[index])} to ${runTime(starts_s[index] + window_s)}`;
  }

  /** @param {Line} line @param {number} index */
  _valueOf(line, index) {
    const column = /** @type {Column} */ (this._charts.view?.timeline?.[line.key] ?? []);
    const text = line.text(column[index]);
    if (text === NOTHING) return line.key.startsWith("p") ? "too few values" : NOTHING;
    return `${text} ${line.unit}`.trim();
  }

  /** @param {number} index */
  _eventsOf(index) {
    const { t_s: starts_s = [], window_s = 0 } = this._charts.view?.timeline ?? {};
    const marks = marksOf(this._charts.view?.events ?? []);
    const own = marks.filter(({ t_s }) => t_s >= starts_s[index] && t_s < starts_s[index] + window_s);
    return own.map(({ event, detail }) => `${event}: ${detail}`).join("; ");
  }

  /** The values at the cross-hair in words. @param {number} at_s */
  _reading(at_s) {
    const index = this._charts.middles_s().indexOf(at_s);
    const values = this._spec.lines.map((line) => `${line.label} ${this._valueOf(line, index)}`);
    const events = this._eventsOf(index);
    return `${this._windowName(index)}: ${values.join(", ")}${events && `; ${events}`}`;
  }

  // --- drawing -----------------------------------------------------------------------------------------------------

  /** @param {number} width @param {number} height @returns {uPlot.Options} */
  _options(width, height) {
    const color = (/** @type {string} */ name) => () => this._charts.theme.colors[name];
    const { isStacked, lines } = this._spec;
    const font = this._charts.theme.font;
    const axis = { stroke: color("dim"), font, ticks: { show: false } };
    const range = (/** @type {uPlot} */ plot, /** @type {number} */ low, /** @type {number} */ high) => this._yRange(plot, low, high);
    return {
      width,
      height,
      padding: [12, RIGHT, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: false, y: false, setScale: false },
        sync: { key: "run time", setSeries: false },
        points: isStacked ? { show: false } : { size: 7, width: 1.6, stroke: color("card") },
        bind: { dblclick: () => null },
        move: (plot, left, top) => (left < 0 ? [left, top] : [plot.valToPos(plot.data[0][plot.posToIdx(left)] ?? 0, "x"), top]),
      },
      scales: {
        x: { time: false, range: () => this._charts.span() },
        y: { range },
        starts: { range: (_, low, high) => [0, Math.max(1, 2.4 * (high ?? 0))] },
      },
      axes: [
        { ...axis, size: 28, gap: 6, space: 64, grid: { show: false }, incrs: TIME_STEPS_S, values: (_, at) => at.map(runTime) },
        {
          ...axis,
          size: LEFT,
          gap: 8,
          space: this._spec.height > 200 ? 42 : 36,
          incrs: WHOLE_STEPS,
          grid: { stroke: color("grid"), width: 1 },
          values: (_, at) => at.map((value) => number(value)),
        },
      ],
      series: [{}, ...(isStacked ? [...lines].reverse().map((line) => this._bars(line)) : lines.map((line) => this._line(line)))],
      bands: this._spec.hasLimits ? [{ series: [3, 1], fill: () => this._charts.theme.faint.p95 }] : [],
      hooks: {
        drawClear: [(plot) => this._shadePhases(plot)],
        draw: [(plot) => this._drawOver(plot)],
        setCursor: [(plot) => this._drawTip(plot)],
      },
    };
  }

  /** @param {Line} line @returns {uPlot.Series} */
  _line({ color, width, dash, scale = "y", isFilled }) {
    const { theme } = this._charts;
    return {
      scale,
      stroke: () => this._charts.theme.colors[color],
      width: width ?? 2,
      dash,
      fill: isFilled ? () => this._charts.theme.faint[color] ?? theme.colors[color] : undefined,
      points: { show: (_, __, from, to) => to - from < 2, size: 4 },
    };
  }

  /** @param {Line} line @returns {uPlot.Series} */
  _bars({ color }) {
    return {
      fill: () => this._charts.theme.colors[color],
      width: 0,
      points: { show: false },
      paths: uPlot.paths.bars?.({ size: [0.8, 24] }),
    };
  }

  /** @param {uPlot} plot @param {number | null} low @param {number | null} high @returns {[number, number]} */
  _yRange(plot, low, high) {
    const { emptyTop, isStacked } = this._spec;
    const limits = this._limits().filter(({ limit }) => high === null || limit <= FAR_LIMIT * high);
    const top = Math.max(high ?? 0, ...limits.map(({ limit }) => limit)) || emptyTop;
    // Talk-over makes latencies negative.
    const bottom = Math.min(0, low ?? 0);
    return [bottom, isStacked ? Math.max(emptyTop, Math.ceil(1.1 * top)) : 1.08 * top];
  }

  /** The plan's limits on percentiles of the whole run. */
  _limits() {
    if (!this._spec.hasLimits) return [];
    return (this._charts.view?.run?.limits ?? []).flatMap(({ name, limit, scenario }) => {
      const percentile = /^(p[\d.]+)_response_latency_ms$/.exec(name)?.[1];
      return percentile && scenario === null ? [{ percentile, limit }] : [];
    });
  }

  /** The phases of the plan, as far as they are in sight. @param {uPlot} plot */
  _phases(plot) {
    const [from_s, end_s] = this._charts.span();
    return (this._charts.view?.run?.phases ?? []).flatMap((phase) => {
      const ends_s = [Math.max(from_s, phase.from_s), Math.min(end_s, phase.to_s ?? Infinity)];
      if (ends_s[0] >= ends_s[1]) return [];
      const [left, right] = ends_s.map((at_s) => plot.valToPos(at_s, "x", true) / devicePixelRatio);
      return [{ phase, left, right }];
    });
  }

  /** @param {uPlot} plot */
  _shadePhases(plot) {
    const { ctx, bbox } = plot;
    const px = devicePixelRatio;
    ctx.save();
    ctx.fillStyle = this._charts.theme.shade;
    for (const { phase, left, right } of this._phases(plot)) {
      if (phase.name === "ramp") ctx.fillRect(left * px, bbox.top, (right - left) * px, bbox.height);
    }
    ctx.restore();
  }

  /** @param {uPlot} plot */
  _drawOver(plot) {
    plot.ctx.save();
    if (this._spec.namesPhases) this._namePhases(plot);
    this._drawLimits(plot);
    this._drawMarks(plot);
    if (!this._spec.isStacked) this._drawLabels(plot);
    plot.ctx.restore();
  }

  /** @param {uPlot} plot */
  _namePhases(plot) {
    const { dim } = this._charts.theme.colors;
    const y = plot.bbox.top / devicePixelRatio + 12;
    for (const { phase, left, right } of this._phases(plot)) {
      const name = phase.name === "ramp" ? "ramp" : `${phase.name} ${number(phase.calls)}`;
      this._write(plot, name, left + 8, y, { color: dim, isOnLines: true, room: right - left - 12 });
    }
  }

  /** @param {uPlot} plot */
  _drawLimits(plot) {
    const { bbox } = plot;
    const px = devicePixelRatio;
    const { bad } = this._charts.theme.colors;
    const top = bbox.top / px;
    for (const { percentile, limit } of this._limits()) {
      const y = plot.valToPos(limit, "y", true) / px;
      const isFar = y < top;
      if (!isFar) this._rule(plot, [bbox.left / px, y], [(bbox.left + bbox.width) / px, y], { color: bad, dash: [5, 4], width: 1.5 });
      const text = `${percentile} limit ${exact(limit)}${isFar ? ", above" : ""}`;
      // Not upon the names of the phases, which stand at the top edge.
      const textY = isFar ? top + 28 : y < top + 28 ? y + 10 : y - 8;
      this._write(plot, text, bbox.left / px + 8, textY, { color: bad, isBold: true, isOnLines: true });
    }
  }

  /** @param {uPlot} plot */
  _drawMarks(plot) {
    const { bbox, ctx } = plot;
    const px = devicePixelRatio;
    const [from_s, end_s] = this._charts.span();
    const [top, bottom] = [bbox.top / px, (bbox.top + bbox.height) / px];
    for (const { t_s, event } of marksOf(this._charts.view?.events ?? [])) {
      if (t_s < from_s || t_s > end_s) continue;
      const color = this._charts.theme.colors[MARKS[event]];
      const x = plot.valToPos(t_s, "x", true) / px;
      this._rule(plot, [x, top], [x, bottom], { color, dash: [2, 3], width: 1.3 });
      // Down for what went, up for what came.
      const [flat, tip] = event === "join" ? [top + 2, top - 5] : [top - 5, top + 2];
      ctx.fillStyle = color;
      ctx.beginPath();
      ctx.moveTo((x - 5) * px, flat * px);
      ctx.lineTo((x + 5) * px, flat * px);
      ctx.lineTo(x * px, tip * px);
      ctx.fill();
    }
  }

  /** Each line's name where it ends, moved apart where they would overlap. @param {uPlot} plot */
  _drawLabels(plot) {
    const px = devicePixelRatio;
    const x = (plot.bbox.left + plot.bbox.width) / px + 7;
    const [from_s] = this._charts.span();
    const labels = this._spec.lines.flatMap((line, at) => {
      const values = plot.data[at + 1] ?? [];
      const last = /** @type {Column} */ (values).findLastIndex((value) => value !== null);
      if (last < 0 || plot.data[0][last] < from_s) return [];
      return [{ line, y: plot.valToPos(/** @type {number} */ (values[last]), line.scale ?? "y", true) / px }];
    });
    labels.sort((a, b) => a.y - b.y);
    labels.forEach((label, at) => {
      if (at) label.y = Math.max(label.y, labels[at - 1].y + LABEL_PX);
      this._write(plot, label.line.label, x, label.y, { color: this._charts.theme.colors[label.line.color], isBold: true });
    });
  }

  /**
   * @param {uPlot} plot
   * @param {string} text
   * @param {number} x
   * @param {number} y its middle
   * @param {{ color: string, isBold?: boolean, isOnLines?: boolean, room?: number }} look
   */
  _write({ ctx }, text, x, y, { color, isBold = false, isOnLines = false, room = Infinity }) {
    const px = devicePixelRatio;
    const { family, colors } = this._charts.theme;
    ctx.font = `${isBold ? "620 " : ""}${12 * px}px ${family}`;
    if (ctx.measureText(text).width > room * px) return;
    ctx.textAlign = "left";
    ctx.textBaseline = "middle";
    if (isOnLines) {
      ctx.lineJoin = "round";
      ctx.setLineDash([]);
      ctx.lineWidth = 4 * px;
      ctx.strokeStyle = colors.card;
      ctx.strokeText(text, x * px, y * px);
    }
    ctx.fillStyle = color;
    ctx.fillText(text, x * px, y * px);
  }

  /**
   * @param {uPlot} plot
   * @param {[number, number]} from
   * @param {[number, number]} to
   * @param {{ color: string, dash: number[], width: number }} look
   */
  _rule({ ctx }, from, to, { color, dash, width }) {
    const px = devicePixelRatio;
    ctx.strokeStyle = color;
    ctx.lineWidth = width * px;
    ctx.setLineDash(dash.map((length) => length * px));
    ctx.beginPath();
    ctx.moveTo(from[0] * px, from[1] * px);
    ctx.lineTo(to[0] * px, to[1] * px);
    ctx.stroke();
  }
}

/** The workers that are there when the run begins are no news. @param {RunEvent[]} events */
const marksOf = (events) => events.filter(({ event, t_s }) => MARKS[event] && (event !== "join" || t_s > 0));

/** @param {(number | null | undefined)[]} values */
const sum = (values) => values.reduce((total, value) => /** @type {number} */ (total) + (value ?? 0), 0);

const COLORS = ["p50", "p90", "p95", "p99", "calls", "both", "bad", "warn", "dim", "ink2", "grid", "card"];

/** A canvas knows no CSS variables: what they are now. */
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const value = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const family = getComputedStyle(document.body).fontFamily;
  return {
    family,
    font: `12px ${family}`,
    colors: /** @type {Record<string, string>} */ (Object.fromEntries(COLORS.map((name) => [name, value(name)]))),
    faint: /** @type {Record<string, string>} */ ({ p95: value("p95-faint"), calls: value("calls-faint") }),
    shade: value("shade"),
  };
}

/** The head of the page: how the run stands, how far it is, and Start and Stop. */

/** @import { Phase, Run, Snapshot, View } from "./types.d.ts" */
import { byId, h, setAttribute, setClass, setShown, setStyle, setText, sync } from "./dom.js";
import { count, duration, listed, number, runTime, timeOfDay } from "./format.js";
import { hasEnded, isDisconnected, pillOf } from "./store.js";

const pill = byId("pill");
const pillText = byId("pill-text");
const fresh = byId("fresh");
const freshText = byId("fresh-text");
const refused = byId("refused");
const start = /** @type {HTMLButtonElement} */ (byId("start"));
const stop = /** @type {HTMLButtonElement} */ (byId("stop"));
const dialog = /** @type {HTMLDialogElement} */ (byId("stop-dialog"));

/** @param {View} view */
export function drawHeader(view) {
  const { text, kind, live } = pillOf(view);
  setClass(pill, `pill ${kind}${live ? " live" : ""}`);
  setText(pillText, text);
  const name = view.run?.name ?? "";
  setText(byId("run-name"), name || "No run yet");
  setText(byId("run-sub"), view.run ? subline(view.run, view.snapshot) : "");
  setText(byId("headline"), name ? `Run: ${name}` : "Run");
  const title = name ? `${text}: ${name} · voicebench` : "voicebench";
  if (document.title !== title) document.title = title;
  drawFreshness(view);
  drawControls(view);
  const { run, snapshot } = view;
  if (!run || !snapshot) return;
  setText(byId("clock"), runTime(snapshot.elapsed_s));
  setText(byId("clock-of"), clockNote(view, run, snapshot));
  drawPlan(run, snapshot);
  setText(byId("n-workers"), number(snapshot.n_workers));
}

/** @param {Run} run @param {Snapshot | null} snapshot */
function subline(run, snapshot) {
  const adapters = [...new Set(run.scenarios.map((each) => each.adapter))];
  const names = listed(run.scenarios.map((each) => each.name));
  return [names, listed(adapters), count(snapshot?.n_workers, "worker")].join(" · ");
}

/** @param {View} view @param {Run} run @param {Snapshot} snapshot */
function clockNote(view, run, snapshot) {
  if (isDisconnected(view)) return `as of ${duration(view.age_s)} ago`;
  const ended_s = run.started_at === null ? null : Date.parse(run.started_at) / 1000 + snapshot.elapsed_s;
  if (snapshot.state === "done") return `finished ${timeOfDay(ended_s)}`;
  if (snapshot.state === "stopping") {
    const left = snapshot.left_s === null ? "" : `, up to ${duration(snapshot.left_s)}`;
    return `${count(snapshot.calls.live, "call")} left${left}`;
  }
  if (run.run_time_s !== null) return `of ${runTime(run.run_time_s)}`;
  return run.sessions === null ? "no end is planned" : `until ${count(run.sessions, "call")}`;
}

/** @param {View} view */
function drawFreshness(view) {
  setShown(fresh, !isDisconnected(view) && view.snapshot !== null);
  setClass(fresh, `fresh${hasEnded(view) ? " over" : ""}`);
  setText(freshText, freshness(view));
}

/** @param {View} view */
function freshness(view) {
  if (hasEnded(view)) return "the master has ended";
  if (view.snapshot?.state === "done") return "the last snapshot";
  const age = `${duration(Math.max(1, view.age_s))} ago`;
  return view.link === "polling" ? `every 2 s, ${age}` : `live, ${age}`;
}

/** @param {View} view */
function drawControls(view) {
  const { snapshot } = view;
  const state = snapshot?.state;
  const isCut = isDisconnected(view);
  const runs = state === "ramping" || state === "steady" || state === "stopping";
  // Whoever has just pressed the one button goes on with the other.
  const hasFocus = document.activeElement === start || document.activeElement === document.body;
  const goesOn = hasStarted && runs && hasFocus;
  if (runs) hasStarted = false;
  setShown(stop, runs);
  stop.disabled = isCut || isBusy || !snapshot?.can.stop;
  setText(stop, state === "stopping" ? "Cut calls" : "Stop run");
  setShown(start, (state === "idle" || state === "done") && Boolean(snapshot?.can.start) && !hasEnded(view));
  setText(start, state === "done" ? "Run again" : "Start run");
  start.disabled = isCut || isBusy;
  if (goesOn) stop.focus();
  if (dialog.open && (isCut || !runs)) dialog.close();
  if (dialog.open && snapshot) drawDialog(snapshot);
}

// --- the plan ----------------------------------------------------------------------------------------------------

/** @param {Run} run @param {Snapshot} snapshot */
function drawPlan(run, snapshot) {
  const plan = byId("plan");
  sync(plan, run.phases, (phase) => `${phase.name} ${phase.from_s}`, () => h("span", {}, h("i")), (bar, phase) => {
    setStyle(/** @type {HTMLElement} */ (bar), "flexGrow", String(weight(phase, run.phases)));
    const done = snapshot.state === "idle" ? 0 : filled(phase, snapshot);
    setStyle(/** @type {HTMLElement} */ (bar.firstElementChild), "width", `${(100 * done).toFixed(1)}%`);
  });
  const words = run.phases.map(phaseInWords).join(", then ");
  setAttribute(plan, "aria-label", `Plan: ${words || "none"}. Now at ${runTime(snapshot.elapsed_s)}.`);
}

/** An end that is not planned is drawn as long as all that goes before, or as one. @param {Phase} phase @param {Phase[]} all */
function weight(phase, all) {
  if (phase.to_s !== null) return phase.to_s - phase.from_s;
  return all.length > 1 ? 3 * phase.from_s : 1;
}

/** @param {Phase} phase @param {Snapshot} snapshot */
function filled(phase, { elapsed_s, progress, state }) {
  if (phase.to_s === null) return elapsed_s < phase.from_s ? 0 : state === "done" ? 1 : (progress ?? 0);
  return Math.min(1, Math.max(0, (elapsed_s - phase.from_s) / (phase.to_s - phase.from_s || 1)));
}

/** @param {Phase} phase */
function phaseInWords({ name, to_s, calls }) {
  const verb = name === "ramp" ? "up to" : name;
  return `${verb} ${count(calls, "call")}${to_s === null ? "" : ` until ${runTime(to_s)}`}`;
}

// --- Start and Stop ----------------------------------------------------------------------------------------------

let isBusy = false;
let hasStarted = false;

/**
 * @param {(what: "start" | "stop", body: object) => Promise<void>} post
 * @param {() => View} look
 */
export function wireControls(post, look) {
  /** @param {"start" | "stop"} what @param {object} body */
  const say = async (what, body) => {
    isBusy = true;
    setShown(refused, false);
    drawControls(look());
    try {
      await post(what, body);
    } catch (error) {
      setText(refused, /** @type {Error} */ (error).message);
      setShown(refused, true);
    } finally {
      isBusy = false;
      drawControls(look());
      // A button that is disabled loses the focus, and does not get it back by itself.
      const button = what === "start" ? start : stop;
      if (document.activeElement === document.body) button.focus();
    }
  };
  start.addEventListener("click", () => {
    hasStarted = true;
    say("start", {});
  });
  stop.addEventListener("click", () => {
    const { snapshot } = look();
    if (!snapshot) return;
    drawDialog(snapshot);
    dialog.showModal();
  });
  const answers = { "go-on": null, "cut-now": { how: "cut" }, drain: { how: "drain" } };
  for (const [id, body] of Object.entries(answers)) {
    byId(id).addEventListener("click", () => {
      dialog.close();
      if (body) say("stop", body);
    });
  }
}

/** @param {Snapshot} snapshot */
function drawDialog({ state, calls, account }) {
  const n = Math.max(calls.live, account.live);
  const going = `${count(n, "call")} ${n === 1 ? "is" : "are"} in progress.`;
  const isStopping = state === "stopping";
  setText(byId("stop-title"), isStopping ? "Cut the last calls?" : "Stop this run?");
  setText(
    byId("stop-text"),
    isStopping
      ? `${going} Cut now, they end at once, and their open turns are not judged.`
      : `${going} No new ones are placed. Letting them finish keeps every result; cut now, they end at once.`,
  );
  setShown(byId("drain"), !isStopping);
}

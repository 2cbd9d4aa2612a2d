/** Puts the page together: news in, drawn once a second at most. */

/** @import { History, Snapshot } from "./types.d.ts" */
import { Charts } from "./charts.js";
import { byId, setClass, setShown } from "./dom.js";
import { drawHeader, wireControls } from "./header.js";
import { drawBanners, drawOverview, drawSkeleton } from "./overview.js";
import { Store, UnknownVersion } from "./store.js";
import { drawTables } from "./tables.js";
import { Transport } from "./transport.js";
import { drawVerdicts } from "./verdicts.js";

const store = new Store();
const charts = new Charts();

/** @type {import("./transport.js").Surroundings} */
const browser = {
  fetch: (url, init) => fetch(url, init),
  openStream: (url) => new EventSource(url),
  setTimer: (run, ms) => setTimeout(run, ms),
  clearTimer: (timer) => clearTimeout(timer),
  now_ms: () => performance.now(),
};

const transport = new Transport(
  {
    history: (history) => guarded(() => store.takeHistory(history), undefined),
    snapshot: (snapshot) => guarded(() => store.takeSnapshot(snapshot), false),
    turns: (turns) => guarded(() => store.takeTurns(turns), undefined),
    link: (link) => guarded(() => store.setLink(link), undefined),
    isOver: () => store.view.snapshot?.state === "done",
  },
  browser,
);

/**
 * Takes news in and draws it. News of another version are the last.
 * @template T
 * @param {() => T} take
 * @param {T} otherwise
 */
function guarded(take, otherwise) {
  try {
    const taken = take();
    draw();
    return taken;
  } catch (error) {
    if (!(error instanceof UnknownVersion)) throw error;
    transport.stop();
    isOutdated = true;
    setShown(byId("outdated"), true);
    return otherwise;
  }
}

let isOutdated = false;

function draw() {
  const { view } = store;
  view.age_s = (performance.now() - transport.heard_ms) / 1000;
  setClass(document.body, view.snapshot ? `state-${view.snapshot.state}` : "state-unknown");
  drawHeader(view);
  drawBanners(view);
  drawOverview(view);
  drawVerdicts(view);
  drawTables(view);
  charts.draw(view);
}

function followVisibility() {
  if (document.hidden) transport.stop();
  else if (!isOutdated) transport.start();
}

/** The part of the page that is being read is marked in the navigation. */
function followReading() {
  const links = /** @type {HTMLAnchorElement[]} */ ([...document.querySelectorAll(".nav a")]);
  const seen = new IntersectionObserver(
    (entries) => {
      const shown = entries.find((entry) => entry.isIntersecting);
      if (!shown) return;
      for (const link of links) {
        if (link.hash === `#${shown.target.id}`) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
      }
    },
    { rootMargin: "-130px 0px -70% 0px" },
  );
  for (const link of links) seen.observe(byId(link.hash.slice(1)));
}

drawSkeleton();
wireControls((what, body) => transport.post(what, body, store.csrf), () => store.view);
byId("load-again").addEventListener("click", () => location.reload());
document.addEventListener("visibilitychange", followVisibility);
followReading();
followVisibility();
// Ages grow also when nothing is heard.
setInterval(() => document.hidden || draw(), 1000);

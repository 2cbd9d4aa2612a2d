import assert from "node:assert/strict";
import { test } from "node:test";
import { Transport } from "../js/transport.js";

/** A browser whose time passes when the test says so, and a master that answers as the test says. */
class World {
  constructor() {
    this.now_ms = 0;
    this.timers = new Map();
    this.lastTimer = 0;
    this.streams = [];
    this.asked_ms = [];
    this.links = [];
    this.histories = 0;
    this.snapshots = [];
    this.answers = true;
    this.isOver = false;
    this.wantsReload = false;
    this.post = { ok: true, status: 200, json: async () => ({}) };
    this.posted = [];
    this.transport = new Transport(
      {
        history: () => this.histories++,
        snapshot: (each) => (this.snapshots.push(each), this.wantsReload),
        turns: () => {},
        link: (link) => this.links.push([this.now_ms, link]),
        isOver: () => this.isOver,
      },
      {
        fetch: async (url, init) => this.fetch(url, init),
        openStream: (url) => this.openStream(url),
        setTimer: (run, ms) => (this.timers.set(++this.lastTimer, { run, at_ms: this.now_ms + ms }), this.lastTimer),
        clearTimer: (timer) => this.timers.delete(timer),
        now_ms: () => this.now_ms,
      },
    );
  }

  fetch(url, init) {
    if (init?.method === "POST") {
      this.posted.push([url, init]);
      return this.post;
    }
    this.asked_ms.push(this.now_ms);
    if (!this.answers) throw new TypeError("refused");
    return { ok: true, json: async () => ({}) };
  }

  openStream(url) {
    const listeners = {};
    const stream = { url, isOpen: true, close: () => (stream.isOpen = false), addEventListener: (name, run) => (listeners[name] = run) };
    stream.send = (data = { seq: 1 }) => listeners.snapshot({ data: JSON.stringify(data) });
    stream.fail = () => listeners.error({});
    this.streams.push(stream);
    return stream;
  }

  get stream() {
    return this.streams.at(-1);
  }

  /** Lets what was promised happen. */
  async settle() {
    for (let i = 0; i < 20; i++) await Promise.resolve();
  }

  async pass(ms) {
    const until_ms = this.now_ms + ms;
    for (;;) {
      await this.settle();
      const due = [...this.timers].filter(([, { at_ms }]) => at_ms <= until_ms).sort((a, b) => a[1].at_ms - b[1].at_ms)[0];
      if (!due) break;
      this.timers.delete(due[0]);
      this.now_ms = Math.max(this.now_ms, due[1].at_ms);
      due[1].run();
    }
    this.now_ms = until_ms;
    await this.settle();
  }

  async begun() {
    this.transport.start();
    await this.settle();
    return this;
  }

  get link() {
    return this.links.at(-1)?.[1];
  }
}

test("everything is asked for once, and then there is one stream", async () => {
  const world = await new World().begun();
  for (let second = 0; second < 10; second++) {
    world.stream.send();
    await world.pass(1000);
  }
  assert.deepEqual(world.asked_ms, [0]);
  assert.equal(world.streams.length, 1);
  assert.equal(world.stream.url, "/api/events");
  assert.deepEqual(world.links, [[0, "live"]]);
});

test("three seconds without a snapshot are no connection", async () => {
  const world = await new World().begun();
  await world.pass(1000);
  world.stream.send();
  world.answers = false;
  await world.pass(2999);
  assert.equal(world.link, "live");
  await world.pass(1);
  assert.deepEqual(world.links.at(-1), [4000, "down"]);
  assert.equal(world.streams[0].isOpen, false, "a stream that says nothing is given up");
});

test("it tries again after 1, 2 and 5 s, and then every 5 s", async () => {
  const world = await new World().begun();
  world.answers = false;
  world.stream.fail();
  await world.pass(30_000);
  assert.deepEqual(world.asked_ms, [0, 1000, 3000, 8000, 13_000, 18_000, 23_000, 28_000]);
});

test("a page that is opened without a master waits for one at the same pace", async () => {
  const world = new World();
  world.answers = false;
  await world.begun();
  await world.pass(9000);
  assert.deepEqual(world.asked_ms, [0, 1000, 3000, 8000]);
  assert.equal(world.link, "down");
  world.answers = true;
  await world.pass(5000);
  assert.equal(world.link, "live");
  assert.equal(world.streams.length, 1);
});

test("news begins the pace anew", async () => {
  const world = await new World().begun();
  world.answers = false;
  world.stream.fail();
  await world.pass(4000);
  world.answers = true;
  await world.pass(4000);
  world.stream.send();
  world.answers = false;
  world.asked_ms = [];
  const now_ms = world.now_ms;
  world.stream.fail();
  await world.pass(4000);
  assert.deepEqual(world.asked_ms.map((at_ms) => at_ms - now_ms), [1000, 3000]);
});

test("when the stream has failed three times, it polls every 2 s", async () => {
  const world = await new World().begun();
  world.stream.fail();
  await world.pass(1000);
  world.stream.fail();
  await world.pass(2000);
  world.stream.fail();
  world.asked_ms = [];
  await world.pass(6000);
  assert.deepEqual(world.asked_ms, [3000, 5000, 7000, 9000]);
  assert.equal(world.streams.length, 3);
  assert.equal(world.link, "polling");
});

test("streams that are held back somewhere are failures too", async () => {
  const world = await new World().begun();
  await world.pass(20_000);
  assert.equal(world.streams.length, 3);
  assert.equal(world.link, "polling");
});

test("a stream that brought something did not fail", async () => {
  const world = await new World().begun();
  for (let time = 0; time < 6; time++) {
    world.stream.send();
    world.stream.fail();
    await world.pass(1000);
  }
  assert.equal(world.streams.length, 7);
  assert.equal(world.link, "live");
});

test("polling that fails keeps to the pace of trying again", async () => {
  const world = await new World().begun();
  for (const wait_ms of [1000, 2000, 0]) {
    world.stream.fail();
    await world.pass(wait_ms);
  }
  world.answers = false;
  world.asked_ms = [];
  await world.pass(15_000);
  assert.deepEqual(world.asked_ms, [5000, 6000, 8000, 13_000, 18_000]);
  assert.equal(world.link, "down");
});

test("a hidden page has no stream and no timers, and catches up when it is shown", async () => {
  const world = await new World().begun();
  world.stream.send();
  world.transport.stop();
  assert.equal(world.stream.isOpen, false);
  assert.equal(world.timers.size, 0);
  await world.pass(60_000);
  assert.equal(world.asked_ms.length, 1);
  assert.equal(world.link, "live", "nobody looked, so nothing is claimed");
  world.transport.start();
  await world.settle();
  assert.equal(world.histories, 2);
  assert.equal(world.streams.length, 2);
});

test("an answer that comes after the page was hidden opens no stream", async () => {
  const world = new World();
  world.transport.start();
  world.transport.stop();
  await world.settle();
  assert.equal(world.streams.length, 0);
  assert.equal(world.histories, 0);
});

test("a hole is filled by asking for everything, but not at every snapshot", async () => {
  const world = await new World().begun();
  world.wantsReload = true;
  for (let second = 0; second < 4; second++) {
    world.stream.send();
    await world.pass(1000);
  }
  assert.deepEqual(world.asked_ms, [0, 0, 2000]);
});

test("a run that is over may be silent", async () => {
  const world = await new World().begun();
  world.isOver = true;
  world.stream.send();
  await world.pass(60_000);
  assert.equal(world.link, "live");
  assert.equal(world.streams.length, 1);
});

test("when its master ends it is known at once, and looked for another one quietly", async () => {
  const world = await new World().begun();
  world.isOver = true;
  world.answers = false;
  world.stream.fail();
  await world.pass(1000);
  assert.deepEqual(world.links.at(-1), [1000, "down"]);
  world.answers = true;
  await world.pass(2000);
  assert.equal(world.histories, 2);
  assert.equal(world.link, "live");
});

test("a request to change something carries the token", async () => {
  const world = await new World().begun();
  await world.transport.post("stop", { how: "drain" }, "token");
  const [url, { headers, body }] = world.posted[0];
  assert.equal(url, "/api/stop");
  assert.deepEqual(headers, { "Content-Type": "application/json", "X-CSRF-Token": "token" });
  assert.deepEqual(JSON.parse(body), { how: "drain" });
});

test("a refusal is the master's sentence", async () => {
  const world = await new World().begun();
  world.post = { ok: false, status: 409, json: async () => ({ error: "The run is over." }) };
  await assert.rejects(world.transport.post("stop", {}, ""), { message: "The run is over." });
  world.post = { ok: false, status: 502, json: async () => JSON.parse("<html>") };
  await assert.rejects(world.transport.post("stop", {}, ""), /refused it \(502\)/);
});

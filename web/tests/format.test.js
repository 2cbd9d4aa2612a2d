import assert from "node:assert/strict";
import { test } from "node:test";
import * as format from "../js/format.js";

const NOTHINGS = [null, undefined, NaN, Infinity, -Infinity, "12", {}];

test("what does not exist is a dash, never 0", () => {
  for (const nothing of NOTHINGS) {
    for (const name of ["number", "ms", "percent", "rate", "runTime", "duration", "exact", "timeOfDay"]) {
      assert.equal(format[name](nothing), "–", `${name}(${nothing})`);
    }
    assert.equal(format.count(nothing, "call"), "– calls");
    assert.equal(format.percentOf(nothing, 10), "–");
    assert.equal(format.percentOf(1, nothing), "–");
  }
});

test("a zero that was counted is a zero", () => {
  assert.equal(format.number(0), "0");
  assert.equal(format.ms(0), "0");
  assert.equal(format.percent(0), "0");
  assert.equal(format.percentOf(0, 7), "0");
  assert.equal(format.rate(0), "0.0");
  assert.equal(format.runTime(0), "0:00");
  assert.equal(format.count(0, "call"), "0 calls");
});

test("a share of nothing does not exist", () => {
  assert.equal(format.percentOf(0, 0), "–");
});

test("numbers have thousands separators and a real minus", () => {
  assert.equal(format.number(4342), "4,342");
  assert.equal(format.number(8123456), "8,123,456");
  assert.equal(format.number(-1200), "−1,200");
  assert.equal(format.number(-0.2), "0");
  assert.equal(format.number(-0.04, 1), "0.0");
  assert.equal(format.number(1234.56, 1), "1,234.6");
});

test("milliseconds are whole, and have tenths below ten", () => {
  assert.equal(format.ms(1548.2), "1,548");
  assert.equal(format.ms(9.96), "10.0");
  assert.equal(format.ms(4.64), "4.6");
  assert.equal(format.ms(4), "4");
  assert.equal(format.ms(-620.4), "−620");
});

for (const [share, text] of [
  [0.968, "96.8"],
  [1, "100"],
  [0.9995, "99.95"],
  [0.99999, "> 99.99"],
  [0.994, "99.4"],
  [0.0082, "0.82"],
  [0.00001, "< 0.01"],
  [0.013, "1.3"],
  [1.25, "125.0"],
]) {
  test(`a share of ${share} is ${text} %`, () => assert.equal(format.percent(share), text));
}

test("nearly all is not rounded to all, nearly nothing not to nothing", () => {
  for (let n = 3; n < 1e7; n *= 3) {
    assert.notEqual(format.percentOf(n - 1, n), "100");
    assert.notEqual(format.percentOf(n - 1, n).replace(/[.]0+$/, ""), "100");
    assert.notEqual(Number(format.percentOf(1, n)), 0);
  }
});

test("rates have a tenth while it matters", () => {
  assert.equal(format.rate(8.33), "8.3");
  assert.equal(format.rate(1234.5), "1,235");
});

for (const [seconds, text] of [
  [59.9, "0:59"],
  [60, "1:00"],
  [761, "12:41"],
  [3599.99, "59:59"],
  [3600, "1:00:00"],
  [90061, "25:01:01"],
  [-3, "−0:03"],
  [-0.4, "0:00"],
]) {
  test(`${seconds} s of run time are ${text}`, () => assert.equal(format.runTime(seconds), text));
}

for (const [seconds, text] of [
  [0, "0 s"],
  [9.4, "9 s"],
  [59.6, "1 min 0 s"],
  [75, "1 min 15 s"],
  [7260, "2 h 1 min"],
  [-2, "0 s"],
]) {
  test(`${seconds} s last ${text}`, () => assert.equal(format.duration(seconds), text));
}

test("one is singular, all else is plural", () => {
  assert.equal(format.count(1, "call"), "1 call");
  assert.equal(format.count(1200, "call"), "1,200 calls");
});

test("limits are shown as they were given", () => {
  assert.equal(format.exact(1500), "1,500");
  assert.equal(format.exact(0.95), "0.95");
  assert.equal(format.exact(100 * 0.29), "29");
  assert.equal(format.exact(-250), "−250");
});

test("long lists are cut, and say so", () => {
  assert.equal(format.listed(["a", "b"]), "a, b");
  assert.equal(format.listed(["a", "b", "c", "d", "e"]), "a, b, c and 2 more");
  assert.equal(format.listed([]), "");
});

test("percentiles of few values are known as such", () => {
  assert.ok(format.isFew("p95", 19));
  assert.ok(!format.isFew("p95", 20));
  assert.ok(format.isFew("p99", 99));
  assert.ok(!format.isFew("p99", 100));
  assert.ok(!format.isFew("p50", 1));
  assert.ok(!format.isFew("p95", 0));
  assert.ok(!format.isFew("p95", null));
});

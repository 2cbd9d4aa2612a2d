/** Values as people read them. What does not exist is a dash, never 0. */

export const NOTHING = "–";
const MINUS = "−";

/** @param {unknown} value @returns {value is number} */
export const exists = (value) => typeof value === "number" && Number.isFinite(value);

/** @type {Map<number, Intl.NumberFormat>} */
const formats = new Map();

/**
 * A plain number with thousands separators and a fixed count of decimals.
 * @param {unknown} value
 */
export function number(value, decimals = 0) {
  if (!exists(value)) return NOTHING;
  let format = formats.get(decimals);
  if (!format) {
    format = new Intl.NumberFormat("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
    formats.set(decimals, format);
  }
  // -0.4 is rounded to "-0", which nobody wants to read.
  return format.format(value).replace(/^-(?=[0.,]*$)/, "").replace("-", MINUS);
}

/** Milliseconds without their unit: whole ones, tenths below ten. @param {unknown} value_ms */
export function ms(value_ms) {
  return number(value_ms, exists(value_ms) && Math.abs(value_ms) < 10 && !Number.isInteger(value_ms) ? 1 : 0);
}

/**
 * A share between 0 and 1 in percent, without the sign. "100" is all of them and "0" is none: what is only nearly so is
 * not rounded to it.
 * @param {unknown} share
 */
export function percent(share) {
  if (!exists(share)) return NOTHING;
  const value = 100 * share;
  if (value === 0 || value === 100) return number(value);
  if (value > 0 && value < 0.005) return "< 0.01";
  if (value < 100 && value >= 99.995) return "> 99.99";
  return number(value, value < 1 || (value >= 99.95 && value < 100) ? 2 : 1);
}

/**
 * One count of another, both of them the master's and both shown beside it; in percent as above.
 * @param {unknown} part
 * @param {unknown} whole
 */
export function percentOf(part, whole) {
  return exists(part) && exists(whole) && whole > 0 ? percent(part / whole) : NOTHING;
}

/** Calls a second. @param {unknown} value */
export const rate = (value) => number(value, exists(value) && value >= 100 ? 0 : 1);

/**
 * How many of something: "1 call", "1,200 calls".
 * @param {unknown} n
 * @param {string} word
 */
export const count = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;

/** "12:41", from an hour on "1:02:41"; before the start with a minus. @param {unknown} value_s */
export function runTime(value_s) {
  if (!exists(value_s)) return NOTHING;
  const whole = Math.floor(Math.abs(value_s));
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  const [hours, minutes, seconds] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const text = hours ? `${hours}:${two(minutes)}:${two(seconds)}` : `${minutes}:${two(seconds)}`;
  return value_s < 0 && whole > 0 ? MINUS + text : text;
}

/** A length of time, coarse: "9 s", "1 min 15 s", "2 h 1 min". @param {unknown} value_s */
export function duration(value_s) {
  if (!exists(value_s)) return NOTHING;
  const seconds = Math.max(0, Math.round(value_s));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** A limit or a value held against it, as exact as it was given. @param {unknown} value */
export function exact(value) {
  if (!exists(value)) return NOTHING;
  return value.toLocaleString("en-US", { maximumFractionDigits: 4 }).replace("-", MINUS);
}

/** The time of day, here: "14:32". @param {unknown} unix_s */
export function timeOfDay(unix_s) {
  if (!exists(unix_s)) return NOTHING;
  const date = new Date(unix_s * 1000);
  return `${date.getHours()}:${String(date.getMinutes()).padStart(2, "0")}`;
}

/**
 * "a, b and 3 more".
 * @param {string[]} words
 */
export function listed(words, most = 3) {
  if (words.length <= most) return words.join(", ");
  return `${words.slice(0, most).join(", ")} and ${words.length - most} more`;
}

/** Percentiles of fewer values than this are little more than the maximum. */
const FEW = /** @type {Record<string, number>} */ ({ p95: 20, p99: 100 });

/**
 * Whether a percentile is to be marked "few values".
 * @param {string} name
 * @param {number | null | undefined} n
 */
export const isFew = (name, n) => exists(n) && n > 0 && n < (FEW[name] ?? 0);

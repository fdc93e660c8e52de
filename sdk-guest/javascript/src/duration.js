// Reads durations: milliseconds, or a text as in the manifest.

import { shown } from "./error.js";

/** The most that the contract can say: 49 days. */
const MOST = 2 ** 32 - 1;
const UNITS = { h: 3_600_000, m: 60_000, s: 1_000, ms: 1 };

/**
 * Returns a duration in whole milliseconds.
 * @param {number | string} duration `1500`, `"30s"`, `"1h30m"`
 * @param {string} what what it is for, for the error
 */
export function milliseconds(duration, what) {
  const ms = typeof duration === "string" ? parse(duration) : duration;
  if (typeof ms !== "number" || !(ms >= 0 && ms < Infinity)) {
    const found = typeof duration === "string" ? JSON.stringify(duration) : shown(duration);
    throw new TypeError(`${what}: ${found} is no duration; write milliseconds, or a text such as "30s" or "1h30m"`);
  }
  return Math.min(Math.round(ms), MOST);
}

/** Returns milliseconds, or NaN. */
function parse(text) {
  const parts = /^(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$/.exec(text);
  if (!parts || text === "") return NaN;
  const [, ...given] = parts;
  return given
    .filter((part) => part !== undefined)
    .map((part) => parseInt(part, 10) * UNITS[part.replace(/\d+/, "")])
    .reduce((sum, ms) => sum + ms);
}

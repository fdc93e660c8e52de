// Expects one thing of each primary to come true in time. The daemon keeps it; the component itself finds out whether it has.

import { expectations as daemon } from "#daemon";
import { text } from "./check.js";
import { milliseconds } from "./duration.js";
import { ask } from "./error.js";

/** Expects something of the primary, in place of anything else. */
export function expect(name, timeout) {
  ask(() => daemon.expect(text(name, "the expectation"), milliseconds(timeout, "timeout")));
}

/** Returns what is expected of the primary; `undefined` if nothing is. */
export function pending() {
  return daemon.pending() ?? undefined;
}

/** Expects this no more. Returns whether it was expected. */
export function clear(name) {
  return daemon.clear(text(name, "the expectation"));
}

/** Expects something, unless it is so already. Returns whether it is expected now. */
export function checkAndSet(name, timeout, isSo) {
  if (isSo()) return false;
  expect(name, timeout);
  return true;
}

/** Returns what has become of an expectation; `undefined` if nothing of this name is expected. */
export function check(name, isSo) {
  const expected = pending();
  if (expected?.name !== name) return undefined;
  if (isSo()) {
    clear(name);
    return "fulfilled";
  }
  return expected.timedOut ? "timed-out" : "pending";
}

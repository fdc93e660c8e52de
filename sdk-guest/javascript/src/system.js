// Time and chance, from the daemon, which can record and replay them.

import { system as daemon } from "#daemon";

/** Returns the time as Kubernetes writes it: `2026-01-31T12:00:00Z`. */
export function now() {
  return daemon.now();
}

/** Returns the time in milliseconds since 1970, with fractions. */
export function nowMs() {
  return daemon.nowMs();
}

/** Returns random bytes, at most 4096. */
export function randomBytes(length) {
  if (!Number.isInteger(length) || length < 0 || length > 4096) throw new RangeError(`${length} random bytes: it has to be 0 to 4096`);
  return Uint8Array.from(daemon.randomBytes(length));
}

/** Returns a random UUID (version 4). */
export function uuid() {
  return daemon.uuid();
}

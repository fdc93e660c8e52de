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

/** How many random bytes the daemon gives at once. */
const PIECE = 4096;

/** Returns so many random bytes. */
export function randomBytes(length) {
  if (!Number.isSafeInteger(length) || length < 0) throw new RangeError(`${length} random bytes: it has to be a whole number from 0`);
  const bytes = new Uint8Array(length);
  for (let at = 0; at < length; at += PIECE) bytes.set(daemon.randomBytes(Math.min(PIECE, length - at)), at);
  return bytes;
}

/** Returns a random UUID (version 4). */
export function uuid() {
  return daemon.uuid();
}

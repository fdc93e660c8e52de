// Says what is known about the run that the current call belongs to.

import { context as daemon } from "#daemon";

/** Returns the current run; `undefined` in a call outside a run. */
export function run() {
  const run = daemon.run() ?? undefined;
  return run && { ...run, retry: run.retry ?? undefined };
}

/** Says whether an event for this primary is waiting already, so that another run follows at once. */
export function nextImminent() {
  return daemon.nextImminent();
}

/** Returns how many milliseconds the current call may still take. */
export function timeLeft() {
  return daemon.timeLeftMs();
}

/** Returns the settings in force: `controller` as in the manifest, and `daemon` with identity, namespace and version. */
export function settings() {
  return JSON.parse(daemon.settings());
}

// Writes to the daemon's log. Plugin, controller and primary are added to each line.

import { log as daemon } from "#daemon";
import { shown } from "./error.js";

/** Writes a line of the level trace: each step. */
export const trace = (message, fields) => write("trace", message, fields);
/** Writes a line of the level debug: for finding faults. */
export const debug = (message, fields) => write("debug", message, fields);
/** Writes a line of the level info: worth knowing. */
export const info = (message, fields) => write("info", message, fields);
/** Writes a line of the level warn: odd, but it goes on. */
export const warn = (message, fields) => write("warn", message, fields);
/** Writes a line of the level error: something failed. */
export const error = (message, fields) => write("error", message, fields);

function write(level, message, fields) {
  const pairs = Object.entries(fields ?? {}).map(([name, value]) => ({ name: name.toWellFormed(), value: shown(value).toWellFormed() }));
  daemon.write(level, shown(message).toWellFormed(), pairs);
}

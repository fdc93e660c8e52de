// Decides what an error says, and where it says that it comes from.

import { place } from "./lines.js";

/** What the daemon or the API server has refused; `reason` is what a program decides on. */
export class CallError extends Error {
  name = "CallError";

  /** @param {{ reason: string, code: number, message: string }} refusal as the daemon reports it */
  constructor({ reason, code, message }) {
    super(message);
    this.reason = reason;
    this.code = code || undefined;
  }
}

/**
 * Calls an import; what it refuses is thrown as a `CallError`.
 * @template T
 * @param {() => T} call
 * @returns {T}
 */
export function ask(call) {
  try {
    return call();
  } catch (error) {
    if (error?.payload?.reason === undefined) throw error;
    throw new CallError(error.payload);
  }
}

/** What is said of an error that says nothing. */
const SILENT = "an error without a message";

/**
 * Returns what was thrown as the text of a failure: the message, with the error's type if that says something.
 * @param {unknown} thrown
 */
export function failure(thrown) {
  if (typeof thrown === "string") return thrown || SILENT;
  if (!(thrown instanceof Error)) return `thrown: ${shown(thrown)}`;
  const name = String(thrown.name);
  const message = String(thrown.message);
  // A refusal is told in the daemon's own words.
  if (thrown instanceof CallError || name === "Error") return message || SILENT;
  return message ? `${name}: ${message}` : name;
}

/**
 * Returns where an error comes from, innermost first, in one line: `html (src/operator.js:8) < configmap (…)`. What caused it
 * comes after it.
 * @param {unknown} thrown
 */
export function trace(thrown) {
  const parts = [];
  for (let error = thrown; error instanceof Error && parts.length < 8; error = error.cause) {
    const frames = String(error.stack ?? "").split("\n").map(frame).filter((text) => text !== undefined);
    parts.push(parts.length === 0 ? frames.join(" < ") : `caused by ${failure(error)}: ${frames.join(" < ")}`);
  }
  return parts.join("; ");
}

/** Returns a line of a stack, in the author's files; `undefined` for a line that is of no use to them. */
function frame(line) {
  const parts = /^\s*at (?:(.*) \()?(.*?):(\d+)(?::\d+)?\)?$/.exec(line);
  if (!parts) return undefined;
  const [, name, file, number] = parts;
  const where = place(file, Number(number));
  return where && `${name ?? "<anonymous>"} (${where})`;
}

/**
 * Returns any value as a text for people.
 * @param {unknown} value
 */
export function shown(value) {
  if (typeof value === "string") return value;
  if (value instanceof Error) return [failure(value), trace(value)].filter(Boolean).join(" at ");
  try {
    if (typeof value === "object" && value !== null) return JSON.stringify(value) ?? String(value);
    if (typeof value === "function") return `function ${value.name}`;
    return String(value);
  } catch {
    return Object.prototype.toString.call(value);
  }
}

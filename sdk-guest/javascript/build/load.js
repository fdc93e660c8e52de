// Loads a bundle as the engine would, with nothing but the language, to find out what the author registers.

import { createContext, Script } from "node:vm";

import { failure, trace } from "../src/error.js";
import { LINES } from "../src/lines.js";
import { Broken } from "./broken.js";

/**
 * Returns the default export of a bundle.
 * @param {string} code
 * @param {string} name what the bundle is called in stacks
 * @throws {Broken} if it throws
 */
export function load(code, name) {
  // What the engine has beside the language itself. The console is the build's.
  const context = createContext({ atob, btoa, performance, queueMicrotask, console });
  try {
    return new Script(`${code};component.default`, { filename: name }).runInContext(context);
  } catch (error) {
    throw new Broken(`while the modules load: ${told(error, context)}`, { cause: error });
  }
}

/** Returns an error of another realm, with its place in the author's files. */
function told(error, context) {
  const mine = typeof error === "object" && error !== null ? Object.assign(new Error(error.message), { name: error.name, stack: error.stack }) : error;
  globalThis[LINES] = new Script(`globalThis[Symbol.for(${JSON.stringify(LINES.description)})]`).runInContext(context);
  try {
    const place = mine instanceof Error ? trace(mine) : "";
    return place ? `${failure(mine)}\n  at ${place}` : failure(mine);
  } finally {
    delete globalThis[LINES];
  }
}

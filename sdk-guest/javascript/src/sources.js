// Event sources that come and go while the controller runs.

import { sources as daemon } from "#daemon";
import { json } from "./answers.js";
import { text } from "./check.js";
import { ask } from "./error.js";

/** Starts a source, and waits until its cache is filled. Returns false if there is one of that name, which is then kept. */
export function register(name, declaration) {
  return ask(() => daemon.register(text(name, "the source"), json(declaration, "the declaration")));
}

/** Stops a source that was started by `register`, if there is one. */
export function deregister(name) {
  ask(() => daemon.deregister(text(name, "the source")));
}

// Event sources that come and go while the controller runs.

import { sources as daemon } from "#daemon";
import { json } from "./answers.js";
import { text } from "./check.js";
import { ask } from "./error.js";

/** Starts a source, and waits until its cache is filled. Returns false if there is one of that name, which is then kept. */
export function register(name, declaration) {
  return ask(() => daemon.register(text(name, "the source"), json(declaration, "the declaration")));
}

/** Tells a source of things outside of the cluster what this run has made for its primary, or put in the place of `replaced`. */
export function remember(name, actual, replaced) {
  const before = replaced == null ? null : json(replaced, "what it replaces");
  ask(() => daemon.remember(text(name, "the source"), json(actual, "the thing"), before));
}

/** Tells a source of things outside of the cluster that this run has removed its primary's thing with this id. */
export function forget(name, id) {
  ask(() => daemon.forget(text(name, "the source"), text(id, "the id")));
}

/** Stops a source that was started by `register`, if there is one. */
export function deregister(name) {
  ask(() => daemon.deregister(text(name, "the source")));
}

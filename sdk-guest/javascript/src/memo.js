// Keeps values in the daemon, because instances share nothing and do not last.

import { memo as daemon } from "#daemon";
import { json } from "./answers.js";
import { text } from "./check.js";
import { ask } from "./error.js";

/** Values with one lifetime. */
class Memo {
  #lifetime;

  /** @param {"run" | "primary" | "plugin"} lifetime */
  constructor(lifetime) {
    this.#lifetime = lifetime;
  }

  /** Returns the value of a key; `undefined` if there is none. */
  get(key) {
    const value = daemon.get(this.#lifetime, text(key, "the key"));
    return value == null ? undefined : JSON.parse(value);
  }

  /** Sets the value of a key. */
  set(key, value) {
    ask(() => daemon.put(this.#lifetime, text(key, "the key"), json(value, `the value of ${key}`)));
  }

  /** Removes a key. */
  remove(key) {
    ask(() => daemon.put(this.#lifetime, text(key, "the key"), null));
  }
}

/** Kept as long as the run: hands values from one call to another. */
export const run = new Memo("run");
/** Kept as long as the primary; lost when the daemon stops. */
export const primary = new Memo("primary");
/** Kept as long as the plugin's version is loaded, and shared by all its runs. */
export const plugin = new Memo("plugin");

// Stands in for the daemon in native unit tests; `test.d.ts` has it with types and examples.

import { World } from "./double/world.js";
import { within } from "./imports/native.js";

const KNOWN = [
  "controller", "beside", "retry", "nextImminent", "primaryDeleted", "finalStateUnknown", "timeLeft", "settings", "config", "now",
  "primary", "primaries", "sources", "secondaries", "things", "unrelated", "indexes", "memos", "expectation", "workflows", "workflowHasRun", "dependents", "refuse",
  "registered", "refuseSources",
];

/** A daemon of values: it answers what the test says, and remembers what it was asked. */
export class Daemon {
  #world;

  /** @param {object} facts what it knows */
  constructor(facts = {}) {
    const [strange] = Object.keys(facts).filter((name) => !KNOWN.includes(name));
    if (strange !== undefined) throw new TypeError(`a Daemon has no \`${strange}\`; it has: ${KNOWN.join(", ")}`);
    this.#world = new World(facts);
  }

  /**
   * Runs a function as if this daemon had called it, and returns its answer.
   * @template T
   * @param {() => T} work
   * @returns {T}
   */
  run(work) {
    return within(this.#world, work);
  }

  /** The writes that were asked for, in order. */
  get writes() {
    return this.#world.writes.recorded;
  }

  /** The lines of the log. */
  get logs() {
    return this.#world.logs;
  }

  /** The Kubernetes Events that were recorded. */
  get events() {
    return this.#world.events;
  }

  /** What is expected of the primary now. */
  get expectation() {
    return this.#world.expectation;
  }

  /** What was told to sources of things outside of the cluster, in order. */
  get remembered() {
    return this.#world.remembered;
  }

  /** The sources that are registered now, by name, as they were declared. */
  get registered() {
    return this.#world.registered;
  }

  /** The values that are kept now, by lifetime and key. */
  get memos() {
    return this.#world.memos;
  }
}

// What the daemon knows in a native test, and what it was asked: the imports, over values.

import { compare, Objects } from "./objects.js";
import { refusal } from "./refusal.js";
import { Writes } from "./writes.js";

/** The daemon's side of a test, in the contract's words. `test.js` has it in the author's. */
export class World {
  /** Lines of the log. */
  logs = [];
  /** Kubernetes Events. */
  events = [];
  remembered = [];

  /** @param {object} facts as `test.d.ts` has them */
  constructor(facts) {
    const { controller = "test", memos = {}, workflows = {}, dependents = {} } = facts;
    this.facts = { ...facts, controller };
    this.objects = new Objects(facts);
    this.writes = new Writes(this.objects, facts.refuse ?? {});
    this.memos = structuredClone({ run: {}, primary: {}, plugin: {}, ...memos });
    this.expectation = facts.expectation && { timedOut: false, ...facts.expectation };
    this.registered = structuredClone(facts.registered ?? {});
    this.workflows = workflows;
    this.dependents = dependents;
    this.ran = new Map(facts.workflowHasRun ? [[null, facts.workflowHasRun]] : []);
    this.chance = 0;
  }

  context = {
    run: () => {
      const { controller, beside, retry, primaryDeleted = false, finalStateUnknown = false } = this.facts;
      if (beside) return undefined;
      return { controller, retry: retry ? { attempt: 1, last: false, ...retry } : null, primaryDeleted, finalStateUnknown };
    },
    nextImminent: () => this.facts.nextImminent ?? false,
    timeLeftMs: () => this.facts.timeLeft ?? 5_000,
    settings: () => {
      const daemon = { identity: "test", namespace: "default", version: "0.1.0" };
      return JSON.stringify(this.facts.settings ?? { controller: { name: this.facts.controller }, daemon });
    },
  };

  config = { get: () => JSON.stringify(this.facts.config ?? {}) };

  cache = {
    findAll: (query) => this.objects.page(this.#known(query.place) && query),
    findOne: (place) => this.objects.one(this.#known(place)),
    findNamed: (place, key) => this.objects.named(this.#known(place), key),
  };

  operations = {
    create: (object, options) => this.writes.write("create", object, options),
    apply: (object, options) => this.writes.write("apply", object, options),
    forceApply: (object, options) => this.writes.write("forceApply", object, options),
    update: (object, options) => this.writes.write("update", object, options),
    edit: (object, options) => this.writes.write("edit", object, options),
    jsonPatch: (target, patch, options) => this.writes.patch("jsonPatch", target, patch, options),
    mergePatch: (target, patch, options) => this.writes.patch("mergePatch", target, patch, options),
    remove: (target) => this.writes.remove(target),
    addFinalizer: (name) => this.writes.finalizer("addFinalizer", name),
    removeFinalizer: (name) => this.writes.finalizer("removeFinalizer", name),
    compare,
  };

  workflow = {
    reconcile: (name) => this.#workflow(name),
    cleanup: (name) => this.#workflow(name),
    reconcileDependent: (name) => this.#dependent(name),
    removeDependent: (name) => this.#dependent(name),
    lastResult: (name) => (this.ran.has(name) ? workflowResult(this.ran.get(name)) : null),
  };

  expectations = {
    expect: (name) => {
      const length = new TextEncoder().encode(name).length;
      if (length < 1 || length > 253) throw refusal("invalid", `the name of an expectation has ${length} bytes; it may have 1 to 253`);
      this.expectation = { name, timedOut: false };
    },
    pending: () => this.expectation,
    clear: (name) => {
      const was = this.expectation?.name === name;
      if (was) this.expectation = undefined;
      return was;
    },
  };

  sources = {
    register: (name, declaration) => {
      const refused = this.facts.refuseSources?.[name];
      if (refused) throw refusal(refused.reason, refused.message ?? `${name} is refused`, refused.code);
      const isNew = !Object.hasOwn(this.registered, name);
      if (isNew) this.registered[name] = JSON.parse(declaration);
      return isNew;
    },
    deregister: (name) => {
      delete this.registered[name];
    },
    remember: (source, actual, replaced) => {
      const before = replaced === null ? {} : { replaced: JSON.parse(replaced) };
      this.remembered.push({ source, actual: JSON.parse(actual), ...before });
    },
    forget: (source, forgotten) => {
      this.remembered.push({ source, forgotten });
    },
  };

  memo = {
    get: (lifetime, key) => (Object.hasOwn(this.memos[lifetime], key) ? JSON.stringify(this.memos[lifetime][key]) : null),
    put: (lifetime, key, value) => {
      if (value === null) delete this.memos[lifetime][key];
      else this.memos[lifetime][key] = JSON.parse(value);
    },
  };

  recorder = {
    publish: ({ labels, annotations, ...event }) =>
      this.events.push({ ...given(event), ...filled("labels", labels), ...filled("annotations", annotations) }),
  };

  log = { write: (level, message, fields) => this.logs.push({ level, message, fields: record(fields) }) };

  // Not by chance: tests are to be repeatable.
  system = {
    now: () => this.#now().toISOString().replace(/\.\d+Z$/, "Z"),
    nowMs: () => this.#now().getTime(),
    randomBytes: (length) => Array.from({ length: Math.min(length, 4096) }, () => (this.chance = (this.chance * 5 + 113) % 256)),
    uuid: () => {
      const hex = this.system.randomBytes(15).map((byte) => byte.toString(16).padStart(2, "0")).join("");
      return hex.replace(/^(.{8})(.{4})(.{3})(.{3})(.{12})$/, "$1-$2-4$3-8$4-$5");
    },
  };

  /** Returns a place, which is a source of the controller if the test says which there are. */
  #known(place) {
    const { sources, secondaries, things, unrelated } = this.facts;
    if (!sources || place.tag !== "source") return place;
    const names = new Set([sources, ...[secondaries, things, unrelated, this.registered].map((by) => Object.keys(by ?? {}))].flat());
    if (names.has(place.val)) return place;
    throw refusal("missing", `no source is called ${JSON.stringify(place.val)}; there are: ${[...names].sort().join(", ")}`);
  }

  #now() {
    return new Date(this.facts.now ?? "2026-01-31T12:00:00Z");
  }

  /** Runs a workflow: what becomes of it is what the test says. The managed one is called "". */
  #workflow(name) {
    const result = this.workflows[name ?? ""];
    if (!result) throw refusal("missing", `the test has no workflow ${name ?? "of the controller"}`);
    this.ran.set(name, result);
    return workflowResult(result);
  }

  #dependent(name) {
    const node = this.dependents[name];
    if (!node) throw refusal("missing", `the test has no dependent ${name}`);
    return nodeResult({ name, ...node });
  }
}

/** Returns a result in the contract's words; a test may leave out what is empty. */
function workflowResult({ nodes = [], complete = true }) {
  return { nodes: nodes.map(nodeResult), complete };
}

function nodeResult({ name, done = [], conditions = [], failed = null }) {
  const detailed = conditions.map(({ detail, ...condition }) => ({ ...condition, detail: detail === undefined ? null : JSON.stringify(detail) }));
  return { name, done, conditions: detailed, failed };
}

function record(pairs) {
  return Object.fromEntries(pairs.map(({ name, value }) => [name, value]));
}

function filled(name, pairs) {
  return pairs.length === 0 ? {} : { [name]: record(pairs) };
}

function given(fields) {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}

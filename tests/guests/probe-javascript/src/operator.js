// Asks the daemon for all that a component may ask for, and puts the answers into the status: for tests of the SDK alone.

import { CallError, config, equal, operator, secondaries, secondary } from "@capstan/guest";
import { cache, context, expectations, log, memo, operations, recorder, sources, system, workflow } from "@capstan/guest";

const WORD = "Grüße 👋";

export default operator({
  reconcile(probe) {
    const { name, namespace, generation, resourceVersion, finalizers } = probe.metadata;
    if (context.run().primaryDeleted) {
      log.info("gone", { text: probe.spec.text, generation });
      return;
    }
    if (memo.primary.get("done") === generation) return;
    fail(probe, "reconcile");
    if (probe.spec.again) {
      const runs = (memo.primary.get("runs") ?? 0) + 1;
      memo.primary.set("runs", runs);
      const object = { metadata: { annotations: { runs: `${runs}` }, finalizers } };
      return runs === 3 ? { status: { runs }, object, onlyAt: resourceVersion } : { reschedule: "10ms" };
    }
    memo.primary.set("done", generation);
    log.info("asked", { word: WORD, generation });
    recorder.normal("Asked", WORD, { key: "k", action: "ask", component: "prober", labels: { a: "b" }, annotations: { c: WORD } });
    recorder.warning("Odd", "nobody knows why");
    const made = `${name}-${generation}`;
    const status = { operations: writes(probe, made), cache: reads(probe, made), memo: memories(), workflow: workflows(), expected: expected(), sources: registered() };
    operations.remove({ apiVersion: "v1", kind: "ConfigMap", namespace, name: `${made}-two` }, { propagation: "background", graceSeconds: 0 });
    return { status: { ...status, run: surroundings(), chance: chance() } };
  },

  cleanup() {
    const calls = (memo.primary.get("cleanups") ?? 0) + 1;
    memo.primary.set("cleanups", calls);
    log.info("tidied", { calls });
    if (calls === 1) return { keepFinalizer: true, reschedule: "10ms" };
  },

  handleError: (probe, failure) => ({ status: { failure }, stop: Boolean(probe.spec.stop) }),

  decideRetry(probe, failed) {
    log.info("decides", { of: failed.failureClass, attempt: failed.retry.attempt });
    return probe.spec.stopRetry ? { stop: true } : { after: 20 };
  },

  validate: (probe) => (probe.spec.wrong ? [{ field: probe.spec.wrong, message: WORD }] : []),

  initialize(probe) {
    memo.run.set("prepared", probe.metadata.generation);
  },

  desired: {
    first(probe) {
      fail(probe, "first");
      const metadata = { name: `${probe.metadata.name}-first`, annotations: { note: probe.spec.note } };
      return { apiVersion: "v1", kind: "ConfigMap", metadata, data: { text: probe.spec.text } };
    },
    extra: (probe) => {
      const metadata = { name: `${probe.metadata.name}-extra` };
      return { apiVersion: "v1", kind: "ConfigMap", metadata, data: memo.run.get("word") };
    },
    away: (probe) => ({ id: "7", text: probe.spec.text, word: WORD }),
    brief: () => ({ id: "8" }),
  },

  desiredSet: {
    all({ metadata: { name }, spec: { text } }) {
      const map = (name) => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name }, data: { text, word: WORD } });
      return [`${name}-all`, `${name}-all-${text}`].map(map);
    },
  },

  createExternal: {
    away: (wanted) => ({ thing: { ...wanted, made: WORD } }),
    brief: (wanted, probe) => ({ thing: { ...wanted, of: probe.metadata.name } }),
  },
  updateExternal: { away: (actual, wanted) => ({ ...wanted, was: actual.text }) },
  removeExternal: {
    brief(thing, probe) {
      if (thing.of !== probe.metadata.name) throw new Error(`${JSON.stringify(thing)} is another one's`);
    },
  },

  match: { "same-data": (actual, wanted) => equal(actual.data, wanted.data) || `data, ${WORD}` },

  condition: {
    wanted: (probe) => probe.spec.wanted ?? true,
    ready: (probe, dependent) => ({ met: true, detail: { dependent, data: secondary(dependent).data, note: probe.spec.note } }),
  },

  poll: {
    themes: () => {
      const [namespace] = context.settings().controller.namespaces;
      return [{ namespace, name: "p", things: [{ id: "dark", word: WORD, beside: context.run() === undefined }] }];
    },
  },

  pollOne: {
    registry: () => [],
    domains: (probe) => [{ id: 7, name: probe.metadata.name, denied: refusal(() => operations.addFinalizer()).reason }],
  },

  receive: {
    hooks: ({ path, headers, body }) => {
      const { namespace, present, explode: exploding } = JSON.parse(body);
      if (exploding) explode();
      const of = { namespace, name: "p" };
      return { status: 201, text: `${WORD} ${path} ${headers["x-kind"]}`, events: [{ ...of, present }, { ...of, gone: "8" }, of] };
    },
  },

  accepts: { shown: ({ sort, object, before }) => sort !== "updated" || object.data.word !== before.data.word },
  toPrimaries: { "to-probes": (asked) => [asked.data.of] },
  toSecondaries: { "to-maps": (probe) => ["asked", { namespace: probe.metadata.namespace, name: "gone" }] },
});

function writes({ apiVersion, kind, metadata: { namespace, name, uid } }, made) {
  const map = (end, data) => {
    const metadata = { namespace, name: `${made}-${end}`, labels: { made }, ownerReferences: [{ apiVersion, kind, name, uid }] };
    return { apiVersion: "v1", kind: "ConfigMap", metadata, data };
  };
  operations.create(map("two", {}), { mode: "cache-only" });
  const created = operations.create(map("one", { v: "1" }));
  const applied = operations.apply(map("one", { v: "2" }));
  const updated = operations.update({ ...applied, data: { v: "3" } });
  const edited = operations.edit({ ...updated, data: { v: "4" } });
  const merged = operations.mergePatch(edited, { data: { v: "5" } });
  const patched = operations.jsonPatch(merged, [{ op: "replace", path: "/data/v", value: "6" }], { mode: "force-filter" });
  const same = operations.compare("generic", patched, { data: { v: "6" } });
  return {
    written: [created, applied, updated, edited, merged, patched].map(({ data }) => data.v),
    conflict: refusal(() => operations.update(created, { mode: "optimistic" })),
    denied: refusal(() => operations.remove({ apiVersion: "v1", kind: "Secret", namespace, name: "safe" })),
    same: same === true ? undefined : same,
    differs: operations.compare("generic", patched, { data: { v: WORD } }, { ignore: ["/metadata"] }),
  };
}

function reads({ metadata: { namespace }, spec: { text } }, made) {
  const maps = { apiVersion: "v1", kind: "ConfigMap" };
  const { items: [item], next } = cache.page(maps, { namespace, labels: `made=${made}`, fields: ["/data"], limit: 1 });
  const names = (objects) => objects.map(({ metadata }) => metadata.name);
  return {
    one: secondary("first").data,
    named: cache.get(maps, { namespace, name: `${made}-one` }).data,
    nobody: cache.get(maps, { namespace, name: "nobody" }),
    related: names(secondaries("maps", { labels: `made in (${made})` })),
    page: { data: item.data, labels: item.metadata.labels, more: next !== undefined },
    primaries: names(cache.list(cache.primaries)),
    indexed: names(cache.list(cache.primaries, { index: "by-text", key: text })),
    missing: refusal(() => cache.one("nowhere")),
    led: names(secondaries("asked")),
    polled: { themes: secondaries("themes"), domain: secondary("domains"), named: cache.get("themes", { name: "dark" }) },
  };
}

function memories() {
  memo.run.set("word", { word: WORD });
  memo.plugin.set("word", { word: WORD });
  memo.plugin.set("gone", WORD);
  memo.plugin.remove("gone");
  const full = refusal(() => memo.primary.set("long", "x".repeat(5000)));
  const told = { run: memo.run.get("word"), primary: memo.primary.get("done"), plugin: memo.plugin.get("word") };
  return { ...told, gone: memo.plugin.get("gone"), full, prepared: memo.run.get("prepared") };
}

const expected = () => ({
  set: expectations.checkAndSet("word", "1h", () => false),
  pending: expectations.pending(),
  check: expectations.check("word", () => false),
  done: expectations.check("word", () => true),
  gone: expectations.pending(),
  cleared: expectations.clear("word"),
  refused: refusal(() => expectations.expect("", 1)),
});

function registered() {
  const informer = (kind) => ({ informer: { apiVersion: "v1", kind, labelSelector: "nobody=has" } });
  const told = {
    new: sources.register("more", informer("ConfigMap")),
    again: sources.register("more", informer("ConfigMap")),
    found: secondaries("more").length,
    denied: refusal(() => sources.register("keys", informer("Secret"))),
    invalid: refusal(() => sources.register("bad", { informer: {} })),
    declared: refusal(() => sources.deregister("maps")),
    kept: refusal(() => sources.remember("maps", { id: 8 }, { id: 8 })),
    gone: refusal(() => sources.forget("nowhere", "8")),
  };
  sources.deregister("more");
  sources.deregister("more");
  return told;
}

const workflows = () => ({
  managed: workflow.lastResult(),
  dependent: workflow.reconcileDependent("extra"),
  flow: workflow.reconcile("flow"),
  last: workflow.lastResult("flow"),
  removed: workflow.removeDependent("extra"),
  many: workflow.reconcile("many"),
  away: workflow.reconcile("away"),
  seen: secondary("away"),
  brief: [workflow.reconcileDependent("brief"), workflow.removeDependent("brief")],
  unknown: refusal(() => workflow.cleanup("unknown")),
});

const surroundings = () => ({
  info: context.run(),
  config: config(),
  settings: context.settings().controller.workflow.dependents.first.config,
});

/** Returns what is another each time. */
const chance = () => ({
  now: system.now(),
  nowMs: system.nowMs(),
  uuid: system.uuid(),
  bytes: system.randomBytes(8).length,
  leftMs: context.timeLeft(),
  imminent: context.nextImminent(),
  clockMs: Date.now(),
  dice: `${Math.random()}`,
});

function fail({ metadata: { namespace }, spec }, where) {
  const how = spec.fail?.[where];
  if (how === "error" || (how === "once" && !context.run().retry)) throw new Error(`${where} has failed: ${WORD}`);
  if (how === "denied") operations.remove({ apiVersion: "v1", kind: "Secret", namespace, name: "safe" });
  if (how === "explode") explode();
}

function explode() {
  throw new RangeError(`exploded: ${WORD}`);
}

function refusal(call) {
  try {
    return `not refused: ${call()}`;
  } catch (error) {
    if (!(error instanceof CallError)) throw error;
    return { reason: error.reason, code: error.code ?? 0, message: error.message };
  }
}

// What stands in for the daemon in native tests, through the author's API.

import assert from "node:assert/strict";
import { test } from "node:test";

import { cache, config, context, equal, expectations, log, memo, operations, recorder, secondaries, secondary, setCondition, sources, system, workflow } from "@capstan/guest";
import { Daemon } from "@capstan/guest/test";

const configMap = (name, app) => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name, namespace: "web", labels: { app } }, data: { a: "b" } });

/** Four config maps, three of them the primary's, and one primary. */
const caches = () =>
  new Daemon({
    secondaries: { configs: [configMap("b", "web"), configMap("a", "web"), configMap("c", "db")], deployment: { kind: "Deployment" } },
    unrelated: { configs: configMap("theme", "web") },
    primary: { metadata: { name: "one" } },
    indexes: { "by-theme": { dark: ["theme"] } },
  });

test("the cache answers by place and selection", () => {
  const kind = { apiVersion: "v1", kind: "ConfigMap" };
  const table = [
    ["configs", {}, "a b c"],
    ["configs", { everywhere: true }, "a b c theme"],
    ["configs", { limit: 2 }, "a b c"],
    ["configs", { after: "1" }, "b c"],
    ["configs", { labels: "app=web" }, "a b"],
    [kind, { namespace: "web", labels: "app!=web" }, "c"],
    [kind, { namespace: "other" }, ""],
    ["configs", { everywhere: true, labels: "app in (db, x), !old" }, "c"],
    ["configs", { everywhere: true, labels: "app notin (db,x),app" }, "a b theme"],
    ["configs", { everywhere: true, labels: "tier!=front" }, "a b c theme"],
    ["configs", { labels: "tier" }, ""],
    ["configs", { labels: "app == web" }, "a b"],
    ["configs", { index: "by-theme", key: "dark" }, "theme"],
    ["configs", { index: "by-theme", key: "light" }, ""],
    [cache.primaries, {}, "one"],
    ["other", { everywhere: true }, ""],
  ];
  caches().run(() => {
    for (const [place, query, expected] of table) {
      const names = cache.list(place, query).map((object) => object.metadata.name);
      assert.equal(names.join(" "), expected, JSON.stringify([place, query]));
    }
  });
});

test("a source that the controller does not have is refused if the test says which it has", () => {
  const daemon = new Daemon({ sources: ["settings"], secondaries: { configs: [] } });
  const missing = { reason: "missing", message: 'no source is called "setings"; there are: configs, settings' };
  assert.deepEqual(daemon.run(() => [secondary("settings"), secondaries("configs")]), [undefined, []]);
  for (const ask of [() => secondary("setings"), () => secondaries("setings"), () => cache.get("setings", { name: "a" })]) {
    assert.throws(() => daemon.run(ask), missing);
  }
});

test("one object is found by relation or name", () => {
  caches().run(() => {
    assert.deepEqual(secondary("deployment"), { kind: "Deployment" });
    assert.equal(secondary("nothing"), undefined);
    assert.equal(secondaries("configs").length, 3);
    assert.equal(cache.get("configs", { namespace: "web", name: "theme" }).metadata.name, "theme");
    assert.equal(cache.get("configs", { namespace: "other", name: "theme" }), undefined);
    const { items, next } = cache.page("configs", { limit: 2 });
    assert.deepEqual([items.length, next, cache.page("configs", { limit: 2, after: next }).next], [2, "2", undefined]);
  });
});

test("things outside of the cluster are those of the primary", () => {
  const things = { domains: { b: { id: "b" }, a: "any JSON" }, one: { 1: ["a", "list"] } };
  new Daemon({ things, primary: { metadata: { name: "one" } } }).run(() => {
    assert.deepEqual(secondaries("domains"), ["any JSON", { id: "b" }]);
    assert.deepEqual(cache.get("domains", { name: "b" }), { id: "b" });
    assert.equal(cache.get("domains", { name: "c" }), undefined);
    assert.deepEqual(secondary("one"), ["a", "list"]);
    assert.equal(cache.list({ apiVersion: "v1", kind: "ConfigMap" }, {}).length, 0);
  });
});

test("what a test has given is not changed by what is tested", () => {
  const deployment = { kind: "Deployment" };
  new Daemon({ secondaries: { deployment } }).run(() => Object.assign(secondary("deployment"), { kind: "changed" }));
  assert.deepEqual(deployment, { kind: "Deployment" });
});

test("a wrong question says what is wrong", () => {
  const refused = [
    [() => secondary("configs"), { reason: "ambiguous", message: "3 objects belong to the primary" }],
    [() => secondaries("configs", { labels: "a b" }), { reason: "invalid", message: "`a b` is no label selector" }],
  ];
  const wrong = [
    [() => cache.list(undefined), "a place to look is a source's name, { apiVersion, kind }, or cache.primaries"],
    [() => cache.list("configs", { label: "a" }), "there is no option `label`; there is: namespace, everywhere, index and key, labels, fields, newestOnly, limit, after"],
    [() => cache.list("configs", { namespace: "a", everywhere: true }), "of namespace, everywhere and index, a query has one"],
    [() => cache.list("configs", { index: "a" }), "index and key of a query go together"],
    [() => cache.list("configs", { labels: 1 }), "labels is 1, and no text"],
    [() => cache.list("configs", { limit: 1.5 }), "limit: 1.5 is no whole number from 0"],
    [() => cache.get("configs", { namespace: "a" }), "name is missing"],
    [() => operations.remove({ kind: "ConfigMap" }), "a target is an object of the cluster, or { apiVersion, kind, namespace, name }"],
    [() => operations.apply({}, { mode: "fast" }), 'mode: "fast" is none of: usual, match-and-filter, optimistic, cache-only, force-filter, plain'],
    [() => operations.apply({}, { modes: "plain" }), "there is no option `modes`; there is: mode, compareBy, subresource, source, actual"],
    [() => operations.apply({ size: 1n }), "the object is no JSON: Do not know how to serialize a BigInt"],
    [() => recorder.normal("Published"), "the message is missing"],
    [() => workflow.reconcile(1), "the workflow is 1, and no text"],
    [() => memo.run.set("a", undefined), "the value of a is no JSON: undefined"],
    [() => new Daemon({ secondary: {} }), /^a Daemon has no `secondary`; it has: controller, /],
  ];
  caches().run(() => {
    for (const [call, error] of refused) assert.throws(call, { name: "CallError", ...error });
    for (const [call, message] of wrong) assert.throws(call, { name: "TypeError", message });
  });
});

test("fields are cut to what was asked for", () => {
  new Daemon({ secondaries: { configs: configMap("a", "web") } }).run(() => {
    const { data, ...rest } = configMap("a", "web");
    assert.deepEqual(secondaries("configs", { fields: ["/metadata/labels/app", "/spec/x"] }), [rest]);
  });
});

test("writes are recorded and seen by later reads", () => {
  const target = { apiVersion: "v1", kind: "ConfigMap", namespace: "web", name: "a" };
  const daemon = new Daemon({ secondaries: { configs: configMap("a", "old") } });
  const patch = [{ op: "add", path: "/data/e", value: "f" }];
  daemon.run(() => {
    assert.deepEqual(operations.apply(configMap("a", "new")), configMap("a", "new"));
    assert.deepEqual(secondary("configs"), configMap("a", "new"));
    assert.deepEqual(operations.mergePatch(target, { data: { a: null, c: "d" } }).data, { c: "d" });
    operations.jsonPatch(secondary("configs"), patch, { mode: "plain" });
    assert.deepEqual(secondary("configs").data, { c: "d", e: "f" });
    operations.remove(target, { graceSeconds: 0 });
    assert.equal(secondary("configs"), undefined);
    assert.throws(() => operations.mergePatch(target, {}), { reason: "missing", code: 404 });
    operations.create(configMap("a", "new"));
    assert.throws(() => operations.create(configMap("a", "new")), { reason: "conflict", code: 409 });
    operations.update(configMap("a", "new"), { subresource: "status" });
    operations.edit(configMap("a", "new"));
  });
  const body = configMap("a", "new");
  assert.deepEqual(daemon.writes, [
    { verb: "apply", target, body },
    { verb: "mergePatch", target, body: { data: { a: null, c: "d" } } },
    { verb: "jsonPatch", target, body: patch, mode: "plain" },
    { verb: "remove", target },
    { verb: "mergePatch", target, body: {} },
    { verb: "create", target, body },
    { verb: "create", target, body },
    { verb: "update", target, body, subresource: "status" },
    { verb: "edit", target, body },
  ]);
});

test("refused writes fail with their reason and are not recorded", () => {
  const daemon = new Daemon({ refuse: { apply: { reason: "denied", message: "not in the manifest" } } });
  assert.throws(() => daemon.run(() => operations.apply(configMap("a", "x"))), { reason: "denied", message: "not in the manifest" });
  assert.deepEqual(daemon.writes, []);
});

test("finalizers are those of the primary", () => {
  new Daemon({ primary: { apiVersion: "v1", kind: "Page", metadata: { name: "a" } } }).run(() => {
    assert.deepEqual(operations.addFinalizer("x/y").metadata.finalizers, ["x/y"]);
    assert.deepEqual(operations.addFinalizer().metadata.finalizers, ["x/y", "test/finalizer"]);
    assert.deepEqual(operations.removeFinalizer("x/y").metadata.finalizers, ["test/finalizer"]);
  });
  assert.throws(() => new Daemon().run(() => operations.addFinalizer()), { reason: "missing" });
});

test("comparing tolerates additions and what is ignored", () => {
  const actual = { a: 1, b: 2, list: [{ c: 3, d: 4 }], status: { c: 3 } };
  const differs = "the documents differ";
  const table = [
    ["generic", { a: 1 }, [], true],
    ["generic", { a: 2 }, [], differs],
    ["generic", { a: 2 }, ["/a"], true],
    ["generic", { list: [{ c: 3 }] }, [], true],
    ["generic", { list: [] }, [], differs],
    ["equality", { a: 1 }, [], differs],
    ["equality", { a: 1 }, ["/b", "/list", "/status"], true],
    ["status-only", { a: 2, status: { c: 3 } }, [], true],
    ["status-only", { status: { c: 4 } }, [], differs],
  ];
  for (const [by, desired, ignore, expected] of table) {
    assert.equal(operations.compare(by, actual, desired, { ignore }), expected, JSON.stringify([by, desired, ignore]));
  }
});

test("memos last from run to run, by lifetime", () => {
  const daemon = new Daemon({ memos: { plugin: { known: [1] } } });
  daemon.run(() => memo.primary.set("seen", { times: 3 }));
  daemon.run(() => {
    assert.deepEqual([memo.primary.get("seen"), memo.run.get("seen"), memo.plugin.get("known")], [{ times: 3 }, undefined, [1]]);
    memo.primary.remove("seen");
    assert.equal(memo.primary.get("seen"), undefined);
  });
  assert.deepEqual(daemon.memos, { run: {}, primary: {}, plugin: { known: [1] } });
});

test("workflows answer what the test says", () => {
  const pod = { done: [{ key: "pod", operation: "created" }], conditions: [{ role: "activation", met: true, detail: { a: 1 } }] };
  const node = { name: "pod", ...pod, failed: undefined };
  const facts = { workflows: { preview: { nodes: [node] }, "": { complete: false } }, dependents: { pod } };
  new Daemon(facts).run(() => {
    assert.equal(workflow.lastResult(), undefined);
    assert.deepEqual(workflow.reconcile(), { nodes: [], complete: false });
    assert.deepEqual(workflow.lastResult(), { nodes: [], complete: false });
    assert.deepEqual(workflow.cleanup("preview"), { nodes: [node], complete: true });
    assert.deepEqual([workflow.reconcileDependent("pod"), workflow.removeDependent("pod")], [node, node]);
    assert.throws(() => workflow.reconcile("other"), { reason: "missing", message: "the test has no workflow other" });
  });
  const failed = { nodes: [{ name: "pod", failed: "no" }], complete: false };
  new Daemon({ workflowHasRun: failed }).run(() => assert.equal(workflow.lastResult().nodes[0].failed, "no"));
});

test("the run is as the test says", () => {
  const facts = { controller: "pages", retry: { attempt: 2, last: true }, nextImminent: true, primaryDeleted: true, timeLeft: 10 };
  const settings = { controller: { name: "pages" } };
  new Daemon({ ...facts, config: { title: "x" }, settings, now: "2026-02-01T00:00:00Z" }).run(() => {
    const { nextImminent, timeLeft, ...run } = facts;
    assert.deepEqual(context.run(), { ...run, finalStateUnknown: false });
    assert.deepEqual([context.nextImminent(), context.timeLeft()], [true, 10]);
    assert.deepEqual([config(), context.settings()], [{ title: "x" }, settings]);
    assert.deepEqual([system.now(), system.nowMs()], ["2026-02-01T00:00:00Z", Date.UTC(2026, 1, 1)]);
  });
  new Daemon().run(() => {
    assert.deepEqual(context.run(), { controller: "test", retry: undefined, primaryDeleted: false, finalStateUnknown: false });
    assert.match(system.uuid(), /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}$/);
    assert.notEqual(system.uuid(), system.uuid());
    assert.equal(system.randomBytes(3).length, 3);
    assert.equal(new Set(system.randomBytes(10_000)).size > 200, true);
    assert.equal(system.randomBytes(10_000).length, 10_000);
    for (const wrong of [-1, 1.5, NaN, "7"]) assert.throws(() => system.randomBytes(wrong), RangeError);
  });
});

test("log lines and events are recorded", () => {
  const daemon = new Daemon();
  daemon.run(() => {
    log.warn("not so good", { page: "hello", replicas: 1 + 1, spec: { a: [1] }, error: new RangeError("far"), nothing: undefined });
    recorder.normal("Published", "it is online");
    recorder.warning("NoTheme", "later", { key: "theme", labels: { a: "b" } });
  });
  const [{ fields: { error, ...fields }, ...line }] = daemon.logs;
  assert.deepEqual([line, fields], [{ level: "warn", message: "not so good" }, { page: "hello", replicas: "2", spec: '{"a":[1]}', nothing: "undefined" }]);
  assert.match(error, /^RangeError: far at .*daemon\.test\.js:\d+/);
  assert.deepEqual(daemon.events, [
    { severity: "normal", reason: "Published", message: "it is online" },
    { severity: "warning", reason: "NoTheme", message: "later", key: "theme", labels: { a: "b" } },
  ]);
});

test("documents are equal whatever the order of their fields", () => {
  const table = [
    [{ a: 1, b: [1, { c: null }] }, { b: [1, { c: null }], a: 1 }, true],
    [{ a: 1, b: undefined }, { a: 1 }, true],
    [{ a: 1 }, { a: "1" }, false],
    [[1, 2], [2, 1], false],
    [[], {}, false],
    [null, {}, false],
  ];
  for (const [a, b, expected] of table) assert.equal(equal(a, b), expected, JSON.stringify([a, b]));
});

test("a source is registered once and deregistered", () => {
  // ES-4
  const [keys, pods] = ["Secret", "Pod"].map((kind) => ({ informer: { apiVersion: "v1", kind } }));
  const daemon = new Daemon({ registered: { old: pods }, refuseSources: { nodes: { reason: "denied" } } });
  daemon.run(() => {
    assert.deepEqual([sources.register("keys", keys), sources.register("keys", pods)], [true, false]);
    sources.deregister("old");
    sources.deregister("gone");
    assert.throws(() => sources.register("nodes", pods), { reason: "denied", message: "nodes is refused" });
    assert.throws(() => sources.register(1, pods), TypeError);
  });
  assert.deepEqual(daemon.registered, { keys });
});

test("what was written outside of the cluster is recorded", () => {
  // XC-4
  const daemon = new Daemon();
  daemon.run(() => {
    sources.remember("domains", { id: "a" }, null);
    sources.remember("domains", { id: "a", ttl: 1 }, { id: "a" });
    sources.forget("domains", "a");
    assert.throws(() => sources.forget("domains", 7), TypeError);
  });
  assert.deepEqual(daemon.remembered, [
    { source: "domains", actual: { id: "a" } },
    { source: "domains", actual: { id: "a", ttl: 1 }, replaced: { id: "a" } },
    { source: "domains", forgotten: "a" },
  ]);
});

test("the time of a condition changes with its status alone", () => {
  const conditions = [{ type: "Other", status: "Unknown" }];
  const at = (day, status, message) =>
    new Daemon({ now: `2026-01-0${day}T00:00:00Z` }).run(() =>
      setCondition(conditions, { type: "Synced", status, reason: "Copied", message, observedGeneration: 2 }),
    );
  assert.equal(at(1, false, "half"), true);
  assert.equal(at(2, false, "more"), true);
  assert.equal(at(3, "False", "more"), false);
  assert.equal(conditions[1].lastTransitionTime, "2026-01-01T00:00:00Z");
  assert.equal(at(3, true, "all"), true);
  const synced = { type: "Synced", status: "True", observedGeneration: 2, lastTransitionTime: "2026-01-03T00:00:00Z", reason: "Copied", message: "all" };
  assert.deepEqual(conditions, [{ type: "Other", status: "Unknown" }, synced]);
  assert.throws(() => at(3, "yes", "all"), { message: 'the status of the condition: "yes" is none of: True, False, Unknown' });
  assert.throws(() => setCondition(conditions, { type: "Synced", status: true }), { message: "the reason of the condition is missing" });
  assert.throws(() => setCondition(conditions, { kind: "Synced" }), /there is no option `kind`/);
});

test("what is expected is checked and set", () => {
  // XP-1, XP-2, XP-3
  const [yes, no] = [() => true, () => false];
  const daemon = new Daemon();
  daemon.run(() => {
    assert.equal(expectations.check("ready", yes), undefined);
    assert.equal(expectations.checkAndSet("ready", "1s", yes), false);
    assert.equal(expectations.pending(), undefined);
    assert.equal(expectations.checkAndSet("ready", "1s", no), true);
    assert.equal(expectations.check("gone", yes), undefined);
    assert.equal(expectations.check("ready", no), "pending");
    assert.equal(expectations.check("ready", yes), "fulfilled");
    assert.equal(expectations.clear("ready"), false);
    assert.throws(() => expectations.expect("", 1), { reason: "invalid" });
    expectations.expect("gone", 1);
  });
  assert.deepEqual(daemon.expectation, { name: "gone", timedOut: false });
  const late = new Daemon({ expectation: { name: "ready", timedOut: true } });
  assert.deepEqual(late.run(() => [expectations.check("ready", no), expectations.clear("ready")]), ["timed-out", true]);
  assert.equal(late.expectation, undefined);
});

test("half a character is handed over as the character for such", () => {
  const [half, whole] = ["a\ud800", "a\ufffd"];
  const daemon = new Daemon();
  const object = { apiVersion: half, kind: half, metadata: { namespace: half, name: half }, data: { [half]: half } };
  daemon.run(() => {
    operations.apply(object);
    operations.mergePatch(object, { [half]: half });
    recorder.normal(half, half, { labels: { [half]: half } });
    log.info(half, { [half]: half });
    memo.run.set(half, half);
    assert.equal(cache.get({ apiVersion: half, kind: half }, { namespace: half, name: half }).metadata.name, whole);
  });
  const target = { apiVersion: whole, kind: whole, namespace: whole, name: whole };
  assert.deepEqual(daemon.writes.map((write) => write.target), [target, target]);
  assert.deepEqual(daemon.writes[0].body.data, { [whole]: whole });
  assert.deepEqual(daemon.events, [{ severity: "normal", reason: whole, message: whole, labels: { [whole]: whole } }]);
  assert.deepEqual(daemon.logs, [{ level: "info", message: whole, fields: { [whole]: whole } }]);
  assert.deepEqual(daemon.memos.run, { [whole]: whole });
});

test("null among options says nothing, as what is left out", () => {
  const daemon = new Daemon({ secondaries: { configs: [configMap("a", "web")] } });
  daemon.run(() => {
    const query = { labels: null, fields: null, newestOnly: null, limit: null, after: null, namespace: null, everywhere: null, index: null, key: null };
    assert.equal(cache.list("configs", query).length, 1);
    assert.equal(cache.page("configs", query).items.length, 1);
    assert.equal(secondaries("configs", null).length, 1);
    operations.apply(configMap("a", "web"), { mode: null, compareBy: null, subresource: null, source: null, actual: null });
    operations.apply(configMap("a", "web"), null);
    operations.remove(configMap("a", "web"), { propagation: null, uid: null, resourceVersion: null, graceSeconds: null });
    operations.remove(configMap("a", "web"), null);
    assert.equal(operations.compare("equality", { a: 1 }, { a: 1 }, { ignore: null }), true);
    assert.equal(operations.compare("equality", { a: 1 }, { a: 1 }, null), true);
    recorder.normal("A", "b", { key: null, action: null, component: null, labels: null, annotations: null });
    recorder.normal("A", "b", null);
    log.info("a", null);
    const conditions = [];
    setCondition(conditions, { type: "A", status: true, reason: "B", message: null, observedGeneration: null });
    assert.equal(conditions[0].message, "");
  });
  assert.deepEqual(daemon.events, [{ severity: "normal", reason: "A", message: "b" }, { severity: "normal", reason: "A", message: "b" }]);
});

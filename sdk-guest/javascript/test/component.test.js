// What the daemon gets from a component: the contract's documents, texts of failures, and lines in the log.

import assert from "node:assert/strict";
import { test } from "node:test";

import { CallError, cache, context, memo, operations, operator, operators, secondary } from "@capstan/guest";
import { Daemon } from "@capstan/guest/test";

import { component, describe } from "../src/component.js";

const document = JSON.stringify;

/** What the daemon gets when it calls: an answer, or the text of a failure. */
function called(call, facts) {
  const daemon = new Daemon(facts);
  try {
    return { answer: daemon.run(call), logs: daemon.logs };
  } catch (failure) {
    return { failure, logs: daemon.logs };
  }
}

test("an update becomes what the contract wants", () => {
  const nothing = { tag: "nothing" };
  const table = [
    [undefined, nothing, null],
    [null, nothing, null],
    [{}, nothing, null],
    [{ reschedule: 1500.4 }, nothing, 1500],
    [{ reschedule: "1h1m1s1ms" }, nothing, 3_661_001],
    [{ reschedule: 1e300 }, nothing, 2 ** 32 - 1],
    [{ reschedule: 0, status: undefined }, nothing, 0],
    [{ status: { ok: true } }, { tag: "status", val: '{"status":{"ok":true}}' }, null],
    [{ onlyAt: "7" }, nothing, null],
    [{ status: {}, onlyAt: "7" }, { tag: "status", val: '{"status":{},"metadata":{"resourceVersion":"7"}}' }, null],
    [{ object: { metadata: null }, onlyAt: "7" }, { tag: "object", val: '{"metadata":{"resourceVersion":"7"}}' }, null],
    [{ object: { spec: 1 } }, { tag: "object", val: '{"spec":1}' }, null],
    [
      { object: { spec: 1, metadata: { labels: {} } }, status: { ok: true }, onlyAt: "7" },
      { tag: "object-and-status", val: '{"spec":1,"metadata":{"labels":{},"resourceVersion":"7"},"status":{"ok":true}}' },
      null,
    ],
  ];
  for (const [answer, update, rescheduleMs] of table) {
    const { reconciler } = component(operator({ reconcile: () => answer }));
    assert.deepEqual(reconciler.reconcile("{}"), { update, rescheduleMs });
  }
});

test("the answer of a clean-up becomes what the contract wants", () => {
  const table = [
    [undefined, { tag: "remove-finalizer" }],
    [{ keepFinalizer: false }, { tag: "remove-finalizer" }],
    [{ keepFinalizer: false, reschedule: "2s" }, { tag: "remove-finalizer" }],
    [{ keepFinalizer: true }, { tag: "keep-finalizer", val: null }],
    [{ keepFinalizer: true, reschedule: "2s" }, { tag: "keep-finalizer", val: 2000 }],
  ];
  for (const [answer, expected] of table) {
    assert.deepEqual(component(operator({ cleanup: () => answer })).cleaner.cleanup("{}"), expected);
  }
});

test("the answer of an error handler becomes what the contract wants", () => {
  const handled = (status, next) => ({ tag: "handled", val: { status, next } });
  const table = [
    [undefined, { tag: "unhandled" }],
    [{}, handled(null, { tag: "retry" })],
    [{ status: { a: 1 } }, handled('{"status":{"a":1}}', { tag: "retry" })],
    [{ status: { a: 1 }, stop: true }, handled('{"status":{"a":1}}', { tag: "stop" })],
    [{ retryAfter: "3s" }, handled(null, { tag: "retry-after-ms", val: 3000 })],
    [{ reschedule: "2s" }, handled(null, { tag: "reschedule-ms", val: 2000 })],
  ];
  const failed = { origin: "workflow", message: "no", dependents: [], retry: { attempt: 0, last: false } };
  for (const [answer, expected] of table) {
    const { errorHandler } = component(operator({ handleError: (_page, failure) => failure === failed && answer }));
    assert.deepEqual(errorHandler.handleError("{}", failed), expected);
  }
});

test("null says nothing, as what is left out", () => {
  const failed = { origin: "workflow", message: "no" };
  const request = { path: "/", headers: [], body: "" };
  const of = (handlers) => component(operator(handlers));
  const primary = { namespace: null, name: "a" };
  const table = [
    [of({ reconcile: () => ({ status: null, object: null, reschedule: null, onlyAt: null }) }).reconciler.reconcile, { update: { tag: "nothing" }, rescheduleMs: null }],
    [of({ reconcile: () => ({ status: { a: null }, object: null, onlyAt: null }) }).reconciler.reconcile, { update: { tag: "status", val: '{"status":{"a":null}}' }, rescheduleMs: null }],
    [of({ cleanup: () => ({ keepFinalizer: null, reschedule: null }) }).cleaner.cleanup, { tag: "remove-finalizer" }],
    [of({ cleanup: () => ({ keepFinalizer: true, reschedule: null }) }).cleaner.cleanup, { tag: "keep-finalizer", val: null }],
    [() => of({ handleError: () => ({ status: null, stop: null, retryAfter: null, reschedule: null }) }).errorHandler.handleError("{}", failed), { tag: "handled", val: { status: null, next: { tag: "retry" } } }],
    [() => of({ handleError: () => ({ stop: true, retryAfter: null }) }).errorHandler.handleError("{}", failed), { tag: "handled", val: { status: null, next: { tag: "stop" } } }],
    [() => of({ decideRetry: () => ({ after: null, stop: null }) }).retryPolicy.decideRetry("{}", failed), { tag: "declared" }],
    [of({ validate: () => [{ field: null, message: "no" }] }).validator.validate, [{ field: null, message: "no" }]],
    [() => of({ createExternal: { a: () => ({ thing: { id: 1 }, state: null }) } }).external.create("a", "{}", "{}"), { actual: '{"id":1}', state: null }],
    [() => of({ condition: { a: () => ({ met: true, detail: null }) } }).condition.isMet("a", "b", "{}"), { met: true, detail: null }],
    [() => of({ poll: { a: () => [{ namespace: null, name: "a", things: [null] }] } }).poller.poll("a"), [{ primary, resources: ["null"] }]],
    [() => of({ pollOne: { a: () => ({ things: null, again: null }) } }).resourcePoller.pollOne("a", "{}"), { resources: [], againMs: null }],
    [() => of({ receive: { a: () => ({ status: null, text: null, events: null }) } }).inbound.receive("a", request), { status: 202, body: "", events: [] }],
    [() => of({ receive: { a: () => ({ events: [{ namespace: null, name: "a", present: null, gone: null }] }) } }).inbound.receive("a", request), { status: 202, body: "", events: [{ primary, learned: { tag: "wake" } }] }],
    [() => of({ toPrimaries: { a: () => [{ namespace: null, name: "a" }] } }).mapper.toPrimaries("a", "{}"), [primary]],
  ];
  for (const [call, expected] of table) {
    const { answer, failure } = called(() => call("{}"));
    assert.deepEqual(answer ?? failure, expected);
  }
});

test("an empty namespace is none", () => {
  const of = (handlers) => component(operator(handlers));
  const primary = { namespace: null, name: "a" };
  const request = { path: "/", headers: [], body: "" };
  const polled = called(() => of({ poll: { a: () => [{ namespace: "", name: "a", things: [] }] } }).poller.poll("a"));
  assert.deepEqual(polled.answer, [{ primary, resources: [] }]);
  const told = called(() => of({ receive: { a: () => ({ events: [{ namespace: "", name: "a" }] }) } }).inbound.receive("a", request));
  assert.deepEqual(told.answer.events, [{ primary, learned: { tag: "wake" } }]);
  const keys = called(() => of({ toPrimaries: { a: () => ["/a", { namespace: "", name: "a" }] } }).mapper.toPrimaries("a", "{}"));
  assert.deepEqual(keys.answer, [primary, primary]);
  const node = { apiVersion: "v1", kind: "Node", metadata: { name: "a" } };
  const daemon = new Daemon({ unrelated: { nodes: node } });
  daemon.run(() => {
    assert.deepEqual(cache.get("nodes", { namespace: "", name: "a" }), node);
    operations.remove({ ...node, metadata: { name: "a", namespace: "" } });
  });
  assert.deepEqual(daemon.writes[0].target, { apiVersion: "v1", kind: "Node", name: "a" });
});

test("half a character arrives as the character for such", () => {
  const [half, whole] = ["a\ud800", "a\ufffd"];
  const of = (handlers) => component(operator(handlers));
  const request = { path: "/", headers: [], body: "" };
  const primary = { namespace: whole, name: whole };
  const escaped = "\\ud83d";
  const table = [
    [of({ reconcile: () => ({ status: { [half]: half, pair: "\u{1f600}", text: escaped }, onlyAt: half }) }).reconciler.reconcile, {
      update: { tag: "status", val: document({ status: { [whole]: whole, pair: "\u{1f600}", text: escaped }, metadata: { resourceVersion: whole } }) }, rescheduleMs: null,
    }],
    [() => of({ handleError: () => ({ status: { half } }) }).errorHandler.handleError("{}", {}), { tag: "handled", val: { status: document({ status: { half: whole } }), next: { tag: "retry" } } }],
    [of({ validate: () => [half, { field: half, message: half }] }).validator.validate, [{ field: null, message: whole }, { field: whole, message: whole }]],
    [() => of({ match: { a: () => half } }).matcher.match("a", "{}", "{}", "{}"), { tag: "differs", val: whole }],
    [() => of({ condition: { a: () => ({ met: true, detail: half }) } }).condition.isMet("a", "b", "{}"), { met: true, detail: document(whole) }],
    [() => of({ poll: { a: () => [{ namespace: half, name: half, things: [half] }] } }).poller.poll("a"), [{ primary, resources: [document(whole)] }]],
    [() => of({ receive: { a: () => ({ text: half, events: [{ namespace: half, name: half, gone: half }, { namespace: half, name: half, present: half }] }) } }).inbound.receive("a", request), {
      status: 202, body: whole, events: [{ primary, learned: { tag: "gone", val: whole } }, { primary, learned: { tag: "present", val: document(whole) } }],
    }],
    [() => of({ toPrimaries: { a: () => [`${half}/${half}`, { namespace: half, name: half }] } }).mapper.toPrimaries("a", "{}"), [primary, primary]],
  ];
  for (const [call, expected] of table) {
    const { answer, failure } = called(() => call("{}"));
    assert.deepEqual(answer ?? failure, expected);
  }
});

test("a text that is cut is cut between characters", () => {
  const long = "\u{1f600}".repeat(70);
  const { failure } = called(() => component(operator({ cleanup: () => long })).cleaner.cleanup("{}"));
  assert.match(failure, /^TypeError: cleanup answered "(\u{1f600}){59}…;/u);
});

test("a failure as a text is its message", () => {
  const said = [];
  const { errorHandler } = component(operator({ handleError: (_page, failure) => void said.push(`${failure}`, JSON.stringify(failure)) }));
  errorHandler.handleError("{}", { origin: "workflow", message: "no" });
  // Engines have null where nothing is.
  errorHandler.handleError("{}", { origin: "workflow", message: "no", refused: null, dependents: [{ name: "a", message: "b", refused: null }] });
  const dependents = '"dependents":[{"name":"a","message":"b"}]';
  assert.deepEqual(said, ["no", '{"origin":"workflow","message":"no"}', "no", `{"origin":"workflow","message":"no",${dependents}}`]);
});

test("dependents, comparisons and conditions are found by their names", () => {
  const { dependent, matcher, condition } = component(
    operator({
      desired: { service: (page) => ({ data: page.html }), "html-config": () => ({}) },
      match: { "same-html": (actual, desired, page) => actual.html === desired.html && actual.html === page.html, html: () => "html", joined: () => [].join(", ") },
      condition: { "is-there": (page, name) => ({ met: secondary(name) !== undefined, detail: page }), yes: () => true },
    }),
  );
  const page = document({ html: "x" });
  const failures = { failure: (text) => ({ failure: text }), answer: (value) => ({ answer: value }) };
  const table = [
    [() => dependent.desired("service", page), failures.answer('{"data":"x"}')],
    [() => dependent.desired("configmap", page), failures.failure("this component has no desired state for `configmap`; it has: service, html-config")],
    [() => dependent.desired("toString", page), failures.failure("this component has no desired state for `toString`; it has: service, html-config")],
    [() => matcher.match("same-html", page, page, page), failures.answer({ tag: "matches" })],
    [() => matcher.match("same-html", page, "{}", page), failures.answer({ tag: "differs", val: "it differs" })],
    [() => matcher.match("html", page, page, page), failures.answer({ tag: "differs", val: "html" })],
    [() => matcher.match("joined", page, page, page), failures.answer({ tag: "matches" })],
    [() => matcher.match("x", page, page, page), failures.failure("this component has no matcher `x`; it has: same-html, html, joined")],
    [() => condition.isMet("is-there", "service", page), failures.answer({ met: true, detail: page })],
    [() => condition.isMet("yes", "service", page), failures.answer({ met: true, detail: null })],
    [() => condition.isMet("x", "service", page), failures.failure("this component has no condition `x`; it has: is-there, yes")],
  ];
  for (const [call, expected] of table) {
    const { logs, ...seen } = called(call, { secondaries: { service: {} } });
    assert.deepEqual(seen, expected);
  }
});

// BD-1
test("a bulk is a list of objects", () => {
  const { bulk } = component(
    operator({ desiredSet: { themes: (page) => [{ name: page.html }, { name: "b" }], none: () => [], one: () => ({}), texts: () => ["a"] } }),
  );
  const set = (name) => {
    const { answer, failure } = called(() => bulk.desiredSet(name, document({ html: "x" })), {});
    return answer ?? failure;
  };
  assert.deepEqual(set("themes"), ['{"name":"x"}', '{"name":"b"}']);
  assert.deepEqual(set("none"), []);
  assert.equal(set("one"), "TypeError: desiredSet.one answered {}; it has to be a list of objects");
  assert.equal(set("texts"), 'TypeError: desiredSet.texts: "a" is no object');
  assert.equal(set("x"), "this component has no desired set for `x`; it has: themes, none, one, texts");
});

// XD-1, XD-2
test("what is outside of the cluster is written by three functions", () => {
  const gone = [];
  const { external } = component(
    operator({
      createExternal: {
        plain: (desired, page) => ({ thing: { id: 1, ...desired, of: page.html } }),
        remembered: () => ({ thing: { id: 1 }, state: { data: { id: "1" } } }),
        bare: () => ({ id: 1 }),
        odd: () => ({ thing: { id: 1 }, state: "a" }),
      },
      updateExternal: { plain: (actual, desired) => ({ ...actual, ...desired }), none: () => {} },
      removeExternal: { plain: (actual) => void gone.push(actual), odd: () => true },
    }),
  );
  const page = document({ html: "x" });
  const result = (work) => {
    const { answer, failure } = called(work, {});
    return failure ?? answer;
  };
  assert.deepEqual(result(() => external.create("plain", '{"a":2}', page)), { actual: '{"id":1,"a":2,"of":"x"}', state: null });
  assert.deepEqual(result(() => external.create("remembered", "{}", page)), { actual: '{"id":1}', state: '{"data":{"id":"1"}}' });
  assert.equal(result(() => external.update("plain", '{"id":1,"a":2}', '{"a":3}', page)), '{"id":1,"a":3}');
  assert.equal(result(() => external.remove("plain", '{"id":1}', page)), undefined);
  assert.deepEqual(gone, [{ id: 1 }]);
  for (const [work, said] of [
    [() => external.create("bare", "{}", page), 'TypeError: createExternal.bare answered {"id":1}; it has to be { thing, state }, with the thing as it is now'],
    [() => external.create("odd", "{}", page), 'TypeError: createExternal.odd: state: "a" is no object'],
    [() => external.update("none", "{}", "{}", page), "TypeError: updateExternal.none answered undefined; it has to be the thing as it is now"],
    [() => external.remove("odd", "{}", page), "TypeError: removeExternal.odd answered true; it answers nothing"],
    [() => external.remove("x", "{}", page), "this component has no remover of `x`; it has: plain, odd"],
  ]) {
    assert.equal(result(work), said);
  }
});

test("when a failed run is retried is told as the contract wants it", () => {
  const failed = { failureClass: "out-of-memory", message: "no", retry: { attempt: 1, last: false } };
  for (const [answer, expected] of [
    [undefined, { tag: "declared" }],
    [{}, { tag: "declared" }],
    [{ after: "5s" }, { tag: "after-ms", val: 5000 }],
    [{ stop: true }, { tag: "stop" }],
  ]) {
    const { retryPolicy } = component(operator({ decideRetry: (_page, given) => given === failed && answer }));
    assert.deepEqual(called(() => retryPolicy.decideRetry("{}", failed), {}).answer, expected);
  }
  const { retryPolicy } = component(operator({ decideRetry: () => ({ after: 1, stop: true }) }));
  assert.equal(called(() => retryPolicy.decideRetry("{}", failed), {}).failure, "TypeError: decideRetry: stop and after exclude each other");
});

test("what is wrong with a primary is a list, whatever is answered", () => {
  const of = (answer) => called(() => component(operator({ validate: () => answer })).validator.validate("{}"), {});
  const no = { field: null, message: "no" };
  for (const [answer, expected] of [
    [undefined, []],
    [[], []],
    ["no", [no]],
    [["no", { field: "spec.html", message: "so" }], [no, { field: "spec.html", message: "so" }]],
  ]) {
    assert.deepEqual(of(answer).answer, expected);
  }
  assert.equal(of({ message: 1 }).failure, "TypeError: validate: message: 1 is no text");
  assert.equal(of([{ field: 1, message: "no" }]).failure, "TypeError: validate: field: 1 is no text");
  const { validator } = component(operators({ a: { validate: () => "no" }, b: { reconcile() {} } }));
  assert.deepEqual(["a", "b"].map((controller) => called(() => validator.validate("{}"), { controller }).answer.length), [1, 0]);
});

test("a run is prepared, and nothing is answered", () => {
  const of = (initialize) => component(operator({ initialize })).initializer;
  const failures = () => "initialize answered {\"ready\":true}; it answers nothing; `memo.run` hands values to the calls that follow";
  assert.equal(called(() => of(() => {}).initialize("{}"), {}).answer, undefined);
  assert.equal(called(() => of(() => ({ ready: true })).initialize("{}"), {}).failure, `TypeError: ${failures()}`);
});

test("of several controllers, that of the run is called", () => {
  const { reconciler, cleaner, errorHandler, retryPolicy, initializer, dependent } = component(
    operators({
      webpage: { reconcile: () => ({ status: { of: context.run().controller } }), desired: { service: () => ({}) } },
      theme: { cleanup: () => ({ keepFinalizer: true }), handleError: () => ({}), decideRetry: () => ({ stop: true }), initialize: () => memo.run.set("a", 1) },
    }),
  );
  const of = (controller, call) => called(call, { controller });
  assert.equal(of("webpage", () => reconciler.reconcile("{}")).answer.update.val, '{"status":{"of":"webpage"}}');
  assert.equal(of("theme", () => reconciler.reconcile("{}")).failure, "this component has no reconcile for the controller `theme`; it has: webpage");
  assert.equal(of("theme", () => dependent.desired("service", "{}")).failure, "this component has no desired state for `service`; it has: none");
  const cleanups = ["webpage", "theme"].map((name) => of(name, () => cleaner.cleanup("{}")).answer.tag);
  assert.deepEqual(cleanups, ["remove-finalizer", "keep-finalizer"]);
  const handled = ["webpage", "theme"].map((name) => of(name, () => errorHandler.handleError("{}", {})).answer.tag);
  assert.deepEqual(handled, ["unhandled", "handled"]);
  const retried = ["webpage", "theme"].map((name) => of(name, () => retryPolicy.decideRetry("{}", {})).answer.tag);
  assert.deepEqual(retried, ["declared", "stop"]);
  assert.equal(of("webpage", () => initializer.initialize("{}")).answer, undefined);
  assert.equal(of("theme", () => initializer.initialize("{}")).answer, undefined);
});

test("beside all runs, the function of the controller is found in its settings", () => {
  const seen = [];
  const noting = (answer) => () => {
    seen.push(context.run());
    return answer;
  };
  const { validator, poller, resourcePoller, inbound, filter, mapper, secondaryMapper } = component(
    operators({
      web: {
        validate: noting("no"), poll: { a: noting([]) }, pollOne: { a: noting() }, receive: { a: noting() }, accepts: { a: noting(true) },
        toPrimaries: { a: noting() }, toSecondaries: { a: noting() },
      },
      other: { reconcile() {} },
    }),
  );
  const request = { path: "/", headers: [], body: "" };
  for (const call of [
    () => validator.validate("{}").length === 1, () => poller.poll("a"), () => resourcePoller.pollOne("a", "{}"), () => inbound.receive("a", request),
    () => filter.accepts("a", { tag: "added", val: "{}" }), () => mapper.toPrimaries("a", "{}"), () => secondaryMapper.toSecondaries("a", "{}"),
  ]) {
    const { answer, failure } = called(call, { controller: "web", beside: true });
    assert.ok(answer, failure);
  }
  assert.deepEqual(seen, Array(7).fill(undefined));
});

test("only what some controller registers is exported", () => {
  const nothing = () => {};
  const all = { reconcile: nothing, cleanup: nothing, handleError: nothing, decideRetry: nothing, validate: nothing, initialize: nothing, desired: { a: nothing }, desiredSet: { j: nothing }, createExternal: { k: nothing }, updateExternal: { k: nothing }, removeExternal: { k: nothing }, match: { b: nothing }, condition: { c: nothing }, poll: { d: nothing }, pollOne: { e: nothing }, receive: { i: nothing }, accepts: { f: nothing }, toPrimaries: { g: nothing }, toSecondaries: { h: nothing } };
  assert.deepEqual(describe(operator({ desired: { a: nothing }, match: {} })), { interfaces: ["dependent", "description"], controllers: [{ name: undefined, handlers: ["desired a"] }] });
  assert.deepEqual(describe(operators({ x: { reconcile: nothing }, y: all })), {
    interfaces: ["reconciler", "cleaner", "error-handler", "retry-policy", "validator", "initializer", "dependent", "bulk", "external", "matcher", "condition", "poller", "resource-poller", "inbound", "filter", "mapper", "secondary-mapper", "description"],
    controllers: [
      { name: "x", handlers: ["reconcile"] },
      { name: "y", handlers: ["reconcile", "cleanup", "handleError", "decideRetry", "validate", "initialize", "desired a", "desiredSet j", "createExternal k", "updateExternal k", "removeExternal k", "match b", "condition c", "poll d", "pollOne e", "receive i", "accepts f", "toPrimaries g", "toSecondaries h"] },
    ],
  });
  assert.equal(describe({ reconcile: nothing }), undefined);
});

// LC-15
test("a component describes the names of what is registered", () => {
  const nothing = () => {};
  const one = component(operator({ reconcile: nothing, desired: { configmap: nothing, service: nothing } }));
  assert.deepEqual(called(() => one.description.describe(), {}).answer, [
    { exported: "reconciler", controller: null, names: null },
    { exported: "dependent", controller: null, names: ["configmap", "service"] },
  ]);
  const several = component(operators({ page: { condition: { ready: nothing } }, theme: { cleanup: nothing } }));
  assert.deepEqual(called(() => several.description.describe(), {}).answer, [
    { exported: "condition", controller: "page", names: ["ready"] },
    { exported: "cleaner", controller: "theme", names: null },
  ]);
});

test("what is polled becomes what the contract wants, and belongs to no run", () => {
  const { poller, resourcePoller } = component(
    operator({
      poll: {
        themes: () => [{ namespace: "web", name: "hello", things: [{ id: 1 }, "x"] }, { name: "all", things: [] }],
        text: () => "x",
        half: () => [{ things: [] }],
        none: () => [{ name: "a" }],
      },
      pollOne: {
        domains: (page) => [{ id: page.html }],
        soon: () => ({ again: "2s" }),
        nothing: () => {},
        number: () => 7,
      },
    }),
  );
  const list = "it has to be a list of { namespace, name, things }, one for each primary";
  const table = [
    [() => poller.poll("themes"), [
      { primary: { namespace: "web", name: "hello" }, resources: ['{"id":1}', '"x"'] },
      { primary: { namespace: null, name: "all" }, resources: [] },
    ]],
    [() => poller.poll("text"), `TypeError: poll.text answered "x"; ${list}`],
    [() => poller.poll("half"), `TypeError: poll.half answered {"things":[]}; ${list}`],
    [() => poller.poll("none"), "TypeError: poll.none: things: undefined is no list"],
    [() => poller.poll("x"), "this component has no poller of `x`; it has: themes, text, half, none"],
    [() => resourcePoller.pollOne("domains", document({ html: "x" })), { resources: ['{"id":"x"}'], againMs: null }],
    [() => resourcePoller.pollOne("soon", "{}"), { resources: [], againMs: 2000 }],
    [() => resourcePoller.pollOne("nothing", "{}"), { resources: [], againMs: null }],
    [() => resourcePoller.pollOne("number", "{}"), "TypeError: pollOne.number answered 7; it has to be a list of things, or { things, again }"],
  ];
  for (const [call, expected] of table) {
    const { answer, failure } = called(call);
    assert.deepEqual(answer ?? failure, expected);
  }
});

test("a request becomes what it says, and its answer", () => {
  const { inbound } = component(
    operator({
      receive: {
        builds: ({ body }) => ({ events: [{ namespace: "n", name: "a", present: JSON.parse(body) }, { name: "b" }, { namespace: "n", name: "a", gone: "7" }] }),
        echo: ({ path, headers, body }) => ({ status: 200, text: `${path} ${headers["x-kind"]} ${body}` }),
        nothing: () => {},
        number: () => 7,
        low: () => ({ status: 99 }),
        both: () => ({ events: [{ name: "a", present: 1, gone: "7" }] }),
        number7: () => ({ events: [{ name: "a", gone: 7 }] }),
        half: () => ({ events: [{ name: "a", gone: 7.5 }] }),
        nobody: () => ({ events: [{}] }),
      },
    }),
  );
  const pair = (value) => ({ name: "x-kind", value });
  const request = { path: "/x?y", headers: [pair("push"), pair("more")], body: '{"id":1}' };
  const of = (namespace, name, learned) => ({ primary: { namespace, name }, learned });
  const table = [
    ["builds", { status: 202, body: "", events: [of("n", "a", { tag: "present", val: '{"id":1}' }), of(null, "b", { tag: "wake" }), of("n", "a", { tag: "gone", val: "7" })] }],
    ["echo", { status: 200, body: '/x?y push, more {"id":1}', events: [] }],
    ["nothing", { status: 202, body: "", events: [] }],
    ["number", "TypeError: receive.number answered 7; it has to be { status, text, events }"],
    ["low", "TypeError: receive.low: status: 99 is not from 200 to 599"],
    ["number7", { status: 202, body: "", events: [of(null, "a", { tag: "gone", val: "7" })] }],
    ["half", "TypeError: receive.half: gone: 7.5 is neither a text nor a whole number"],
    ["both", "TypeError: receive.both: the event of a has both present and gone"],
    ["nobody", "TypeError: receive.nobody answered {}; an event has to be { namespace, name }, with present or gone or neither"],
    ["x", "this component has no receiver of `x`; it has: builds, echo, nothing, number, low, both, number7, half, nobody"],
  ];
  for (const [name, expected] of table) {
    const { answer, failure } = called(() => inbound.receive(name, request));
    assert.deepEqual(answer ?? failure, expected);
  }
});

test("filters and mappers answer as the contract wants, and belong to no run", () => {
  const { filter, mapper, secondaryMapper } = component(
    operator({
      accepts: {
        renamed: ({ sort, object, before }) => sort === "updated" && object.name !== before.name,
        missed: ({ sort, finalStateUnknown }) => sort === "deleted" && finalStateUnknown,
        added: ({ sort, object }) => sort === "added" && object.name === "a",
        text: () => "yes",
      },
      toPrimaries: { pages: ({ pages }) => pages, none: () => {}, text: () => "a", number: () => [7], half: () => [{ namespace: "n" }] },
      toSecondaries: { themes: ({ theme }) => [theme] },
    }),
  );
  const keys = "it has to be a list of texts, `name` or `namespace/name`, or of { namespace, name }";
  const a = document({ name: "a" });
  const updated = (before, after) => ({ tag: "updated", val: { before: document({ name: before }), after: document({ name: after }) } });
  const deleted = (finalStateUnknown) => ({ tag: "deleted", val: { last: a, finalStateUnknown } });
  const table = [
    [() => filter.accepts("renamed", updated("a", "b")), true],
    [() => filter.accepts("renamed", updated("a", "a")), false],
    [() => filter.accepts("missed", deleted(true)), true],
    [() => filter.accepts("missed", deleted(false)), false],
    [() => filter.accepts("added", { tag: "added", val: a }), true],
    [() => filter.accepts("text", deleted(true)), 'TypeError: accepts.text answered "yes"; it has to be true or false'],
    [() => filter.accepts("x", deleted(true)), "this component has no filter `x`; it has: renamed, missed, added, text"],
    [() => mapper.toPrimaries("pages", document({ pages: ["a", "n/b", { name: "c" }, { namespace: "m", name: "d" }] })), [
      { namespace: null, name: "a" }, { namespace: "n", name: "b" }, { namespace: null, name: "c" }, { namespace: "m", name: "d" },
    ]],
    [() => mapper.toPrimaries("none", "{}"), []],
    [() => mapper.toPrimaries("text", "{}"), `TypeError: toPrimaries.text answered "a"; ${keys}`],
    [() => mapper.toPrimaries("number", "{}"), `TypeError: toPrimaries.number answered 7; ${keys}`],
    [() => mapper.toPrimaries("half", "{}"), `TypeError: toPrimaries.half answered {"namespace":"n"}; ${keys}`],
    [() => mapper.toPrimaries("x", "{}"), "this component has no mapper `x`; it has: pages, none, text, number, half"],
    [() => secondaryMapper.toSecondaries("themes", document({ theme: "dark" })), [{ namespace: null, name: "dark" }]],
    [() => secondaryMapper.toSecondaries("x", "{}"), "this component has no secondary mapper `x`; it has: themes"],
  ];
  for (const [call, expected] of table) {
    const { answer, failure } = called(call);
    assert.deepEqual(answer ?? failure, expected);
  }
});

test("what is thrown becomes the text of the failure", () => {
  class PageError extends Error {}
  const table = [
    [new Error("no HTML"), "no HTML"],
    [new PageError("no HTML"), "no HTML"],
    [new TypeError("no text"), "TypeError: no text"],
    [new Error(""), "an error without a message"],
    [new RangeError(""), "RangeError"],
    ["", "an error without a message"],
    [new CallError({ reason: "denied", code: 0, message: "not in the manifest" }), "not in the manifest"],
    ["no HTML", "no HTML"],
    [undefined, "thrown: undefined"],
    [{ a: 1 }, 'thrown: {"a":1}'],
    ["half \ud800 a character", "half \ufffd a character"],
    [Object.assign(new Error("no HTML"), { name: Symbol("odd") }), "Symbol(odd): no HTML"],
    [Object.assign(new Error(), { message: Object.create(null) }), "something was thrown that can't be told"],
    [Object.defineProperty(new Error("no HTML"), "message", { get: () => { throw new Error("no"); } }), "something was thrown that can't be told"],
    [Object.defineProperty(new Error("no HTML"), "stack", { get: () => { throw new Error("no"); } }), "no HTML"],
  ];
  for (const [thrown, failure] of table) {
    const { reconciler } = component(operator({ reconcile: () => { throw thrown; } }));
    assert.equal(called(() => reconciler.reconcile("{}")).failure, failure);
  }
  const { reconciler } = component(operator({ reconcile: () => {} }));
  assert.match(called(() => reconciler.reconcile("{")).failure, /^SyntaxError: /);
});

test("a failure arrives with its stack, and with that of its cause", () => {
  function configmap() {
    throw new TypeError("no HTML", { cause: new Error("no page") });
  }
  const { dependent } = component(operator({ desired: { configmap } }));
  const { logs } = called(() => dependent.desired("configmap", "{}"));
  const [{ level, message, fields: { stack, ...fields } }] = logs;
  assert.deepEqual({ level, message, fields }, { level: "warn", message: "an error was thrown", fields: { function: "desired.configmap", error: "TypeError: no HTML" } });
  assert.match(stack, /^(Object\.)?configmap \(file:.*component\.test\.js:\d+\) < .*; caused by no page: (Object\.)?configmap \(file:/);
});

test("a refusal is an error with a reason, which can be caught", () => {
  const refuse = { apply: { reason: "conflict", code: 409, message: "somebody was faster" }, remove: { reason: "denied", message: "no" } };
  new Daemon({ refuse }).run(() => {
    const object = { apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a" } };
    const seen = ({ name, reason, code, message }) => ({ name, reason, code, message });
    const error = (call) => {
      try {
        call();
      } catch (error) {
        return error;
      }
    };
    const conflict = error(() => operations.apply(object));
    assert.ok(conflict instanceof CallError && conflict.stack.includes("component.test.js"));
    assert.deepEqual(seen(conflict), { name: "CallError", reason: "conflict", code: 409, message: "somebody was faster" });
    assert.deepEqual(seen(error(() => operations.remove(object))), { name: "CallError", reason: "denied", code: undefined, message: "no" });
  });
});

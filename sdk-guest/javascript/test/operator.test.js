// What an author can register, and what a mistake there says.

import assert from "node:assert/strict";
import { test } from "node:test";

import { operator, operators } from "@capstan/guest";

test("the functions of an operator can be called as they are", () => {
  const webpage = operator({
    reconcile: (page) => ({ status: { seen: page.name } }),
    desired: { service: (page) => ({ metadata: { name: page.name } }) },
  });
  assert.deepEqual(webpage.reconcile({ name: "a" }), { status: { seen: "a" } });
  assert.deepEqual(webpage.desired.service({ name: "a" }), { metadata: { name: "a" } });
  assert.deepEqual(Object.keys(webpage), ["reconcile", "desired"]);
});

test("methods find each other, in an object and in a class", () => {
  const handlers = {
    reconcile(page) {
      return { status: this.desired.service(page) };
    },
    desired: {
      service(page) {
        return { kind: this.kind(), page };
      },
      kind: () => ({}),
    },
  };
  assert.deepEqual(operator(handlers).reconcile("a"), { status: { kind: {}, page: "a" } });

  class Themes {
    reconcile() {
      return { status: { theme: this.theme() } };
    }
    theme() {
      return "dark";
    }
  }
  assert.deepEqual(operator(new Themes()).reconcile(), { status: { theme: "dark" } });
});

test("several controllers are known by their names", () => {
  const both = operators({ webpage: { reconcile: () => {} }, theme: operator({ cleanup: () => {} }) });
  assert.deepEqual([Object.keys(both), Object.keys(both.theme)], [["webpage", "theme"], ["cleanup"]]);
});

test("a mistake is found when the module loads, and named", () => {
  const nothing = () => {};
  const known = "it knows: reconcile, cleanup, handleError, decideRetry, validate, initialize, desired, desiredSet, createExternal, updateExternal, removeExternal, match, condition, poll, pollOne, receive, accepts, toPrimaries, toSecondaries";
  const ordinary = "a component is called synchronously, so write an ordinary function";
  const table = [
    [{ reconsile: nothing }, `operator() does not know \`reconsile\`; ${known}`],
    [{}, `operator() is given nothing to do; ${known}`],
    [{ desired: {} }, `operator() is given nothing to do; ${known}`],
    [undefined, "operator() needs an object"],
    [{ reconcile: "nothing" }, "operator(): reconcile is no function"],
    [{ desired: nothing }, "operator(): desired needs an object"],
    [{ desired: { service: {} } }, "operator(): desired.service is no function"],
    [{ reconcile: async () => {} }, `operator(): reconcile is of the type AsyncFunction; ${ordinary}`],
    [{ match: { *data() {} } }, `operator(): match.data is of the type GeneratorFunction; ${ordinary}`],
  ];
  for (const [handlers, message] of table) assert.throws(() => operator(handlers), { name: "TypeError", message });
  assert.throws(() => operators({ webpage: { reconsile: nothing } }), { message: `operators(): webpage does not know \`reconsile\`; ${known}` });
  assert.throws(() => operators({}), { message: /^operators\(\) is given no controller: / });
});

test("a wrong answer is found without a component", () => {
  const says = (handlers, call, message) => assert.throws(() => call(operator(handlers)), { name: "TypeError", message });
  const answer = "it may answer nothing, or an object with object, status, reschedule, onlyAt";
  const table = [
    [{ statsu: {}, x: 1 }, `reconcile answered \`statsu\`, \`x\`; ${answer}`],
    ["done", `reconcile answered "done"; ${answer}`],
    [[], `reconcile answered []; ${answer}`],
    [Promise.resolve(), "reconcile answered a promise; a component is called synchronously, so write it without async, await and promises"],
    [{ status: "good" }, 'reconcile: status: "good" is no object'],
    [{ status: { size: 1n } }, "reconcile is no JSON: Do not know how to serialize a BigInt"],
    [{ reschedule: "soon" }, 'reconcile: reschedule: "soon" is no duration; write milliseconds, or a text such as "30s" or "1h30m"'],
    [{ onlyAt: 7, status: {} }, "reconcile: onlyAt: 7 is no resourceVersion, which is a text"],
    [{ reschedule: Infinity }, 'reconcile: reschedule: Infinity is no duration; write milliseconds, or a text such as "30s" or "1h30m"'],
    [{ reschedule: NaN }, 'reconcile: reschedule: NaN is no duration; write milliseconds, or a text such as "30s" or "1h30m"'],
    [{ reschedule: -1 }, 'reconcile: reschedule: -1 is no duration; write milliseconds, or a text such as "30s" or "1h30m"'],
  ];
  for (const [wrong, message] of table) says({ reconcile: () => wrong }, (operator) => operator.reconcile(), message);
  says({ cleanup: () => ({ reschedule: -1 }) }, (operator) => operator.cleanup(), 'cleanup: reschedule: -1 is no duration; write milliseconds, or a text such as "30s" or "1h30m"');
  says({ handleError: () => ({ stop: true, reschedule: 1 }) }, (operator) => operator.handleError(), "handleError: stop, retryAfter and reschedule exclude each other");
  says(
    { desired: { service: () => {} } },
    (operator) => operator.desired.service(),
    "desired.service answered undefined; it has to be an object; that a dependent should not exist is said by a precondition in the manifest",
  );
  says({ match: { data: () => {} } }, (operator) => operator.match.data(), "match.data answered undefined; it has to be true, false, or a text that says what differs");
  says({ condition: { ready: () => 1 } }, (operator) => operator.condition.ready(), "condition.ready answered 1; it has to be true, false, or { met, detail }");
});

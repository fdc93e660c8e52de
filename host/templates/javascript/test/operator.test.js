// What a {{kind}} needs and is told, as values.

import assert from "node:assert/strict";
import { test } from "node:test";

import operator from "../src/operator.js";

const primary = (greeting) => ({ metadata: { name: "hello" }, spec: { greeting, name: "Ada" } });

test("the config map has the greeting", () => {
  assert.deepEqual(operator.desired.configmap(primary("Hello, {name}!")), {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "hello" },
    data: { text: "Hello, Ada!" },
  });
});

test("the status says the same", () => {
  assert.deepEqual(operator.reconcile(primary("Hello, {name}!")), { status: { text: "Hello, Ada!" } });
});

test("a greeting without a name is wrong", () => {
  assert.deepEqual(operator.validate(primary("Hello!")), [{ field: "spec.greeting", message: "{name} is missing" }]);
  assert.deepEqual(operator.validate(primary("Hello, {name}!")), []);
});

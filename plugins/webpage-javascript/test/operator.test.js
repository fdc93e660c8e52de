// What a page needs and is told, as values.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Daemon } from "@capstan/guest/test";

import webpage from "../src/operator.js";

const GOOD = "<html><body>hello</body></html>";
const WRONG = "spec.html needs <html> and </html>";

const page = (html) => ({
  apiVersion: "sample.capstan.dev/v1",
  kind: "WebPage",
  metadata: { name: "hello", namespace: "web", generation: 3 },
  spec: { html, exposed: true },
});

const failure = { origin: "workflow", message: "configmap: it did not work", dependents: [], retry: { attempt: 0, last: false } };

test("a good page is told so from the page alone", () => {
  const daemon = new Daemon();
  const status = { areWeGood: true, htmlConfigMap: "hello-html", observedGeneration: 3 };
  assert.deepEqual(daemon.run(() => webpage.reconcile(page(GOOD))), { status });
  assert.deepEqual(daemon.logs, [{ level: "debug", message: "page is published", fields: { html_config_map: "hello-html" } }]);
});

test("bad HTML fails the config map and ends in the status", () => {
  for (const html of ["hello", "<html>", "</html>", ""]) {
    assert.throws(() => webpage.desired.configmap(page(html)), { message: WRONG });
    const status = { areWeGood: false, errorMessage: WRONG, observedGeneration: 3 };
    assert.deepEqual(webpage.handleError(page(html), failure), { status, stop: true }, html);
  }
});

test("a failure of a good page is retried", () => {
  assert.equal(webpage.handleError(page(GOOD), failure), undefined);
});

test("the config map has the page", () => {
  assert.deepEqual(webpage.desired.configmap(page(GOOD)), {
    apiVersion: "v1",
    kind: "ConfigMap",
    metadata: { name: "hello-html", labels: { app: "hello" } },
    data: { "index.html": GOOD },
  });
});

test("the deployment mounts the config map", () => {
  const { metadata, spec } = webpage.desired.deployment(page(GOOD));
  assert.equal(metadata.name, "hello");
  const { containers, volumes } = spec.template.spec;
  assert.deepEqual(volumes, [{ name: "html", configMap: { name: "hello-html" } }]);
  assert.equal(containers[0].volumeMounts[0].name, "html");
});

test("deployment and service select the same pods", () => {
  const deployment = webpage.desired.deployment(page(GOOD));
  const service = webpage.desired.service(page(GOOD));
  const labels = { app: "hello" };
  assert.deepEqual(deployment.spec.selector.matchLabels, labels);
  assert.deepEqual(deployment.spec.template.metadata.labels, labels);
  assert.deepEqual(service.spec.selector, labels);
});

test("the ingress leads to the service", () => {
  const service = webpage.desired.service(page(GOOD));
  const ingress = webpage.desired.ingress(page(GOOD));
  const backend = ingress.spec.rules[0].http.paths[0].backend.service;
  assert.deepEqual(backend, { name: service.metadata.name, port: { number: service.spec.ports[0].port } });
});

test("every dependent of the manifest is there", () => {
  const manifest = readFileSync(new URL("../webpage-javascript.yaml", import.meta.url), "utf8");
  const [, dependents] = manifest.split("dependents:");
  const names = [...dependents.matchAll(/^ {10}(\w+):$/gm)].map(([, name]) => name);
  assert.deepEqual(Object.keys(webpage.desired), names);
});

// Runs workflows and dependents by hand, and says what became of the managed workflow.
//
// The daemon calls `desired` and the like in another instance of the component; values for them go through `memo`.

import { workflow as daemon } from "#daemon";
import { optionalText, text } from "./check.js";
import { ask } from "./error.js";

/** Reconciles the managed workflow, which must be explicit, or a standalone one by its name. */
export function reconcile(name) {
  return result(ask(() => daemon.reconcile(optionalText(name, "the workflow"))));
}

/** Deletes what a workflow has made, leaves first. */
export function cleanup(name) {
  return result(ask(() => daemon.cleanup(optionalText(name, "the workflow"))));
}

/** Reconciles one standalone dependent. */
export function reconcileDependent(name) {
  return node(ask(() => daemon.reconcileDependent(text(name, "the dependent"))));
}

/** Deletes one standalone dependent. */
export function removeDependent(name) {
  return node(ask(() => daemon.removeDependent(text(name, "the dependent"))));
}

/** Returns what became of a workflow in this run; `undefined` if it has not run. */
export function lastResult(name) {
  const last = daemon.lastResult(optionalText(name, "the workflow"));
  return last == null ? undefined : result(last);
}

function result({ nodes, complete }) {
  return { nodes: nodes.map(node), complete };
}

function node({ name, done, conditions, failed }) {
  return { name, done, conditions: conditions.map(condition), failed: failed ?? undefined };
}

function condition({ role, met, detail }) {
  return { role, met, detail: detail == null ? undefined : JSON.parse(detail) };
}

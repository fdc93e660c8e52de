// Writes to the cluster, beyond what the workflow and the answer of `reconcile` do.

import { operations as daemon } from "#daemon";
import { json } from "./answers.js";
import { choice, given, optionalCount, optionalNamespace, optionalText, refuse, text, texts } from "./check.js";
import { ask } from "./error.js";

/** Creates an object; a `conflict` if it exists. */
export function create(object, options) {
  return written(() => daemon.create(json(object, "the object"), writing(options)));
}

/**
 * Applies an object: server-side apply with the controller's field manager. Sent exactly as given. Forced if the object is the
 * primary's; of any other, fields that another manager has are a `conflict`.
 */
export function apply(object, options) {
  return written(() => daemon.apply(json(object, "the object"), writing(options)));
}

/** Applies an object like `apply`, but forced, whosever it is: takes fields from other managers. */
export function forceApply(object, options) {
  return written(() => daemon.forceApply(json(object, "the object"), writing(options)));
}

/** Replaces an object. */
export function update(object, options) {
  return written(() => daemon.update(json(object, "the object"), writing(options)));
}

/** Sends the JSON patch that leads from the cached object to this one. */
export function edit(object, options) {
  return written(() => daemon.edit(json(object, "the object"), writing(options)));
}

/** Sends a JSON patch (RFC 6902). */
export function jsonPatch(target, patch, options) {
  return written(() => daemon.jsonPatch(reference(target), json(patch, "the patch"), writing(options)));
}

/** Sends a JSON merge patch (RFC 7386). */
export function mergePatch(target, patch, options) {
  return written(() => daemon.mergePatch(reference(target), json(patch, "the patch"), writing(options)));
}

/** Deletes an object. It is a success if it is gone already. */
export function remove(target, options) {
  ask(() => daemon.remove(reference(target), removing(options)));
}

/** Adds a finalizer to the primary; without a name the controller's. */
export function addFinalizer(finalizer) {
  return written(() => daemon.addFinalizer(optionalText(finalizer, "the finalizer")));
}

/** Removes a finalizer from the primary; without a name the controller's. Returns the last known primary if it is gone. */
export function removeFinalizer(finalizer) {
  return written(() => daemon.removeFinalizer(optionalText(finalizer, "the finalizer")));
}

/** Compares without writing: true, or a text that says what differs. */
export function compare(by, actual, desired, options) {
  const { ignore = [] } = given(options);
  const documents = [json(actual, "the actual object"), json(desired, "the desired object")];
  const answer = ask(() => daemon.compare(choice(by, "the comparison", COMPARISONS), ...documents, texts(ignore, "ignore")));
  return answer.tag === "matches" ? true : answer.val;
}

const MODES = ["usual", "match-and-filter", "optimistic", "cache-only", "force-filter", "plain"];
const COMPARISONS = ["by-verb", "applied", "generic", "status-only", "equality"];
const PROPAGATIONS = ["usual", "background", "foreground", "orphan"];

function written(call) {
  return JSON.parse(ask(call));
}

/** Returns which object is meant, by a reference or by the object itself. */
function reference(target) {
  const { apiVersion, kind } = target ?? {};
  const { namespace, name } = target?.metadata ?? target ?? {};
  if ([apiVersion, kind, name].every((part) => typeof part === "string")) {
    return { apiVersion: text(apiVersion, "apiVersion"), kind: text(kind, "kind"), namespace: optionalNamespace(namespace), name: text(name, "name") };
  }
  throw new TypeError("a target is an object of the cluster, or { apiVersion, kind, namespace, name }");
}

function writing(options) {
  if (options == null) return null;
  const { mode = "usual", compareBy, subresource, source, actual, ...strange } = given(options);
  refuse(strange, "mode, compareBy, subresource, source, actual");
  return {
    mode: choice(mode, "mode", MODES),
    compareBy: compareBy === undefined ? null : choice(compareBy, "compareBy", COMPARISONS),
    subresource: optionalText(subresource, "subresource"),
    source: optionalText(source, "source"),
    actual: actual === undefined ? null : json(actual, "actual"),
  };
}

function removing(options) {
  if (options == null) return null;
  const { propagation = "usual", uid, resourceVersion, graceSeconds, ...strange } = given(options);
  refuse(strange, "propagation, uid, resourceVersion, graceSeconds");
  return {
    propagation: choice(propagation, "propagation", PROPAGATIONS),
    uid: optionalText(uid, "uid"),
    resourceVersion: optionalText(resourceVersion, "resourceVersion"),
    graceSeconds: optionalCount(graceSeconds, "graceSeconds"),
  };
}

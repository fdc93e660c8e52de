// Records the writes of a native test, and keeps what was written for later reads.

import { applyPatch } from "rfc6902";

import { read, reference } from "./objects.js";
import { refusal } from "./refusal.js";

/** The writes of a test. */
export class Writes {
  /** What was asked for, in order. */
  recorded = [];

  /**
   * @param {import("./objects.js").Objects} objects
   * @param {Record<string, { reason: string, message?: string, code?: number }>} refusals by verb
   */
  constructor(objects, refusals) {
    this.objects = objects;
    this.refusals = refusals;
  }

  /** Writes a whole object. */
  write(verb, text, options) {
    const object = read(text);
    const target = reference(object);
    this.#record(verb, target, object, options);
    if (verb === "create" && this.objects.get(target)) throw refusal("conflict", `${target.kind} ${target.name} exists`, 409);
    return this.objects.put(target, object);
  }

  /** Patches an object. */
  patch(verb, target, text, options) {
    const patch = read(text);
    this.#record(verb, target, patch, options);
    const known = this.objects.get(target);
    if (!known) throw refusal("missing", `${target.kind} ${target.name} not found`, 404);
    const object = structuredClone(known);
    if (verb === "mergePatch") return this.objects.put(target, merge(object, patch));
    const [wrong] = applyPatch(object, patch).filter((error) => error !== null);
    if (wrong) throw refusal("invalid", wrong.message);
    return this.objects.put(target, object);
  }

  /** Deletes an object. */
  remove(target) {
    this.#record("remove", target, undefined, null);
    this.objects.remove(target);
  }

  /** Adds a finalizer to the primary, or removes it. */
  finalizer(verb, finalizer) {
    const { primary } = this.objects;
    if (!primary) throw refusal("missing", "the test has no primary");
    const name = finalizer ?? "test/finalizer";
    const target = reference(primary);
    this.#record(verb, target, name, null);
    const others = (primary.metadata.finalizers ?? []).filter((other) => other !== name);
    const finalizers = verb === "addFinalizer" ? [...others, name] : others;
    return this.objects.put(target, { ...primary, metadata: { ...primary.metadata, finalizers } });
  }

  #record(verb, { namespace, ...target }, body, options) {
    const refused = this.refusals[verb];
    if (refused) throw refusal(refused.reason, refused.message ?? `${verb} is refused`, refused.code);
    const { mode = "usual", subresource } = options ?? {};
    this.recorded.push({
      verb,
      target: namespace === null ? target : { ...target, namespace },
      ...(body === undefined ? {} : { body }),
      ...(mode === "usual" ? {} : { mode }),
      ...(subresource == null ? {} : { subresource }),
    });
  }
}

/** Returns a document after a merge patch (RFC 7386). */
function merge(document, patch) {
  if (typeof patch !== "object" || patch === null || Array.isArray(patch)) return patch;
  const merged = typeof document === "object" && document !== null && !Array.isArray(document) ? { ...document } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete merged[name];
    else merged[name] = merge(merged[name], value);
  }
  return merged;
}

// Decides which objects of a native test a question for the cache means.

import { equal } from "../equal.js";
import { refusal } from "./refusal.js";
import { selector } from "./selector.js";

/** The caches of a test. */
export class Objects {
  /** Each object, and where it is known: `{ source, related }`, `{ primary: true }`, or nothing for what was only written. */
  #all = [];

  /** @param {object} facts `primary`, `primaries`, `secondaries`, `things`, `unrelated`, `indexes`, as `test.d.ts` has them */
  constructor({ primary, primaries = [], secondaries = {}, things = {}, unrelated = {}, indexes = {} }) {
    const all = (objects, home) => [objects].flat().forEach((object) => this.#all.push({ ...home, object: structuredClone(object) }));
    if (primary) all(primary, { primary: true });
    all(primaries, { primary: true });
    for (const [source, objects] of Object.entries(secondaries)) all(objects, { source, related: true });
    for (const [source, byId] of Object.entries(things)) {
      // A list may be a thing, too.
      for (const id of Object.keys(byId).sort(order)) this.#all.push({ source, related: true, id, object: structuredClone(byId[id]) });
    }
    for (const [source, objects] of Object.entries(unrelated)) all(objects, { source, related: false });
    this.indexes = indexes;
  }

  /** The primary of the run: the first one. */
  get primary() {
    return this.#all.find((known) => known.primary)?.object;
  }

  /** Returns an object, wherever it is known. */
  get(target) {
    return this.#all.find(({ object }) => is(object, target))?.object;
  }

  /** Keeps an object as it is after a write; returns it as a document. */
  put(target, object) {
    const known = this.#all.filter(({ object }) => is(object, target));
    known.forEach((one) => (one.object = object));
    if (known.length === 0) this.#all.push({ object });
    return JSON.stringify(object);
  }

  /** Forgets an object. */
  remove(target) {
    this.#all = this.#all.filter(({ object }) => !is(object, target));
  }

  /** Answers `find-one`. */
  one(place) {
    const related = this.#select(place, { tag: "related" });
    if (related.length > 1) throw refusal("ambiguous", `${related.length} objects belong to the primary`);
    return related.length === 0 ? null : JSON.stringify(related[0]);
  }

  /** Answers `find-named`. */
  named(place, key) {
    const thing = this.#all.find((known) => known.id === key.name && isIn(place, known));
    if (thing) return JSON.stringify(thing.object);
    const found = this.#select(place, { tag: "everywhere" }).find((object) => name(object) === key.name && namespace(object) === key.namespace);
    return found ? JSON.stringify(found) : null;
  }

  /** Answers `find-all`. */
  page({ place, selection, labels, fields, limit, after }) {
    if (place.tag === "primaries" && selection.tag === "related") throw refusal("misplaced", "primaries are not related to the primary");
    const accepts = labels === null ? () => true : selector(labels);
    const found = this.#select(place, selection).filter((object) => accepts(object?.metadata?.labels ?? {}));
    found.sort((a, b) => order(namespace(a) ?? "", namespace(b) ?? "") || order(name(a), name(b)));
    const from = after === null ? 0 : Number(after);
    const end = from + (limit ?? found.length);
    return {
      items: found.slice(from, end).map((object) => JSON.stringify(masked(object, fields))),
      next: end < found.length ? String(end) : null,
    };
  }

  #select(place, selection) {
    return this.#all.filter((known) => isIn(place, known) && this.#isMeant(selection, known)).map(({ object }) => object);
  }

  #isMeant({ tag, val }, { related = false, object }) {
    if (tag === "related") return related;
    if (tag === "namespaced") return namespace(object) === val;
    if (tag === "indexed") return (this.indexes[val.index]?.[val.key] ?? []).includes(name(object));
    return true;
  }
}

/** Reads a document as the daemon would. */
export function read(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw refusal("invalid", error.message);
  }
}

/** Returns which object it is. */
export function reference({ apiVersion, kind, metadata }) {
  if ([apiVersion, kind, metadata?.name].every((part) => typeof part === "string")) {
    return { apiVersion, kind, namespace: metadata.namespace ?? null, name: metadata.name };
  }
  throw refusal("invalid", "an object needs apiVersion, kind and metadata.name");
}

/** Answers `compare`, without the knowledge of managed fields that the daemon has. */
export function compare(by, actualText, desiredText, ignore) {
  const [actual, desired] = [read(actualText), read(desiredText)];
  for (const pointer of ignore) [actual, desired].forEach((document) => cut(document, pointer));
  const matches =
    by === "equality" ? equal(actual, desired) : by === "status-only" ? contains(actual.status, desired.status) : contains(actual, desired);
  return matches ? { tag: "matches" } : { tag: "differs", val: "the documents differ" };
}

/** Says whether all that is desired is there; additions are tolerated. */
function contains(actual, desired) {
  if (typeof desired !== "object" || desired === null || typeof actual !== "object" || actual === null) return actual === desired;
  if (Array.isArray(desired)) {
    return Array.isArray(actual) && actual.length === desired.length && desired.every((item, index) => contains(actual[index], item));
  }
  return Object.entries(desired).every(([name, value]) => contains(actual[name], value));
}

function isIn({ tag, val }, { source, primary = false, id, object }) {
  if (tag === "primaries") return primary;
  if (tag === "source") return source === val;
  if (id !== undefined) return false;
  return object.apiVersion === val.apiVersion && object.kind === val.kind;
}

function is(object, target) {
  const { apiVersion, kind } = object ?? {};
  return equal({ apiVersion, kind, namespace: namespace(object), name: name(object) }, target);
}

function name(object) {
  return object?.metadata?.name ?? "";
}

function namespace(object) {
  return object?.metadata?.namespace ?? null;
}

function order(a, b) {
  return a < b ? -1 : a > b ? 1 : 0;
}

// === JSON pointers ===

function keys(pointer) {
  return pointer.split("/").slice(1).map((key) => key.replaceAll("~1", "/").replaceAll("~0", "~"));
}

function at(document, path) {
  return path.reduce((value, key) => value?.[key], document);
}

function cut(document, pointer) {
  const path = keys(pointer);
  const parent = at(document, path.slice(0, -1));
  if (typeof parent === "object" && parent !== null) delete parent[path.at(-1)];
}

/** Returns only the fields under these pointers, and what says which object it is. */
function masked(object, pointers) {
  if (pointers.length === 0) return object;
  const kept = {};
  for (const pointer of ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name", ...pointers]) {
    const path = keys(pointer);
    const value = at(object, path);
    if (value === undefined) continue;
    const parent = path.slice(0, -1).reduce((place, key) => (place[key] ??= {}), kept);
    parent[path.at(-1)] = value;
  }
  return kept;
}

// Reads from the daemon's caches: no request is sent, and own writes are visible at once.

import { cache as daemon } from "#daemon";
import { given, optionalCount, optionalNamespace, optionalText, refuse, text, texts } from "./check.js";
import { ask } from "./error.js";

/** The primaries of this controller, as a place to look. */
export const primaries = Object.freeze({ primaries: true });

/**
 * Returns the one object that belongs to the primary; `undefined` if there is none.
 * @param {string | { apiVersion: string, kind: string } | { primaries: true }} from
 */
export function one(from) {
  return object(ask(() => daemon.findOne(place(from))));
}

/**
 * Returns an object by its name, whether it belongs to the primary or not; `undefined` if there is none.
 * @param {string | { apiVersion: string, kind: string } | { primaries: true }} from
 * @param {{ namespace?: string, name: string }} key
 */
export function get(from, { namespace, name }) {
  const key = { namespace: optionalNamespace(namespace), name: text(name, "name") };
  return object(ask(() => daemon.findNamed(place(from), key)));
}

/** Returns objects, page by page to the last one, ordered by namespace and name. */
export function list(from, query = {}) {
  const items = [];
  for (let after = query?.after; ; ) {
    const answer = page(from, { ...query, after });
    items.push(...answer.items);
    if (answer.next === undefined) return items;
    after = answer.next;
  }
}

/** Returns one page of objects. */
export function page(from, query = {}) {
  const { labels, fields = [], newestOnly = false, limit, after, ...where } = given(query);
  const question = {
    place: place(from),
    selection: selection(from, where),
    labels: optionalText(labels, "labels"),
    fields: texts(fields, "fields"),
    newestOnly: Boolean(newestOnly),
    limit: optionalCount(limit, "limit"),
    after: optionalText(after, "after"),
  };
  const { items, next } = ask(() => daemon.findAll(question));
  return { items: items.map((item) => JSON.parse(item)), next: next ?? undefined };
}

/** Returns where to look, as the contract says it. */
function place(from) {
  if (typeof from === "string") return { tag: "source", val: text(from, "the source") };
  if (from?.primaries === true) return { tag: "primaries" };
  if (typeof from?.apiVersion === "string" && typeof from.kind === "string") {
    return { tag: "kind", val: { apiVersion: text(from.apiVersion, "apiVersion"), kind: text(from.kind, "kind") } };
  }
  throw new TypeError("a place to look is a source's name, { apiVersion, kind }, or cache.primaries");
}

/** Returns which objects are meant, as the contract says it. */
function selection(from, where) {
  const { namespace, everywhere, index, key, ...strange } = where;
  refuse(strange, "namespace, everywhere, index and key, labels, fields, newestOnly, limit, after");
  if ([namespace, everywhere || undefined, index].filter((one) => one !== undefined).length > 1) {
    throw new TypeError("of namespace, everywhere and index, a query has one");
  }
  if ((index === undefined) !== (key === undefined)) throw new TypeError("index and key of a query go together");
  if (namespace !== undefined) return { tag: "namespaced", val: text(namespace, "namespace") };
  if (index !== undefined) return { tag: "indexed", val: { index: text(index, "index"), key: text(key, "key") } };
  // Primaries do not belong to a primary.
  return { tag: everywhere || from?.primaries ? "everywhere" : "related" };
}

function object(json) {
  return json == null ? undefined : JSON.parse(json);
}

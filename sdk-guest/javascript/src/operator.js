// Decides what an author can register, and under which name it is found.

import {
  accepted, conditionResult, created, deleteControl, desiredObject, desiredObjects, errorControl, matchResult, nextRetry, nothing, objectKeys,
  pollResult, primaryResources, problems, received, removed, updateControl, updated,
} from "./answers.js";

/** What handles a primary, and how its answer is read. */
const SINGLE = {
  reconcile: updateControl, cleanup: deleteControl, handleError: errorControl, decideRetry: nextRetry, validate: problems, initialize: nothing,
};
/** What is registered by name. */
const NAMED = {
  desired: desiredObject, desiredSet: desiredObjects, createExternal: created, updateExternal: updated, removeExternal: removed, match: matchResult, condition: conditionResult,
  poll: primaryResources, pollOne: pollResult, receive: received, accepts: accepted, toPrimaries: objectKeys, toSecondaries: objectKeys,
};
const KNOWN = [...Object.keys(SINGLE), ...Object.keys(NAMED)];

/** Where an operator keeps what it was made from, by the controller's name; `undefined` is any controller. */
const REGISTRY = Symbol("capstan.registry");

/**
 * Makes the operator of one controller: see `index.d.ts`.
 * @param {object} handlers
 */
export function operator(handlers) {
  const { author, daemon } = both(handlers, "operator()");
  return Object.freeze({ ...author, [REGISTRY]: new Map([[undefined, daemon]]) });
}

/**
 * Makes the operators of several controllers: see `index.d.ts`.
 * @param {Record<string, object>} controllers handlers by the controller's name in the manifest
 */
export function operators(controllers) {
  const names = Object.keys(record(controllers, "operators()"));
  if (names.length === 0) throw new TypeError("operators() is given no controller: write operators({ webpage: { reconcile(page) { … } } })");
  const sides = names.map((name) => [name, both(controllers[name], `operators(): ${name}`)]);
  const side = (which) => sides.map(([name, sides]) => [name, sides[which]]);
  return Object.freeze({ ...Object.fromEntries(side("author")), [REGISTRY]: new Map(side("daemon")) });
}

/**
 * Returns what an operator was made from: for each controller its handlers, which answer as the contract wants it. `undefined` if
 * it is no operator.
 * @param {unknown} of
 * @returns {Map<string | undefined, Record<string, any>> | undefined}
 */
export function registry(of) {
  return of?.[REGISTRY];
}

/**
 * Returns handlers from both sides: for the author they answer what was written, for the daemon what the contract wants. Both
 * check the answer, so that a wrong one is found by native tests too.
 */
function both(handlers, where) {
  record(handlers, where);
  // The methods of a class may be called as one likes; what is written in an object is meant for us.
  const strange = Object.keys(handlers).filter((name) => !KNOWN.includes(name));
  if (strange.length > 0) throw new TypeError(`${where} does not know \`${strange.join("`, `")}\`; it knows: ${KNOWN.join(", ")}`);
  const [author, daemon] = [{}, {}];
  for (const [name, read] of Object.entries(SINGLE)) {
    if (handlers[name] === undefined) continue;
    daemon[name] = reading(handlers, name, read, name, where);
    author[name] = daemon[name].plain;
  }
  for (const [name, read] of Object.entries(NAMED)) {
    const functions = record(handlers[name] ?? {}, `${where}: ${name}`);
    const named = Object.keys(functions).map((key) => [key, reading(functions, key, read, `${name}.${key}`, where)]);
    if (named.length === 0) continue;
    daemon[name] = Object.fromEntries(named);
    author[name] = Object.freeze(Object.fromEntries(named.map(([key, handler]) => [key, handler.plain])));
  }
  if (Object.keys(author).length === 0) throw new TypeError(`${where} is given nothing to do; it knows: ${KNOWN.join(", ")}`);
  return { author: Object.freeze(author), daemon };
}

/** Returns a handler that answers as the contract wants it; `plain` answers what the author's does. */
function reading(owner, key, read, what, where) {
  const handler = owner[key];
  if (typeof handler !== "function") throw new TypeError(`${where}: ${what} is no function`);
  // Natively such a function would seem to work, and in a component it would never come back.
  const kind = Object.prototype.toString.call(handler).slice("[object ".length, -1);
  if (kind !== "Function") throw new TypeError(`${where}: ${what} is of the type ${kind}; a component is called synchronously, so write an ordinary function`);
  const contract = (...args) => read(handler.apply(owner, args), what);
  contract.plain = (...args) => {
    const answer = handler.apply(owner, args);
    read(answer, what);
    return answer;
  };
  return contract;
}

function record(value, where) {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw new TypeError(`${where} needs an object`);
  return value;
}

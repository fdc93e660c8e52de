// Decides what an author's functions may answer, and what the contract is told.

import { milliseconds } from "./duration.js";
import { shown } from "./error.js";
import { wellFormedJson } from "./unicode.js";

/** An answer that is not what it should be: the author's mistake, found natively and in the component alike. */
function wrong(what, found, expected) {
  return new TypeError(`${what} answered ${found}; ${expected}`);
}

/** Refuses promises: a call of the daemon ends when the function returns, and nothing runs afterwards. */
function settled(answer, what) {
  if (typeof answer?.then === "function") {
    throw wrong(what, "a promise", "a component is called synchronously, so write it without async, await and promises");
  }
  return answer;
}

/** Returns an answer that may be left out as an object that has these fields and no others. A field that is null says nothing. */
function fields(answer, what, known) {
  settled(answer, what);
  if (answer === undefined || answer === null) return undefined;
  const expected = `it may answer nothing, or an object with ${known.join(", ")}`;
  if (!isObject(answer)) throw wrong(what, short(answer), expected);
  const strange = Object.keys(answer).filter((name) => !known.includes(name));
  if (strange.length > 0) throw wrong(what, strange.map((name) => `\`${name}\``).join(", "), expected);
  return Object.fromEntries(known.map((name) => [name, answer[name] ?? undefined]));
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function short(value) {
  const text = typeof value === "string" ? JSON.stringify(value) : shown(value);
  // By characters, so that none is cut in two; no more of a long text is looked at than needed.
  const start = [...text.slice(0, 120)].slice(0, 60).join("");
  return start.length < text.length ? `${start}…` : text;
}

/** Returns a part of an answer that has to be an object. */
function object(value, what) {
  if (!isObject(value)) throw new TypeError(`${what}: ${short(value)} is no object`);
  return value;
}

/** Returns a document as the contract wants it. */
export function json(value, what) {
  try {
    const text = JSON.stringify(value);
    if (text !== undefined) return wellFormedJson(text);
  } catch (error) {
    throw new TypeError(`${what} is no JSON: ${error.message}`, { cause: error });
  }
  throw new TypeError(`${what} is no JSON: ${shown(value)}`);
}

// === reconcile ===

/** Returns what `reconcile` has answered as the contract's `update-control`. */
export function updateControl(answer, what) {
  const { object: whole, status, reschedule, onlyAt } = fields(answer, what, ["object", "status", "reschedule", "onlyAt"]) ?? {};
  const rescheduleMs = reschedule === undefined ? null : milliseconds(reschedule, `${what}: reschedule`);
  const document = {};
  if (whole !== undefined) Object.assign(document, object(whole, `${what}: object`));
  if (status !== undefined) document.status = object(status, `${what}: status`);
  if (onlyAt !== undefined) document.metadata = { ...document.metadata, resourceVersion: version(onlyAt, what) };
  const tag = whole === undefined ? (status === undefined ? "nothing" : "status") : status === undefined ? "object" : "object-and-status";
  if (tag !== "nothing") return { update: { tag, val: json(document, what) }, rescheduleMs };
  return { update: { tag }, rescheduleMs };
}

function version(onlyAt, what) {
  if (typeof onlyAt === "string") return onlyAt;
  throw new TypeError(`${what}: onlyAt: ${short(onlyAt)} is no resourceVersion, which is a text`);
}

// === cleanup ===

/** Returns what `cleanup` has answered as the contract's `delete-control`. */
export function deleteControl(answer, what) {
  const { keepFinalizer = false, reschedule } = fields(answer, what, ["keepFinalizer", "reschedule"]) ?? {};
  if (typeof keepFinalizer !== "boolean") throw new TypeError(`${what}: keepFinalizer: ${short(keepFinalizer)} is neither true nor false`);
  const val = reschedule === undefined ? null : milliseconds(reschedule, `${what}: reschedule`);
  return keepFinalizer ? { tag: "keep-finalizer", val } : { tag: "remove-finalizer" };
}

// === handleError ===

/** Returns what `handleError` has answered as the contract's `error-control`. */
export function errorControl(answer, what) {
  const handled = fields(answer, what, ["status", "stop", "retryAfter", "reschedule"]);
  if (handled === undefined) return { tag: "unhandled" };
  const { status, stop = false, retryAfter, reschedule } = handled;
  if (typeof stop !== "boolean") throw new TypeError(`${what}: stop: ${short(stop)} is neither true nor false`);
  if ([stop, retryAfter !== undefined, reschedule !== undefined].filter(Boolean).length > 1) {
    throw new TypeError(`${what}: stop, retryAfter and reschedule exclude each other`);
  }
  const document = status === undefined ? null : json({ status: object(status, `${what}: status`) }, what);
  return { tag: "handled", val: { status: document, next: nextStep({ stop, retryAfter, reschedule }, what) } };
}

function nextStep({ stop, retryAfter, reschedule }, what) {
  if (reschedule !== undefined) return { tag: "reschedule-ms", val: milliseconds(reschedule, `${what}: reschedule`) };
  if (retryAfter !== undefined) return { tag: "retry-after-ms", val: milliseconds(retryAfter, `${what}: retryAfter`) };
  return { tag: stop ? "stop" : "retry" };
}

// === decideRetry ===

/** Returns what `decideRetry` has answered as the contract's `next-retry`. */
export function nextRetry(answer, what) {
  const { after, stop = false } = fields(answer, what, ["after", "stop"]) ?? {};
  if (typeof stop !== "boolean") throw new TypeError(`${what}: stop: ${short(stop)} is neither true nor false`);
  if (stop && after !== undefined) throw new TypeError(`${what}: stop and after exclude each other`);
  if (after !== undefined) return { tag: "after-ms", val: milliseconds(after, `${what}: after`) };
  return { tag: stop ? "stop" : "declared" };
}

// === validate ===

/** Returns what `validate` has answered as the contract's list of problems: a text, `{ field, message }`, a list of those, or nothing. */
export function problems(answer, what) {
  const found = answer === undefined || answer === null ? [] : Array.isArray(answer) ? answer : [answer];
  return found.map((one) => {
    if (typeof one === "string") return { field: null, message: one };
    const { field, message } = fields(one, what, ["field", "message"]) ?? {};
    if (typeof message !== "string") throw new TypeError(`${what}: message: ${short(message)} is no text`);
    if (field !== undefined && typeof field !== "string") throw new TypeError(`${what}: field: ${short(field)} is no text`);
    return { field: field ?? null, message };
  });
}

// === initialize ===

/** Returns what `initialize` has answered, which is nothing. */
export function nothing(answer, what) {
  settled(answer, what);
  if (answer === undefined || answer === null) return undefined;
  throw wrong(what, short(answer), "it answers nothing; `memo.run` hands values to the calls that follow");
}

// === desired, desiredSet, createExternal, updateExternal, removeExternal, match, condition ===

/** Returns what a function of `desired` has answered as a document. */
export function desiredObject(answer, what) {
  settled(answer, what);
  if (isObject(answer)) return json(answer, what);
  throw wrong(what, short(answer), "it has to be an object; that a dependent should not exist is said by a precondition in the manifest");
}

/** Returns what a function of `desiredSet` has answered as documents. */
export function desiredObjects(answer, what) {
  settled(answer, what);
  if (!Array.isArray(answer)) throw wrong(what, short(answer), "it has to be a list of objects");
  return answer.map((one) => {
    if (!isObject(one)) throw new TypeError(`${what}: ${short(one)} is no object`);
    return json(one, `${what}: an object`);
  });
}

/** Returns what a function of `createExternal` has answered as the contract's `created`. */
export function created(answer, what) {
  settled(answer, what);
  if (!isObject(answer?.thing)) throw wrong(what, short(answer), "it has to be { thing, state }, with the thing as it is now");
  const { thing, state } = fields(answer, what, ["thing", "state"]);
  if (state !== undefined && !isObject(state)) throw new TypeError(`${what}: state: ${short(state)} is no object`);
  return { actual: json(thing, `${what}: thing`), state: state === undefined ? null : json(state, `${what}: state`) };
}

/** Returns what a function of `updateExternal` has answered as a document. */
export function updated(answer, what) {
  settled(answer, what);
  if (isObject(answer)) return json(answer, what);
  throw wrong(what, short(answer), "it has to be the thing as it is now");
}

/** Returns what a function of `removeExternal` has answered, which is nothing. */
export function removed(answer, what) {
  settled(answer, what);
  if (answer === undefined || answer === null) return undefined;
  throw wrong(what, short(answer), "it answers nothing");
}

/** Returns what a function of `match` has answered as the contract's `match-result`. */
export function matchResult(answer, what) {
  settled(answer, what);
  // As a list of what differs that is joined, and empty.
  if (answer === true || answer === "") return { tag: "matches" };
  if (answer === false) return { tag: "differs", val: "it differs" };
  if (typeof answer === "string") return { tag: "differs", val: answer };
  throw wrong(what, short(answer), "it has to be true, false, or a text that says what differs");
}

/** Returns what a function of `condition` has answered as the contract's `condition-result`. */
export function conditionResult(answer, what) {
  settled(answer, what);
  if (typeof answer === "boolean") return { met: answer, detail: null };
  if (typeof answer?.met !== "boolean") throw wrong(what, short(answer), "it has to be true, false, or { met, detail }");
  const { met, detail } = fields(answer, what, ["met", "detail"]);
  return { met, detail: detail === undefined ? null : json(detail, `${what}: detail`) };
}

// === poll, pollOne ===

/** Returns what a function of `poll` has answered as the contract's `primary-resources`. */
export function primaryResources(answer, what) {
  settled(answer, what);
  const expected = "it has to be a list of { namespace, name, things }, one for each primary";
  if (!Array.isArray(answer)) throw wrong(what, short(answer), expected);
  return answer.map((one) => {
    if (typeof one?.name !== "string") throw wrong(what, short(one), expected);
    const { namespace = null, name, things: found } = fields(one, what, ["namespace", "name", "things"]);
    return { primary: key(namespace, name, what), resources: things(found, what) };
  });
}

/** Returns what a function of `pollOne` has answered as the contract's `poll-result`. */
export function pollResult(answer, what) {
  settled(answer, what);
  if (answer === undefined || answer === null || Array.isArray(answer)) return { resources: things(answer ?? [], what), againMs: null };
  if (!isObject(answer)) throw wrong(what, short(answer), "it has to be a list of things, or { things, again }");
  const { things: found = [], again } = fields(answer, what, ["things", "again"]);
  return { resources: things(found, what), againMs: again === undefined ? null : milliseconds(again, `${what}: again`) };
}

/** Returns the name of an object as the contract has it: an empty namespace is none. */
function key(namespace, name, what) {
  if (namespace !== null && typeof namespace !== "string") throw new TypeError(`${what}: namespace: ${short(namespace)} is no text`);
  return { namespace: namespace || null, name };
}

function things(found, what) {
  if (Array.isArray(found)) return found.map((thing) => json(thing, `${what}: a thing`));
  throw new TypeError(`${what}: things: ${short(found)} is no list`);
}

// === receive ===

/** Returns what a function of `receive` has answered as the contract's `inbound-answer`. */
export function received(answer, what) {
  settled(answer, what);
  if (answer === undefined || answer === null) return { status: 202, body: "", events: [] };
  const expected = "it has to be { status, text, events }";
  if (!isObject(answer)) throw wrong(what, short(answer), expected);
  const { status = 202, text = "", events = [] } = fields(answer, what, ["status", "text", "events"]);
  if (!Number.isInteger(status) || status < 200 || status > 599) throw new TypeError(`${what}: status: ${short(status)} is not from 200 to 599`);
  if (typeof text !== "string") throw new TypeError(`${what}: text: ${short(text)} is no text`);
  if (!Array.isArray(events)) throw new TypeError(`${what}: events: ${short(events)} is no list`);
  return { status, body: text, events: events.map((event) => sourceEvent(event, what)) };
}

function sourceEvent(event, what) {
  if (typeof event?.name !== "string") throw wrong(what, short(event), "an event has to be { namespace, name }, with present or gone or neither");
  const { namespace = null, name, present, gone } = fields(event, what, ["namespace", "name", "present", "gone"]);
  if (present !== undefined && gone !== undefined) throw new TypeError(`${what}: the event of ${name} has both present and gone`);
  const primary = key(namespace, name, what);
  if (present !== undefined) return { primary, learned: { tag: "present", val: json(present, `${what}: present`) } };
  if (gone === undefined) return { primary, learned: { tag: "wake" } };
  if (typeof gone !== "string" && !Number.isSafeInteger(gone)) throw new TypeError(`${what}: gone: ${short(gone)} is neither a text nor a whole number`);
  return { primary, learned: { tag: "gone", val: String(gone) } };
}

// === accepts, toPrimaries, toSecondaries ===

/** Returns what a function of `accepts` has answered. */
export function accepted(answer, what) {
  settled(answer, what);
  if (typeof answer !== "boolean") throw wrong(what, short(answer), "it has to be true or false");
  return answer;
}

/** Returns what a function of `toPrimaries` or `toSecondaries` has answered as keys of the contract. */
export function objectKeys(answer, what) {
  settled(answer, what);
  const expected = "it has to be a list of texts, `name` or `namespace/name`, or of { namespace, name }";
  if (answer === undefined || answer === null) return [];
  if (!Array.isArray(answer)) throw wrong(what, short(answer), expected);
  return answer.map((one) => {
    if (typeof one === "string") {
      const slash = one.indexOf("/");
      return slash < 0 ? key(null, one, what) : key(one.slice(0, slash), one.slice(slash + 1), what);
    }
    const { namespace = null, name } = isObject(one) ? fields(one, what, ["namespace", "name"]) : {};
    if (typeof name !== "string" || (namespace !== null && typeof namespace !== "string")) throw wrong(what, short(one), expected);
    return key(namespace, name, what);
  });
}

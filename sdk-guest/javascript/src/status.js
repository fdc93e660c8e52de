// Decides what becomes of the conditions in a status when one of them is set.

import { choice, given, optionalCount, refuse, text } from "./check.js";
import { equal } from "./equal.js";
import { now } from "./system.js";

/** Puts a condition in the place of the one of its type, or behind the others. Returns whether anything is different. */
export function setCondition(conditions, condition) {
  const { type, status, reason, message = "", observedGeneration, ...strange } = given(condition);
  refuse(strange, "type, status, reason, message, observedGeneration");
  const word = typeof status === "boolean" ? (status ? "True" : "False") : status;
  const place = conditions.findIndex((old) => old.type === type);
  const old = conditions[place];
  const generation = optionalCount(observedGeneration, "observedGeneration");
  const next = {
    type: text(type, "the type of the condition"),
    status: choice(word, "the status of the condition", ["True", "False", "Unknown"]),
    ...(generation === null ? {} : { observedGeneration: generation }),
    lastTransitionTime: (old?.status === word && old.lastTransitionTime) || now(),
    reason: text(reason, "the reason of the condition"),
    message: text(message, "the message of the condition"),
  };
  if (old && equal(old, next)) return false;
  if (old) conditions[place] = next;
  else conditions.push(next);
  return true;
}

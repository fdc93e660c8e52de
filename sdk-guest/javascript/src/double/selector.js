// Reads label selectors as kubectl writes them.

import { refusal } from "./refusal.js";

/** A comma within parentheses separates values, not requirements. */
const COMMA = /,(?![^(]*\))/;

/**
 * Returns a function that says whether labels are accepted.
 * @param {string} text `app=web, tier in (front, back), !old`
 * @returns {(labels: Record<string, string>) => boolean}
 */
export function selector(text) {
  const requirements = text.split(COMMA).map((part) => requirement(part.trim()));
  return (labels) => requirements.every((accepts) => accepts(labels));
}

function requirement(text) {
  const [, name, not, list] = /^(\S+) (not)?in \(([^)]*)\)$/.exec(text) ?? [];
  if (name) {
    const values = list.split(",").map((value) => value.trim());
    return (labels) => values.includes(labels[name]) === !not;
  }
  const [, key, sign, value] = /^([^\s=!]+)\s*(==?|!=)\s*(\S*)$/.exec(text) ?? [];
  if (key) return (labels) => (labels[key] === value) === (sign !== "!=");
  if (/^![^\s=!]+$/.test(text)) return (labels) => labels[text.slice(1)] === undefined;
  if (/^[^\s=!]+$/.test(text)) return (labels) => labels[text] !== undefined;
  throw refusal("invalid", `\`${text}\` is no label selector`);
}

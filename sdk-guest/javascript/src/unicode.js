// Decides what becomes of half a character, which is no Unicode: the contract has no such texts, and one would end the instance.

/**
 * Returns a value of the contract in which all texts are Unicode: half a character becomes U+FFFD.
 * @template T
 * @param {T} value
 * @returns {T}
 */
export function wellFormed(value) {
  if (typeof value === "string") return value.toWellFormed();
  if (Array.isArray(value)) return value.map(wellFormed);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, wellFormed(one)]));
}

/**
 * Returns a document in which no text has half a character: `JSON.stringify` writes one as an escape, which the daemon can't read.
 * @param {string} document
 */
export function wellFormedJson(document) {
  if (!document.includes("\\ud")) return document;
  return document.replace(/\\(?:u(d[89a-f][0-9a-f]{2})|.)/g, (escape, half) => (half ? "\ufffd" : escape));
}

// Refuses arguments that the contract has no place for, before they cross the component's boundary: there they would end the
// instance, and nobody could catch that.

/**
 * Returns a value that has to be a text.
 * @param {unknown} value
 * @param {string} what what it is for, for the error
 * @returns {string}
 */
export function text(value, what) {
  // Half a character outside of its pair is no Unicode.
  if (typeof value === "string") return value.toWellFormed();
  throw new TypeError(`${what} is ${value === undefined ? "missing" : `${JSON.stringify(value)}, and no text`}`);
}

/** Returns a text, or null for none, as the contract says it. */
export function optionalText(value, what) {
  return value == null ? null : text(value, what);
}

/** Returns a namespace, or null for none; an empty one is none, too. */
export function optionalNamespace(value) {
  return optionalText(value, "namespace") || null;
}

/** Returns a list of texts. */
export function texts(values, what) {
  if (Array.isArray(values)) return values.map((value) => text(value, what));
  throw new TypeError(`${what} is no array of texts`);
}

/** Returns a whole number, or null for none, as the contract says it. */
export function optionalCount(value, what) {
  if (value == null) return null;
  if (Number.isInteger(value) && value >= 0 && value < 2 ** 32) return value;
  throw new TypeError(`${what}: ${value} is no whole number from 0`);
}

/** Returns one of the values that there are. */
export function choice(value, what, known) {
  if (known.includes(value)) return value;
  throw new TypeError(`${what}: ${JSON.stringify(value) ?? String(value)} is none of: ${known.join(", ")}`);
}

/** Returns options without those that are null: they say nothing, as what is left out. */
export function given(options) {
  return Object.fromEntries(Object.entries(options ?? {}).filter(([, value]) => value !== null));
}

/** Refuses what is left of options once those that there are were taken. */
export function refuse(strange, known) {
  const [unknown] = Object.keys(strange);
  if (unknown !== undefined) throw new TypeError(`there is no option \`${unknown}\`; there is: ${known}`);
}

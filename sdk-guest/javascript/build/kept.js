// Decides whether a component that is there was built of the same: its last section says of what. The engine's memory, as it is after the
// modules have loaded, is never the same twice, so what is not built anew stays the same.

import { createHash } from "node:crypto";

/** The name of that section, which nobody else reads. */
const NAME = Buffer.from("capstan-built-of");
/** The section, but for the digest in it: its sort (0, which means nothing to anybody), its length, and its name with the length of that. */
const HEAD = Buffer.concat([Buffer.from([0, 1 + NAME.length + 32, NAME.length]), NAME]);

/**
 * Returns a component with the section that says of what it was built.
 * @param {Buffer} component
 * @param {unknown[]} inputs all that decides what it is
 */
export function marked(component, inputs) {
  return Buffer.concat([component, HEAD, digest(component, inputs)]);
}

/**
 * Says whether a component was built of these, and is as it was built.
 * @param {Buffer} component
 * @param {unknown[]} inputs
 */
export function isBuiltOf(component, inputs) {
  const end = component.length - HEAD.length - 32;
  return end > 0 && marked(component.subarray(0, end), inputs).equals(component);
}

function digest(component, inputs) {
  return createHash("sha256").update(JSON.stringify(inputs)).update(component).digest();
}

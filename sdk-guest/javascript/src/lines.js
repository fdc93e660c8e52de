// Knows which line of which of the author's files a line of the built component comes from.

/** Where the build leaves its table: `{ file, sources, lines }`, where `lines[n]` is `[index of the source, line]`. */
export const LINES = Symbol.for("capstan.lines");

/**
 * Returns the place in the author's files as `file:line`; `undefined` for a place that is not theirs. Outside of a component, files
 * are what they are.
 * @param {string} file
 * @param {number} line
 * @returns {string | undefined}
 */
export function place(file, line) {
  const table = globalThis[LINES];
  if (!table) return file.startsWith("node:") ? undefined : `${file}:${line}`;
  const [source, number] = (file === table.file && table.lines[line]) || [];
  return source === undefined ? undefined : `${table.sources[source]}:${number}`;
}

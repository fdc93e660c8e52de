// Writes down which line of a bundle comes from which line of the author's files, so that stacks name these.

import { SourceMap } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { LINES } from "../src/lines.js";

const SDK = fileURLToPath(new URL("../src/", import.meta.url));

/**
 * Returns code to put before a bundle, in its first line: the table that `src/lines.js` reads. The lines of the SDK are left out.
 * @param {string} file what the bundle is called in stacks
 * @param {string} code the bundle
 * @param {object} map its source map
 */
export function table(file, code, map) {
  const origins = new SourceMap(map);
  const sources = map.sources.filter((source) => !resolve(source).startsWith(SDK));
  const lines = {};
  for (const [index, text] of code.split("\n").entries()) {
    const { generatedLine, originalSource, originalLine } = origins.findEntry(index, Math.max(0, text.search(/\S/)));
    const source = sources.indexOf(originalSource);
    // Lines of a stack are counted from 1.
    if (generatedLine === index && source >= 0) lines[index + 1] = [source, originalLine + 1];
  }
  return `globalThis[Symbol.for(${JSON.stringify(LINES.description)})] = ${JSON.stringify({ file, sources, lines })};`;
}

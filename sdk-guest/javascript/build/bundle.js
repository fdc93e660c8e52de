// Gathers an author's modules, their packages and the SDK in one file, and takes the types out of TypeScript.

import { relative } from "node:path";
import { fileURLToPath } from "node:url";

import * as esbuild from "esbuild";

import { Broken } from "./broken.js";

const SDK = fileURLToPath(new URL("../src/", import.meta.url));
const CONTRACT = "capstan:operator/";

/** What the file is for: to be looked at by the build. */
export const DESCRIPTION = {
  condition: "capstan-build",
  format: "iife",
  source: () => `import { describe } from "./component.js";\nexport default describe(author);`,
};

/** What the file is for: to be a component. */
export const EXPORTS = {
  condition: "capstan-component",
  format: "esm",
  source: (interfaces) => {
    const names = interfaces.map((name) => name.replace(/-(.)/g, (_, letter) => letter.toUpperCase()));
    return `import { component } from "./component.js";\nexport const { ${names.join(", ")} } = component(author);`;
  },
};

/**
 * Returns the text of the bundle and its source map.
 * @param {string} path the author's file
 * @param {{ write: typeof EXPORTS, interfaces?: string[], version?: string }} options
 * @returns {Promise<{ code: string, map: object }>}
 */
export async function bundle(path, { write, interfaces, version }) {
  // The prelude comes first: it makes what the author's modules expect to find. (Namespace: a file may lack a default export.)
  const contents = `import "./prelude.js";\nimport * as file from ${JSON.stringify(path)};\nconst author = file["default"];\n${write.source(interfaces)}`;
  try {
    const { outputFiles } = await esbuild.build({
      stdin: { contents, resolveDir: SDK, sourcefile: "entry.js" },
      bundle: true,
      write: false,
      // Not written; paths in the source map are relative to its folder.
      outfile: "component.js",
      format: write.format,
      globalName: "component",
      platform: "neutral",
      mainFields: ["module", "main"],
      conditions: [write.condition, "module"],
      target: "es2023",
      charset: "utf8",
      sourcemap: "external",
      // One SDK: that which builds.
      alias: { "@capstan/guest": fileURLToPath(new URL("../src/index.js", import.meta.url)) },
      plugins: [contract(version)],
      logLevel: "silent",
    });
    const [map, code] = outputFiles.map(({ text }) => text);
    return { code, map: JSON.parse(map) };
  } catch (error) {
    if (!error.errors) throw error;
    throw new Broken(error.errors.map(said).join("\n"), { cause: error });
  }
}

/** Leaves the imports of the contract to the engine, and completes them with the contract's version. */
function contract(version) {
  return {
    name: "contract",
    setup(build) {
      build.onResolve({ filter: new RegExp(`^${CONTRACT}`) }, ({ path }) => ({ path: `${path}@${version}`, external: true }));
    },
  };
}

function said({ text, location, notes }) {
  const builtin = /^Could not resolve "(node:)?(\w+)(\/\w+)?"$/.exec(text);
  const why = builtin && notes.some((note) => note.text.includes("built into node"))
    ? `${builtin[1] ?? ""}${builtin[2]} is a module of Node; a component has neither files nor network, and takes what it needs from the daemon`
    : text;
  if (!location) return why;
  return `${relative(".", location.file)}:${location.line}:${location.column + 1}: ${why}\n  ${location.lineText.trim()}`;
}

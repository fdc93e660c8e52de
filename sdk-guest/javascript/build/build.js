// Decides how an author's file becomes a component: bundle and look at it, make its world, bundle it for the engine, wrap it.

import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { componentize } from "componentize-qjs";

import { bundle, DESCRIPTION, EXPORTS } from "./bundle.js";
import { Broken } from "./broken.js";
import { isBuiltOf, marked } from "./kept.js";
import { load } from "./load.js";
import { table } from "./table.js";
import { withWorld } from "./world.js";

/** What the engine calls a script in stacks. */
const ENGINE = "componentize-qjs:user.js";
/** The contract in one file: npm packs no links, and nothing beside this package. */
const CONTRACT = fileURLToPath(new URL("contract.wit", import.meta.url));
/** Which engine is put around a bundle. */
const { version: ENGINE_VERSION } = createRequire(import.meta.url)("componentize-qjs/package.json");

/**
 * Builds a component.
 * @param {string} entry the file whose default export is the operator, JavaScript or TypeScript
 * @param {{ optSize?: boolean, before?: string }} options `before`: where the last one is, which is kept if it was built of the same
 * @returns {Promise<{ component: Buffer, controllers: { name?: string, handlers: string[] }[] }>} its bytes, and what it has
 * @throws {Broken} if the author's file is wrong; the message says what
 */
export async function build(entry, { optSize = false, before } = {}) {
  if (!existsSync(entry)) throw new Broken(`there is no file ${entry}`);
  const path = resolve(entry);
  const { interfaces, controllers } = await look(path, entry);
  return withWorld(CONTRACT, interfaces, async ({ wit, world, version }) => {
    const { code, map } = await bundle(path, { write: EXPORTS, interfaces, version });
    const options = { witPath: wit, world, jsSource: table(ENGINE, code, map) + code, sync: true, optSize };
    const inputs = [ENGINE_VERSION, readFileSync(CONTRACT, "utf8"), interfaces, world, options.jsSource, optSize];
    const last = before && existsSync(before) ? readFileSync(before) : undefined;
    if (last && isBuiltOf(last, inputs)) return { component: last, controllers };
    const { component } = await wrapped(options);
    return { component: marked(component, inputs), controllers };
  });
}

/** Returns what the author has registered. */
async function look(path, entry) {
  const { code, map } = await bundle(path, { write: DESCRIPTION });
  const found = load(table(ENGINE, code, map) + code, ENGINE);
  if (found) return found;
  throw new Broken(`${entry} has no operator as its default export: write \`export default operator({ … })\``);
}

async function wrapped(options) {
  try {
    return await componentize(options);
  } catch (error) {
    // The rest is the engine's own stack.
    const [message] = error.message.split("\n");
    throw new Broken(`the engine does not load the component: ${message.replace(/^.*JavaScript module evaluation: /, "")}`, { cause: error });
  }
}

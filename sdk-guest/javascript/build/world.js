// Makes the world of a component: all imports, and the exports that its author has registered.

import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/**
 * Calls a function with a folder that has the contract and the world; it is removed afterwards.
 * @template T
 * @param {string} contract the file of the contract
 * @param {string[]} interfaces what is exported
 * @param {(made: { wit: string, world: string, version: string }) => Promise<T>} use
 * @returns {Promise<T>}
 */
export async function withWorld(contract, interfaces, use) {
  const version = /^package capstan:operator@(\S+);$/m.exec(readFileSync(contract, "utf8"))?.[1];
  if (!version) throw new Error(`no package in ${contract}`);
  const wit = mkdtempSync(join(tmpdir(), "capstan-"));
  try {
    cpSync(contract, join(wit, "deps", "capstan.wit"));
    const exports = interfaces.map((name) => `  export capstan:operator/${name}@${version};\n`);
    writeFileSync(
      join(wit, "component.wit"),
      `package capstan:component;\nworld component {\n  include capstan:operator/imports@${version};\n${exports.join("")}}\n`,
    );
    return await use({ wit, world: "component", version });
  } finally {
    rmSync(wit, { recursive: true });
  }
}

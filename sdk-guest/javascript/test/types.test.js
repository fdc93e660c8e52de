// The types accept and refuse what they should: `types/author.ts` and `globals/component.ts` say what.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

/** Returns what the compiler says of a folder. */
function said(folder) {
  const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
  const { stdout } = spawnSync(process.execPath, [path("../node_modules/typescript/bin/tsc"), "-p", path(folder)], { encoding: "utf8" });
  return stdout;
}

test("the types accept what an author may write, and refuse what would fail", () => assert.equal(said("types"), ""));

test("what Node has and a component does not is refused", () => assert.equal(said("globals"), ""));

// The types accept and refuse what they should: `types/author.ts` says what.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

test("the types accept what an author may write, and refuse what would fail", () => {
  const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));
  const { stdout } = spawnSync(process.execPath, [path("../node_modules/typescript/bin/tsc"), "-p", path("types")], { encoding: "utf8" });
  assert.equal(stdout, "");
});

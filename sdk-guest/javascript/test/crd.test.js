// What the types of an author say of a custom resource.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

import { types } from "../build/types.js";

const SDK = fileURLToPath(new URL("..", import.meta.url));
const TSCONFIG = { compilerOptions: { strict: true, target: "ES2023", module: "NodeNext", types: [] }, include: ["*.ts"] };
let folder;

before(() => {
  folder = mkdtempSync(join(tmpdir(), "capstan-types-"));
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify(TSCONFIG));
  symlinkSync(join(SDK, "node_modules"), join(folder, "node_modules"));
});

after(() => rmSync(folder, { recursive: true }));

/** Returns what a source says. */
async function said(source) {
  const file = join(folder, "page.ts");
  writeFileSync(file, source);
  return JSON.parse(await types(file));
}

test("a type says names, columns, limits and texts of its fields", async () => {
  const [page] = await said(`
    interface Spec {
      /** What is shown.
       * @maxLength 63 */
      title: string;
      /** @asType integer
       * @default 1 */
      size?: number;
      /** @listType map
       * @listMapKeys name */
      parts?: { name: string }[];
      /** @rules [{ rule: "self != 'x'", message: "no x" }] */
      kind?: "a" | "b";
      /** @intOrString */
      port?: number | string;
    }
    /**
     * A page.
     * @apiVersion sample.dev/v1
     * @kind WebPage
     * @shortNames wp, page
     * @scope Cluster
     * @column Ready .status.conditions[?(@.type=="Ready")].status
     * @column "The size" .spec.size integer 1
     * @conditions
     */
    export interface Page { spec: Spec }
    interface Other { spec: string }
  `);
  const { schema, ...facts } = page;
  assert.deepEqual(facts, {
    apiVersion: "sample.dev/v1",
    kind: "WebPage",
    shortNames: ["wp", "page"],
    scope: "Cluster",
    conditions: true,
    columns: [
      { name: "Ready", jsonPath: '.status.conditions[?(@.type=="Ready")].status' },
      { name: "The size", jsonPath: ".spec.size", type: "integer", priority: 1 },
    ],
    selectableFields: [],
  });
  const { properties, required } = schema.properties.spec;
  assert.deepEqual(required, ["title"]);
  assert.deepEqual(properties.title, { type: "string", description: "What is shown.", maxLength: 63 });
  assert.deepEqual(properties.size, { type: "integer", default: 1 });
  assert.deepEqual(properties.parts["x-kubernetes-list-map-keys"], ["name"]);
  assert.deepEqual(properties.kind["x-kubernetes-validations"], [{ rule: "self != 'x'", message: "no x" }]);
  assert.equal(properties.port["x-kubernetes-int-or-string"], true);
});

test("what is no custom resource is told", async () => {
  await assert.rejects(said("export interface Page { spec: string }"), /exports no custom resource: write @apiVersion/);
  await assert.rejects(said("/** @apiVersion a.dev/v1 */ interface Page { spec: string }"), /Page is not exported/);
  await assert.rejects(said("/** @apiVersion a.dev/v1\n * @column Title */ export interface Page { spec: string }"), /Page: found @column Title; expected name and path/);
  await assert.rejects(types(join(folder, "none.ts")), /there is no file/);
});

test("without what reads types, it says what to install", () => {
  const bare = mkdtempSync(join(tmpdir(), "capstan-types-"));
  writeFileSync(join(bare, "page.ts"), "");
  const run = () => execFileSync(process.execPath, [join(SDK, "bin/capstan-js.js"), "types", join(bare, "page.ts")], { encoding: "utf8", stdio: "pipe" });
  assert.throws(run, /npm install --save-dev ts-json-schema-generator/);
  rmSync(bare, { recursive: true });
});

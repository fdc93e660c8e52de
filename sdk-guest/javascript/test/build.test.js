// From an author's file to a component, and what is said where that does not work.

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

const folder = mkdtempSync(join(tmpdir(), "capstan-test-"));
after(() => rmSync(folder, { recursive: true }));

/** Writes files, and runs the command there. */
function capstan(files, ...args) {
  return capstanBy([], files, ...args);
}

/** The same with these options of Node. */
function capstanBy(options, files, ...args) {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  const program = fileURLToPath(new URL("../bin/capstan-js.js", import.meta.url));
  const { status, stdout, stderr } = spawnSync(process.execPath, [...options, program, ...args], { cwd: folder, encoding: "utf8" });
  return { status, stdout, stderr };
}

/** Returns the interfaces that a component exports. */
function exported(name) {
  const text = readFileSync(join(folder, name), "latin1");
  const known = ["reconciler", "cleaner", "error-handler", "retry-policy", "initializer", "dependent", "bulk", "external", "matcher", "condition", "poller", "resource-poller", "filter", "mapper", "secondary-mapper", "description"];
  return known.filter((name) => text.includes(`capstan:operator/${name}@`));
}

test("a component exports what its author registers, its description, and no more", () => {
  const operator = `import { operator } from "@capstan/guest";\nexport default operator({ reconcile() {}, desired: { service: () => ({}) } });`;
  const { status, stdout } = capstan({ "src/operator.js": operator }, "build", "src/operator.js", "-o", "page.wasm");
  assert.deepEqual([status, stdout.replace(/\d+\.\d/, "N")], [0, "page.wasm  N MB\n  reconcile; desired service\n"]);
  assert.deepEqual(exported("page.wasm"), ["reconciler", "dependent", "description"]);
});

test("what is built of the same stays the same, and what is not as it was built is built anew", () => {
  const built = (text, ...options) => {
    const { status, stderr } = capstan({ "same.js": text }, "build", "same.js", ...options);
    assert.deepEqual([status, stderr], [0, ""]);
    return readFileSync(join(folder, "same.wasm"));
  };
  const [one, other] = [1, 2].map((number) => `import { operator } from "@capstan/guest";\nexport default operator({ reconcile: () => ({ reschedule: ${number} }) });`);
  const first = built(one);
  assert.ok(built(one).equals(first));
  assert.ok(!built(other).equals(first), "its text is another one");
  const second = built(one);
  assert.ok(!built(one, "--opt-size").equals(second), "it is built otherwise");
  writeFileSync(join(folder, "same.wasm"), Buffer.concat([second, Buffer.from([0])]));
  assert.notDeepEqual(built(one).at(-1), 0, "somebody has changed it");
});

test("TypeScript and packages are taken in, and several controllers are told", () => {
  const files = {
    "node_modules/colours/package.json": '{ "name": "colours", "type": "module", "main": "index.js" }',
    "node_modules/colours/index.js": 'export const dark = "#000";',
    "pages.ts": `
      import { operators, type Resource } from "@capstan/guest";
      import { dark } from "colours";
      type Theme = Resource<{ colour: string }>;
      console.log("seen by the build");
      export default operators({
        theme: { reconcile: (theme: Theme) => ({ status: { dark: theme.spec.colour === dark } }) },
        page: { cleanup: () => {}, condition: { ready: (): boolean => true } },
      });`,
  };
  const { status, stdout, stderr } = capstan(files, "build", "--opt-size", "pages.ts");
  assert.deepEqual([status, stderr], [0, ""]);
  assert.equal(stdout.replace(/\d+\.\d/, "N"), "seen by the build\npages.wasm  N MB\n  theme: reconcile\n  page: cleanup; condition ready\n");
  assert.deepEqual(exported("pages.wasm"), ["reconciler", "cleaner", "condition", "description"]);
});

test("what is wrong with a file is said in its own terms", () => {
  const start = `import { config, operator } from "@capstan/guest";\n`;
  const table = [
    ["export const reconcile = 1;", "wrong.js has no operator as its default export: write `export default operator({ … })`"],
    [`${start}export default { reconcile() {} };`, "wrong.js has no operator as its default export: write `export default operator({ … })`"],
    [
      `${start}export default operator({\n  reconsile() {} });`,
      "while the modules load: TypeError: operator() does not know `reconsile`; it knows: reconcile, cleanup, handleError, decideRetry, validate, initialize, desired, desiredSet, createExternal, updateExternal, removeExternal, match, condition, poll, pollOne, receive, accepts, toPrimaries, toSecondaries\n  at <anonymous> (wrong.js:2)",
    ],
    [
      `${start}const { title } = config();\nexport default operator({ reconcile: () => title });`,
      "while the modules load: config.get is called while modules load, and there is no daemon yet: call it within a function of the operator\n  at <anonymous> (wrong.js:2)",
    ],
    [
      `${start}const url = () => new URL("http://a");\nurl();\nexport default operator({ reconcile() {} });`,
      "while the modules load: ReferenceError: URL is not defined\n  at url (wrong.js:2) < <anonymous> (wrong.js:3)",
    ],
    [
      `${start}import { readFileSync } from "node:fs";\nexport default operator({ reconcile: () => readFileSync("a") });`,
      'wrong.js:2:30: node:fs is a module of Node; a component has neither files nor network, and takes what it needs from the daemon\n  import { readFileSync } from "node:fs";',
    ],
    [`${start}import x from "no-such-package";`, 'wrong.js:2:15: Could not resolve "no-such-package"\n  import x from "no-such-package";'],
    ["export default operator({", "wrong.js:1:26: Expected identifier but found end of file\n  export default operator({"],
  ];
  for (const [text, message] of table) {
    assert.deepEqual(capstan({ "wrong.js": text }, "build", "wrong.js"), { status: 1, stdout: "", stderr: `capstan-js build: ${message}\n` });
  }
  assert.equal(existsSync(join(folder, "wrong.wasm")), false);
});

test("the command says how it is used", () => {
  assert.match(capstan({}, "--help").stdout, /\n {2}npx capstan-js build src\/operator\.js -o webpage\.wasm\n/);
  const table = [
    [["bulid"], 2, "capstan-js: there is no command bulid; there are: build, types\nSee: capstan-js --help\n"],
    [["build"], 2, "capstan-js: which file? Write: capstan-js build src/operator.js\nSee: capstan-js --help\n"],
    [["build", "a.js", "b.js"], 2, "capstan-js: one file at a time, and this is one more: b.js\nSee: capstan-js --help\n"],
    [["build", "none.js"], 1, "capstan-js build: there is no file none.js\n"],
  ];
  for (const [args, status, stderr] of table) assert.deepEqual(capstan({}, ...args), { status, stdout: "", stderr });
});

test("a Node that is too old is told in one line, before anything is loaded", () => {
  for (const version of ["18.20.4", "12.22.12"]) {
    const old = { "old.cjs": `Object.defineProperty(process, "versions", { value: { ...process.versions, node: "${version}" } });` };
    const stderr = `capstan-js: this is Node ${version}; expected Node 20 or newer\n`;
    assert.deepEqual(capstanBy(["--require", "./old.cjs"], old, "build", "none.js"), { status: 1, stdout: "", stderr });
  }
});

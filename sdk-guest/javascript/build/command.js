// The command line: `capstan-js build` makes a component from an author's file, `capstan-js types` says what the types in it are.

import { writeFileSync } from "node:fs";
import { basename } from "node:path";
import { parseArgs } from "node:util";

import { Broken } from "./broken.js";

const HELP = `Build a Kubernetes operator for Capstan

Usage: capstan-js build [OPTIONS] FILE
       capstan-js types FILE

build: FILE is JavaScript or TypeScript; its default export is the operator.
types: FILE is TypeScript, with the type of a custom resource; prints what it says, for \`capstan crd\`, which makes the CRD of it.

Options:
  -o, --output FILE   Where the component goes; without it FILE's name with .wasm, in this folder
      --opt-size      A smaller component (1.3 MB instead of 1.8) whose code runs slower
  -h, --help          Print help

Examples:
  npx capstan-js build src/operator.js -o webpage.wasm
  npx capstan-js build src/operator.ts -o webpage.wasm --opt-size

Then, with the daemon's program:
  capstan check -m webpage.yaml
`;

const OPTIONS = {
  output: { type: "string", short: "o" },
  "opt-size": { type: "boolean" },
  help: { type: "boolean", short: "h" },
};

/** Does what the command line says, and returns the exit status. */
export async function main() {
  let command;
  try {
    command = parseArgs({ options: OPTIONS, allowPositionals: true });
  } catch (error) {
    return misused(error.message);
  }
  const { values, positionals: [name, entry, ...rest] } = command;
  if (values.help || name === undefined) {
    console.log(HELP);
    return 0;
  }
  if (!["build", "types"].includes(name)) return misused(`there is no command ${name}; there are: build, types`);
  if (entry === undefined) return misused(`which file? Write: capstan-js ${name} src/operator.${name === "build" ? "js" : "ts"}`);
  if (rest.length > 0) return misused(`one file at a time, and this is one more: ${rest[0]}`);
  if (name === "types") return await say(entry);
  return await make(entry, values.output ?? basename(entry).replace(/\.[^.]+$/, ".wasm"), values["opt-size"]);
}

async function make(entry, output, optSize) {
  try {
    // Here, so that help and wrong usage do not wait for the tools to load.
    const { build } = await import("./build.js");
    const { component, controllers } = await build(entry, { optSize, before: output });
    writeFileSync(output, component);
    console.log(`${output}  ${(component.length / 1e6).toFixed(1)} MB`);
    for (const { name, handlers } of controllers) console.log(`  ${name === undefined ? "" : `${name}: `}${handlers.join("; ")}`);
    return 0;
  } catch (error) {
    if (!(error instanceof Broken) && error.code === undefined) throw error;
    console.error(`capstan-js build: ${error.message}`);
    return 1;
  }
}

async function say(entry) {
  try {
    const { types } = await import("./types.js");
    console.log(await types(entry));
    return 0;
  } catch (error) {
    if (!(error instanceof Broken)) throw error;
    console.error(`capstan-js types: ${error.message}`);
    return 1;
  }
}

function misused(message) {
  console.error(`capstan-js: ${message}\nSee: capstan-js --help`);
  return 2;
}

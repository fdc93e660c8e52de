#!/usr/bin/env node
// Looks whether this Node is new enough, by what an older one can read as well; then does what the command line says.

import { readFileSync } from "fs";

const { engines } = JSON.parse(readFileSync(new URL("../package.json", import.meta.url), "utf8"));
const [expected, found] = [engines.node, process.versions.node].map((version) => Number(/\d+/.exec(version)[0]));
if (found < expected) {
  console.error(`capstan-js: this is Node ${process.versions.node}; expected Node ${expected} or newer`);
  process.exitCode = 1;
} else {
  import("../build/command.js").then(({ main }) => main()).then((status) => {
    process.exitCode = status;
  });
}

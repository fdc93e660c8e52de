// What a script expects of its surroundings and the engine lacks: a console, chance, UTF-8. Loaded before the author's modules.

import { log, system } from "#daemon";
import { shown, trace } from "./error.js";
import { phase } from "./phase.js";
import { TextDecoder, TextEncoder } from "./utf8.js";

/** While the build loads modules, what is printed is seen there. */
const builder = globalThis.console;

function print(level, args) {
  const message = args.map(shown).join(" ").toWellFormed();
  if (phase.running) log.write(level, message, []);
  else builder?.log(message);
}

globalThis.console = {
  trace: (...args) => print("trace", [...args, `at ${trace(new Error())}`]),
  debug: (...args) => print("debug", args),
  log: (...args) => print("info", args),
  info: (...args) => print("info", args),
  dir: (value) => print("info", [value]),
  warn: (...args) => print("warn", args),
  error: (...args) => print("error", args),
  assert: (condition, ...args) => condition || print("error", ["assertion failed:", ...args]),
};

// The engine's own is seeded by the build, and the same in each instance.
const { random } = Math;
Math.random = () => {
  if (!phase.running) return random();
  const [a, b] = new Uint32Array(Uint8Array.from(system.randomBytes(8)).buffer);
  return ((a >>> 5) * 2 ** 26 + (b >>> 6)) / 2 ** 53;
};

globalThis.crypto = {
  randomUUID: () => system.uuid(),
  getRandomValues: (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let at = 0; at < bytes.length; at += 4096) bytes.set(system.randomBytes(Math.min(4096, bytes.length - at)), at);
    return array;
  },
};

globalThis.TextEncoder = TextEncoder;
globalThis.TextDecoder = TextDecoder;

// What a component has beside the language.

import assert from "node:assert/strict";
import { test } from "node:test";

import { TextDecoder as Decoder, TextEncoder as Encoder } from "../src/utf8.js";
import { LINES, place } from "../src/lines.js";

test("texts become bytes and back as Node has it", () => {
  for (const text of ["", "html", "ä€😀", "\u0000\u007f\u0080\u07ff\u0800\uffff\u{10000}\u{10ffff}", "half \ud800 of it"]) {
    const bytes = new Encoder().encode(text);
    assert.deepEqual(bytes, new TextEncoder().encode(text));
    assert.equal(new Decoder().decode(bytes), new TextDecoder().decode(bytes));
  }
});

test("bytes that are no UTF-8 are replaced as Node does it", () => {
  const table = [[0xff], [0xc0, 0x80], [0xe2, 0x82], [0xe2, 0x82, 0x41], [0xed, 0xa0, 0x80], [0xf0, 0x9f, 0x98], [0xf5, 0x80], [0xef, 0xbb, 0xbf, 0x41], [0x41, 0x80]];
  for (const bytes of table.map((bytes) => Uint8Array.from(bytes))) {
    assert.equal(new Decoder().decode(bytes), new TextDecoder().decode(bytes), String(bytes));
    assert.equal(new Decoder("utf-8", { ignoreBOM: true }).decode(bytes.buffer), new TextDecoder("utf-8", { ignoreBOM: true }).decode(bytes));
  }
  assert.throws(() => new Decoder("utf8", { fatal: true }).decode(Uint8Array.of(0xff)), TypeError);
  assert.throws(() => new Decoder("latin1"), { name: "RangeError", message: "the encoding latin1 is not there; utf-8 is" });
});

test("lines of a component are found in the author's files, and those of the SDK in none", () => {
  globalThis[LINES] = { file: "x:user.js", sources: ["src/operator.js"], lines: { 7: [0, 3] } };
  try {
    assert.deepEqual([place("x:user.js", 7), place("x:user.js", 8), place("other.js", 7)], ["src/operator.js:3", undefined, undefined]);
  } finally {
    delete globalThis[LINES];
  }
  assert.deepEqual([place("/a/operator.js", 7), place("node:internal/x", 7)], ["/a/operator.js:7", undefined]);
});

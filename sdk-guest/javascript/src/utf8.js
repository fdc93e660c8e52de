// Texts to bytes and back: `TextEncoder` and `TextDecoder` for UTF-8, as far as scripts use them.

/** Writes texts as UTF-8. */
export class TextEncoder {
  encoding = "utf-8";

  /**
   * Returns the bytes of a text.
   * @param {string} text
   */
  encode(text = "") {
    const bytes = [];
    for (const character of String(text).toWellFormed()) {
      const code = character.codePointAt(0);
      if (code < 0x80) bytes.push(code);
      else if (code < 0x800) bytes.push(0xc0 | (code >> 6), tail(code));
      else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), tail(code >> 6), tail(code));
      else bytes.push(0xf0 | (code >> 18), tail(code >> 12), tail(code >> 6), tail(code));
    }
    return Uint8Array.from(bytes);
  }
}

/** Reads UTF-8. */
export class TextDecoder {
  encoding = "utf-8";

  /**
   * @param {string} encoding UTF-8, the only one
   * @param {{ fatal?: boolean, ignoreBOM?: boolean }} options
   */
  constructor(encoding = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    if (!/^utf-?8$/i.test(encoding)) throw new RangeError(`the encoding ${encoding} is not there; utf-8 is`);
    this.fatal = fatal;
    this.ignoreBOM = ignoreBOM;
  }

  /**
   * Returns the text of bytes; what is no UTF-8 becomes U+FFFD, or an error if `fatal`.
   * @param {ArrayBuffer | ArrayBufferView} input
   */
  decode(input = new Uint8Array()) {
    const bytes = ArrayBuffer.isView(input) ? new Uint8Array(input.buffer, input.byteOffset, input.byteLength) : new Uint8Array(input);
    let text = "";
    for (let at = 0; at < bytes.length; ) {
      const { code, length } = character(bytes, at);
      if (code === undefined && this.fatal) throw new TypeError("the bytes are no UTF-8");
      text += code === undefined ? "\ufffd" : String.fromCodePoint(code);
      at += length;
    }
    return !this.ignoreBOM && text.startsWith("\ufeff") ? text.slice(1) : text;
  }
}

function tail(bits) {
  return 0x80 | (bits & 0x3f);
}

/** How a character begins: its bits in the first byte, how many bytes follow, and bounds of the second against longer forms. */
const FORMS = [
  { from: 0x00, to: 0x7f, mask: 0x7f, tails: 0 },
  { from: 0xc2, to: 0xdf, mask: 0x1f, tails: 1 },
  { from: 0xe0, to: 0xe0, mask: 0x0f, tails: 2, least: 0xa0 },
  { from: 0xed, to: 0xed, mask: 0x0f, tails: 2, most: 0x9f },
  { from: 0xe1, to: 0xef, mask: 0x0f, tails: 2 },
  { from: 0xf0, to: 0xf0, mask: 0x07, tails: 3, least: 0x90 },
  { from: 0xf4, to: 0xf4, mask: 0x07, tails: 3, most: 0x8f },
  { from: 0xf1, to: 0xf3, mask: 0x07, tails: 3 },
];

/** Returns the character that begins there and its length; no code if it is cut off or wrong. */
function character(bytes, at) {
  const first = bytes[at];
  const form = FORMS.find(({ from, to }) => first >= from && first <= to);
  if (!form) return { length: 1 };
  let code = first & form.mask;
  for (let index = 1; index <= form.tails; index++) {
    const byte = bytes[at + index];
    const least = index === 1 ? (form.least ?? 0x80) : 0x80;
    const most = index === 1 ? (form.most ?? 0xbf) : 0xbf;
    if (byte === undefined || byte < least || byte > most) return { length: index };
    code = (code << 6) | (byte & 0x3f);
  }
  return { code, length: form.tails + 1 };
}

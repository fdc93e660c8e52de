// What a component has beside the language, where no other types say it: a tsconfig.json names it as `"types": ["@capstan/guest/globals"]`.

/** Texts to UTF-8. */
declare class TextEncoder {
  readonly encoding: string;
  encode(text?: string): Uint8Array<ArrayBuffer>;
}

/** UTF-8 to texts; no other encoding is there. */
declare class TextDecoder {
  constructor(encoding?: string, options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: string;
  decode(input?: ArrayBuffer | ArrayBufferView): string;
}

/** Chance, from the daemon. */
declare const crypto: {
  randomUUID(): string;
  getRandomValues<T extends ArrayBufferView>(array: T): T;
};

/** Returns the bytes, a character each, that a text in base64 says. */
declare function atob(text: string): string;
/** Returns bytes, a character each, in base64. */
declare function btoa(bytes: string): string;

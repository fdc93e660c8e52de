// Makes modules that look like the contract's imports and pass each call on.

const INTERFACES = ["cache", "config", "context", "expectations", "log", "memo", "operations", "recorder", "sources", "system", "workflow"];

/**
 * Returns the imports by name.
 * @param {(name: string, method: string, args: any[]) => any} call gets each call
 * @returns {Record<string, any>}
 */
export function forward(call) {
  const methods = (name) => new Proxy({}, { get: (_, method) => (...args) => call(name, String(method), args) });
  return Object.fromEntries(INTERFACES.map((name) => [name, methods(name)]));
}

// What an author imports; `index.d.ts` has it with types and examples.

export * as cache from "./cache.js";
export { list as secondaries, one as secondary } from "./cache.js";
export { config } from "./config.js";
export * as context from "./context.js";
export { equal } from "./equal.js";
export { CallError } from "./error.js";
export * as expectations from "./expectations.js";
export * as log from "./log.js";
export * as memo from "./memo.js";
export * as operations from "./operations.js";
export { operator, operators } from "./operator.js";
export * as recorder from "./recorder.js";
export * as sources from "./sources.js";
export { setCondition } from "./status.js";
export * as system from "./system.js";
export * as workflow from "./workflow.js";

// Stands in for the daemon while the build loads the author's modules: there is nobody to ask yet.

import { forward } from "./forward.js";

export const { cache, config, context, expectations, log, memo, operations, recorder, sources, system, workflow } = forward((name, method) => {
  throw new Error(`${name}.${method} is called while modules load, and there is no daemon yet: call it within a function of the operator`);
});

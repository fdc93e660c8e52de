// Decides what a {{kind}} needs in the cluster, and what its status says.

import { operator } from "@capstan/guest";

/** @typedef {import("@capstan/guest").Resource<{ greeting: string, name: string }, { text: string }>} {{kind}} */

export default operator({
  desired: {
    /** The ConfigMap that should exist. This comes before `reconcile`; if it throws, nothing is written. */
    configmap: (/** @type {{{kind}}} */ primary) => ({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: primary.metadata.name },
      data: { text: text(primary.spec) },
    }),
  },

  /** The ConfigMap is there by now: the status says what it has. */
  reconcile: (/** @type {{{kind}}} */ primary) => ({ status: { text: text(primary.spec) } }),
});

/**
 * What the schema in crd.yaml does not check is checked here.
 * @param {{{kind}}["spec"]} spec
 */
function text({ greeting, name }) {
  if (!greeting.includes("{name}")) throw new Error("spec.greeting needs {name}");
  return greeting.replaceAll("{name}", name);
}

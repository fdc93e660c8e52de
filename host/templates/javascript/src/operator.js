// Decides what a {{kind}} needs in the cluster, and what its status says.

import { operator } from "@capstan/guest";

/** @typedef {import("@capstan/guest").Resource<{ greeting: string, name: string }, { text: string }>} {{kind}} */

export default operator({
  /** What the schema in crd.yaml does not check is checked here, before anything but the finalizer is written. */
  validate: (/** @type {{{kind}}} */ { spec }) =>
    spec.greeting.includes("{name}") ? [] : [{ field: "spec.greeting", message: "{name} is missing" }],

  desired: {
    /** The ConfigMap that should exist. This comes before `reconcile`. */
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

/** @param {{{kind}}["spec"]} spec */
function text({ greeting, name }) {
  return greeting.replaceAll("{name}", name);
}

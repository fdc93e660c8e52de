// Decides what a {{kind}} needs in the cluster, and what its status says.

import { operator, type Resource } from "@capstan/guest";

export type {{kind}} = Resource<{ greeting: string; name: string }, { text: string }>;

export default operator({
  desired: {
    /** The ConfigMap that should exist. This comes before `reconcile`; if it throws, nothing is written. */
    configmap: (primary: {{kind}}) => ({
      apiVersion: "v1",
      kind: "ConfigMap",
      metadata: { name: primary.metadata.name },
      data: { text: text(primary.spec) },
    }),
  },

  /** The ConfigMap is there by now: the status says what it has. */
  reconcile: (primary: {{kind}}) => ({ status: { text: text(primary.spec) } }),
});

/** What the schema in crd.yaml does not check is checked here. */
function text({ greeting, name }: {{kind}}["spec"]): string {
  if (!greeting.includes("{name}")) throw new Error("spec.greeting needs {name}");
  return greeting.replaceAll("{name}", name);
}

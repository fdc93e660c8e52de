// Decides what a {{kind}} needs in the cluster, and what its status says.

import { operator, type Resource } from "@capstan/guest";

export type {{kind}} = Resource<{ greeting: string; name: string }, { text: string }>;

export default operator({
  /** What the schema in crd.yaml does not check is checked here, before anything is written. */
  validate: ({ spec }: {{kind}}) =>
    spec.greeting.includes("{name}") ? [] : [{ field: "spec.greeting", message: "{name} is missing" }],

  desired: {
    /** The ConfigMap that should exist. This comes before `reconcile`. */
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

function text({ greeting, name }: {{kind}}["spec"]): string {
  return greeting.replaceAll("{name}", name);
}

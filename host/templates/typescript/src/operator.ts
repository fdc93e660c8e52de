// Decides what a {{kind}} needs in the cluster, and what its status says.

import { operator, type Resource } from "@capstan/guest";

// From these types, `capstan crd` writes crd.yaml.

/** What is asked for. */
interface Spec {
  /**
   * What is said, with {name} in it.
   * @maxLength 256
   * @default "Hello, {name}!"
   */
  greeting: string;
  /**
   * Who is greeted.
   * @minLength 1
   * @maxLength 63
   */
  name: string;
}

/** What is told. The daemon adds the conditions. */
interface Status {
  /** What the ConfigMap says. */
  text?: string;
}

/**
 * Somebody is greeted.
 * @apiVersion {{group}}/v1alpha1
{{called}} * @column Ready .status.conditions[?(@.type=="Ready")].status
 * @column Text .status.text
 * @conditions
 */
export type {{kind}} = Resource<Spec, Status>;

export default operator({
  /** What the types can't say is checked here, before anything but the finalizer is written. */
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

// The types of what stands in for the daemon in native unit tests.

import type { expectations, log, operations, recorder, sources, Reason, Retry, workflow } from "./index.js";

/** What a daemon of a test knows; all of it may be left out. */
export interface Facts {
  /** The controller's name; `test` if left out. */
  controller?: string;
  /** The call belongs to no run, as those of `validate`, `poll`, `pollOne`, `receive`, `accepts`, `toPrimaries` and `toSecondaries`. */
  beside?: boolean;
  /** Makes the run a retry. */
  retry?: Partial<Retry>;
  /** An event for the primary is waiting already. */
  nextImminent?: boolean;
  /** In all-events mode: the primary is gone. */
  primaryDeleted?: boolean;
  finalStateUnknown?: boolean;
  /** How many milliseconds the call may still take; 5000 if left out. */
  timeLeft?: number;
  settings?: object;
  /** The plugin's `config`. */
  config?: object;
  /** The clock, which stands still. */
  now?: string | number | Date;
  /** The primary of the run, as the cache has it. */
  primary?: object;
  /** Other primaries in the cache. */
  primaries?: object[];
  /** The sources of the controller. Others are refused then, as the daemon refuses them; without it, one that nothing is known of is empty. */
  sources?: string[];
  /** Objects that belong to the primary, by source. */
  secondaries?: Record<string, object | object[]>;
  /** Things of the primary outside of the cluster, by source and id. */
  things?: Record<string, Record<string, unknown>>;
  /** Objects that do not, by source. */
  unrelated?: Record<string, object | object[]>;
  /** Names of objects, by index and key. */
  indexes?: Record<string, Record<string, string[]>>;
  /** Values of earlier calls. */
  memos?: Partial<Memos>;
  /** What is expected of the primary. */
  expectation?: { name: string; timedOut?: boolean };
  /** What becomes of workflows that are run by hand; `""` is the managed one. */
  workflows?: Record<string, Partial<workflow.Result>>;
  /** What has become of the managed workflow, which has run before `reconcile`. */
  workflowHasRun?: Partial<workflow.Result>;
  /** What becomes of standalone dependents. */
  dependents?: Record<string, Partial<workflow.Node>>;
  /** Refuses all writes with a verb. */
  refuse?: Partial<Record<Verb, { reason: Reason; message?: string; code?: number }>>;
  /** Sources that earlier runs have registered, by name. */
  registered?: Record<string, sources.Declaration>;
  /** Refuses to register sources with a name. */
  refuseSources?: Record<string, { reason: Reason; message?: string; code?: number }>;
}

/** The verbs of `operations`. */
export type Verb = "create" | "apply" | "forceApply" | "update" | "edit" | "jsonPatch" | "mergePatch" | "remove" | "addFinalizer" | "removeFinalizer";

/** A write that was asked for. */
export interface Write {
  verb: Verb;
  target: { apiVersion: string; kind: string; namespace?: string; name: string };
  /** The object or the patch; the finalizer's name; left out for a deletion. */
  body?: any;
  /** Left out if it is the usual one. */
  mode?: operations.Mode;
  subresource?: string;
}

/** A line of the log. */
export interface Line {
  level: Exclude<keyof typeof log, "Fields">;
  message: string;
  fields: Record<string, string>;
}

/** A Kubernetes Event. */
export interface Event extends recorder.Options {
  severity: "normal" | "warning";
  reason: string;
  message: string;
}

/** Values by lifetime and key. */
export interface Memos {
  run: Record<string, any>;
  primary: Record<string, any>;
  plugin: Record<string, any>;
}

/**
 * A daemon of values: it answers what the test says, and remembers what it was asked.
 *
 * ```js
 * const daemon = new Daemon({ secondaries: { deployment: { status: { readyReplicas: 1 } } } });
 * assert.deepEqual(daemon.run(() => webpage.reconcile(page)), { status: { areWeGood: true } });
 * assert.deepEqual(daemon.logs, [{ level: "info", message: "reconciled", fields: {} }]);
 * ```
 *
 * What one run writes or keeps, the next one of the same daemon finds.
 */
export class Daemon {
  constructor(facts?: Facts);
  /** Runs a function as if this daemon had called it, and returns its answer; what it throws is thrown. */
  run<T>(work: () => T): T;
  /** The writes that were asked for, in order. */
  readonly writes: Write[];
  /** The lines of the log. */
  readonly logs: Line[];
  /** The Kubernetes Events that were recorded. */
  readonly events: Event[];
  /** What is expected of the primary now. */
  readonly expectation?: expectations.Expectation;
  /** The sources that are registered now, by name, as they were declared. */
  readonly registered: Record<string, sources.Declaration>;
  /** What was told to sources of things outside of the cluster, in order. */
  readonly remembered: ({ source: string; actual: unknown; replaced?: unknown } | { source: string; forgotten: string })[];
  /** The values that are kept now. */
  readonly memos: Memos;
}

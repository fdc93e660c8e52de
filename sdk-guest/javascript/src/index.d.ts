// The types of what an author imports.

// === what an author writes ===

/** The `metadata` of an object. */
export interface Metadata {
  name: string;
  /** Left out for a cluster-scoped object. */
  namespace?: string;
  labels?: Record<string, string>;
  annotations?: Record<string, string>;
  /** The id that no other object ever has. */
  uid?: string;
  /** Grows with each change of the spec. */
  generation?: number;
  /** Changes with each write. */
  resourceVersion?: string;
  /** When the object was made, in RFC 3339. */
  creationTimestamp?: string;
  /** When its deletion was asked for, in RFC 3339. */
  deletionTimestamp?: string;
  /** Who has to tidy up before it goes. */
  finalizers?: string[];
  ownerReferences?: OwnerReference[];
}

/** Who owns an object. */
export interface OwnerReference {
  apiVersion: string;
  kind: string;
  name: string;
  uid: string;
  controller?: boolean;
  blockOwnerDeletion?: boolean;
}

/**
 * A custom resource, by the types of its spec and status.
 *
 * ```ts
 * type WebPage = Resource<{ html: string }, { areWeGood: boolean }>;
 * ```
 */
export interface Resource<Spec = any, Status = any> {
  apiVersion: string;
  kind: string;
  metadata: Metadata;
  spec: Spec;
  status?: Status;
}

/** Any object of the cluster. */
export interface KubernetesObject {
  apiVersion: string;
  kind: string;
  metadata: Metadata;
  [field: string]: any;
}

/** Milliseconds, or a text as in the manifest: `1500`, `"30s"`, `"1h30m"`. At most 49 days. */
export type Duration = number | string;

/** What an operator does; all of it may be left out, and only what is there is exported. */
export interface Handlers<P = KubernetesObject, D extends string = string, M extends string = string, C extends string = string> {
  /** Brings the world in line with a primary. Called after the managed workflow. What it throws is retried as the manifest says. */
  reconcile?(primary: P): Update<P> | void;
  /** Tidies up before a primary goes. Its presence makes the controller use a finalizer. */
  cleanup?(primary: P): Deletion | void;
  /** Decides what a failed run leaves behind. To answer nothing means that it was not dealt with: it is logged and retried. */
  handleError?(primary: P, failure: Failure): Handled<P> | void;
  /**
   * Decides when a failed run is retried: called after a failure of one that reconciles or cleans up, when a retry would follow. To answer
   * nothing, or to throw, leaves the delay to the manifest.
   */
  decideRetry?(primary: P, failed: FailedRun): NextRetry | void;
  /**
   * Says whether a primary is one that the component can work with: called before anything else in each run that reconciles. It sees the primary
   * alone; of what the daemon offers, `config` and the log work here. It answers what is wrong: a text, a problem, a list of those, or nothing.
   * Nothing is written then but the status, until the primary changes. What it throws is a failure of the run, and is retried.
   */
  validate?(primary: P): Problems | void;
  /**
   * Prepares a run: called first in each, before the managed workflow, whether it will reconcile or clean up. It usually puts values
   * into `memo.run` for the calls that follow. What it throws is a failure of the run, which ends with it.
   */
  initialize?(primary: P): void;
  /**
   * What dependents should look like, by the dependent's name. The namespace defaults to the primary's. Under another name than before
   * it is another object; what becomes of the former one is said by `onRename` in the manifest.
   */
  desired?: Record<D, (primary: P) => object>;
  /**
   * Of which objects dependents with `bulk: true` in the manifest should consist, by the dependent's name: each as `desired` would answer
   * it, the same name and namespace once. What the daemon has made for this dependent and primary beyond them is deleted first.
   */
  desiredSet?: Record<string, (primary: P) => object[]>;
  /**
   * Creates what is desired of dependents outside of the cluster (`external` in the manifest), by the dependent's name. An operator with these has
   * `updateExternal` and `removeExternal` as well. It has to bear being repeated: the daemon may end before it has kept the answer.
   */
  createExternal?: Record<string, (desired: any, primary: P) => Created>;
  /** Makes things outside of the cluster as desired, by the dependent's name. The answer is the thing as it is then, with the same id. */
  updateExternal?: Record<string, (actual: any, desired: any, primary: P) => object>;
  /** Removes things outside of the cluster, by the dependent's name. That the thing is gone already is a success. */
  removeExternal?: Record<string, (actual: any, primary: P) => void>;
  /**
   * Own comparisons of dependents, by the name that the manifest gives after `export:`. The answer is whether the object is as
   * desired, or a text that says what differs, which is logged, so no secrets in it; an empty one says that nothing does.
   */
  match?: Record<M, (actual: any, desired: any, primary: P) => boolean | string>;
  /** Conditions of a workflow, by the name that the manifest gives after `export:`. */
  condition?: Record<C, (primary: P, dependent: string) => boolean | Met>;
  /**
   * Reads things outside of the cluster for all primaries at once, by the name of a source with `poll`. A primary that is not in the
   * answer has none. What it throws keeps what was known, and is tried again. Called when it is time, outside of all runs.
   */
  poll?: Record<string, () => PrimaryThings[]>;
  /**
   * Reads things outside of the cluster for one primary, by the name of a source with `pollEach`, or with `inbound` and `fetch`. What it
   * throws keeps what was known, and is tried again. Called when it is time, by the first look of a run at the things of a primary, and when a
   * request has only said that something has changed, always outside of the run.
   */
  pollOne?: Record<string, (primary: P) => unknown[] | Things | void>;
  /**
   * Understands requests from outside, by the name of a source with `inbound`. What it throws is answered with status 500, and nothing of the
   * request is kept. Called outside of all runs.
   */
  receive?: Record<string, (request: Request) => Received | void>;
  /**
   * Decides which changes of objects matter, where CEL is not enough, by the name that the manifest gives after `export:`. What it throws
   * lets the change pass. Called outside of all runs.
   */
  accepts?: Record<string, (change: Change) => boolean>;
  /**
   * Finds the primaries of a secondary, by the name that the manifest gives after `mapper: { export: … }`. Called once for each version of
   * a secondary, outside of all runs. What it throws keeps what was known, and is tried again.
   */
  toPrimaries?: Record<string, (secondary: any) => Key[] | void>;
  /**
   * Finds the secondaries of a primary, by the name that the manifest gives after `secondaries: { export: … }`. Called when a run reads
   * them for the first time with this version of its primary. What it throws is a failure of that read.
   */
  toSecondaries?: Record<string, (primary: P) => Key[] | void>;
}

/** A request from outside, for `receive`. The daemon has checked its sender as the manifest says. */
export interface Request {
  /** What follows the source's own address, with the query. */
  path: string;
  /** Names in small letters; values of one name are joined by `, `. */
  headers: Record<string, string>;
  /** A text, or in base64 if the manifest says so. */
  body: string;
}

/** What `receive` answers, once the primaries that it concerns are in the queue. */
export interface Received {
  /** The HTTP status, from 200 to 599; 202 without it. */
  status?: number;
  /** The body of the answer. */
  text?: string;
  /** What the request says of primaries, in order. */
  events?: Told[];
}

/**
 * What a request says of a primary: that it has a thing, that one is gone, or, without either, only that it should run. Where the manifest says
 * `fetch`, the latter has `pollOne` read its things, and it runs if they have changed.
 */
export interface Told {
  /** Left out for a cluster-scoped primary. */
  namespace?: string;
  name: string;
  /** A thing that is new or has changed: JSON with an id where the manifest says. */
  present?: unknown;
  /** The id of a thing that is gone: a text or a whole number. */
  gone?: string | number;
}

/** What happened to an object, for `accepts`. */
export type Change<O = any> =
  | { sort: "added"; object: O; before?: undefined; finalStateUnknown?: undefined }
  | { sort: "updated"; object: O; before: O; finalStateUnknown?: undefined }
  | { sort: "deleted"; object: O; before?: undefined; finalStateUnknown: boolean };

/**
 * The name of an object: `name`, `namespace/name`, or both by themselves. Without a namespace it is in that of the object that the function
 * is given, or it lives in none.
 */
export type Key = string | { namespace?: string; name: string };

/** The things of one primary outside of the cluster. */
export interface PrimaryThings {
  /** Left out for a cluster-scoped primary. */
  namespace?: string;
  name: string;
  /** JSON each, with an id where the manifest says. */
  things: unknown[];
}

/** What `pollOne` answers if it says more than the things. */
export interface Things {
  /** JSON each, with an id where the manifest says. */
  things?: unknown[];
  /** Read them again after so long, in place of the manifest's period. */
  again?: Duration;
}

/** What `reconcile` asks for; nothing at all is an answer too. */
export interface Update<P = KubernetesObject> {
  /**
   * Written without its status. With server-side apply, the fields that this controller owns and no others; apiVersion, kind, name
   * and namespace are filled in.
   */
  object?: object;
  /** The status to write. */
  status?: StatusOf<P>;
  /** Run again after so long. Without it: at the next event. */
  reschedule?: Duration;
  /** Write only if the primary still has this `metadata.resourceVersion`; else the run fails with a conflict. */
  onlyAt?: string;
}

/** The type of a primary's status. */
export type StatusOf<P> = P extends { status?: infer S } ? NonNullable<S> : object;

/** What `cleanup` answers; nothing means that the primary may go. */
export interface Deletion {
  /** The primary may not go yet: called again at the next event. */
  keepFinalizer?: boolean;
  /** Called again after so long, too, if the finalizer is kept. */
  reschedule?: Duration;
}

/**
 * How `handleError` has dealt with a failure: it is logged once for each cause, and retried unless this says otherwise. `stop`, `retryAfter` and `reschedule`
 * exclude each other.
 */
export interface Handled<P = KubernetesObject> {
  /** The status to write. */
  status?: StatusOf<P>;
  /** True: no retry; wait for the next event. */
  stop?: boolean;
  /** Retry after so long, in place of the delay that the manifest says. It uses up an attempt, and none follows the last one. */
  retryAfter?: Duration;
  /** No retry; run again after so long. */
  reschedule?: Duration;
}

/** What failed; as a text it is its message. */
export interface Failure {
  /** Where it comes from. */
  origin: "reconciler" | "workflow" | "update" | "trap" | "timeout" | "out-of-memory" | "other";
  message: string;
  /** How the API server refused, or that it could not be asked, if that is why; `conflict` if all dependents that failed did for that. */
  refused?: Reason;
  /** The dependents that failed, and how the API server refused if that is why; empty unless the origin is `workflow`. */
  dependents: { name: string; message: string; refused?: Reason }[];
  retry: Retry;
}

/** What failed, for `decideRetry`. */
export interface FailedRun {
  /** The class of the failure, as under `retry.by` in the manifest. */
  failureClass: "returned" | "workflow" | "conflict" | "rejected" | "trap" | "timeout" | "out-of-memory" | "other";
  message: string;
  retry: Retry;
}

/** When a failed run is retried; an empty one is as the manifest says. */
export interface NextRetry {
  /** Retry after so long, in place of the delay that the manifest says. It uses up an attempt, and none follows the last one. */
  after?: Duration;
  /** True: no retry; wait for the next event. */
  stop?: boolean;
}

/** How often the primary has failed in a row. */
export interface Retry {
  /** The number of retries so far; 0 at the first failure. */
  attempt: number;
  /** True if no retry follows a failure of this run. */
  last: boolean;
}

/** What is wrong with a primary; it is shown in the status and in an Event, so no secrets in it. */
export interface Problem {
  /** The field, as people write it: `spec.replicas`; none for the primary as a whole. */
  field?: string;
  /** What was found, and what would be right. */
  message: string;
}

/** What `validate` answers. */
export type Problems = string | Problem | (string | Problem)[];

/** Whether a condition is met, and anything worth keeping: it is found in the result of the workflow. A text is shown in the status as well, so no secrets in it. */
export interface Met {
  met: boolean;
  detail?: unknown;
}

/** A thing outside of the cluster that was created. */
export interface Created {
  /** The thing as it is now, with its id where the source's `id` in the manifest says. */
  thing: object;
  /** The Kubernetes object that remembers the id; only with `state` in the manifest. It is written at once, and deleted together with the thing. */
  state?: object;
}

/** The operator of one controller. Its functions may be called as they are, in tests. */
export interface Operator<P = KubernetesObject, D extends string = string, M extends string = string, C extends string = string> {
  reconcile(primary: P): Update<P> | void;
  cleanup(primary: P): Deletion | void;
  handleError(primary: P, failure: Failure): Handled<P> | void;
  decideRetry(primary: P, failed: FailedRun): NextRetry | void;
  validate(primary: P): Problems | void;
  initialize(primary: P): void;
  desired: Record<D, (primary: P) => any>;
  desiredSet: Record<string, (primary: P) => any[]>;
  createExternal: Record<string, (desired: any, primary: P) => Created>;
  updateExternal: Record<string, (actual: any, desired: any, primary: P) => any>;
  removeExternal: Record<string, (actual: any, primary: P) => void>;
  match: Record<M, (actual: any, desired: any, primary: P) => boolean | string>;
  condition: Record<C, (primary: P, dependent: string) => boolean | Met>;
  poll: Record<string, () => PrimaryThings[]>;
  pollOne: Record<string, (primary: P) => unknown[] | Things | void>;
  receive: Record<string, (request: Request) => Received | void>;
  accepts: Record<string, (change: Change) => boolean>;
  toPrimaries: Record<string, (secondary: any) => Key[] | void>;
  toSecondaries: Record<string, (primary: P) => Key[] | void>;
}

/**
 * Makes the operator of one controller, or of any; it is the default export of the file that is built.
 *
 * ```js
 * export default operator({
 *   reconcile(page) {
 *     return { status: { areWeGood: secondary("deployment")?.status?.readyReplicas > 0 } };
 *   },
 *   desired: {
 *     configmap: (page) => ({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: page.metadata.name } }),
 *   },
 * });
 * ```
 */
export function operator<P = KubernetesObject, D extends string = string, M extends string = string, C extends string = string, H = {}>(
  handlers: Handlers<P, D, M, C> & H & { [N in Exclude<keyof H, keyof Handlers>]: never },
): H & Operator<P, D, M, C>;

/**
 * Makes the operators of several controllers, each by its name in the manifest: `operators({ webpage: { … }, theme: { … } })`. Give
 * each as `operator<WebPage>({ … })` if their primaries are to be checked.
 */
export function operators<O extends Record<string, Handlers<any> | Operator<any>>>(
  controllers: O,
): { [N in keyof O]: O[N] extends Operator<any> ? O[N] : Operator<any> };

// === what an author may ask for ===

/** Why a call was refused. */
export type Reason =
  /** The manifest does not permit it. */
  | "denied"
  /** An argument is wrong. */
  | "invalid"
  /** Not possible in this call, for example a workflow outside a run. */
  | "misplaced"
  /** The source, kind, index, workflow or object does not exist. */
  | "missing"
  /** There are several and one was asked for. */
  | "ambiguous"
  /** Somebody else was faster. */
  | "conflict"
  /** The API server said no. */
  | "rejected"
  /** The API server could not be reached, or failed; or what was asked for has not been listed yet. */
  | "unreachable"
  /** A workflow ran, and at least one of its nodes failed. */
  | "failed"
  /** A limit of the manifest is reached. */
  | "exhausted"
  | "other";

/** What the daemon or the API server has refused. */
export class CallError extends Error {
  readonly reason: Reason;
  /** The API server's HTTP status, if it was asked. */
  readonly code?: number;
}

/** Returns the one object of a source that belongs to the primary. The source of a dependent has the dependent's name. */
export const secondary: typeof cache.one;
/** Returns the objects of a source that belong to the primary. */
export const secondaries: typeof cache.list;

/** Says whether two documents are equal, whatever the order of their fields. */
export function equal(a: unknown, b: unknown): boolean;

/** Returns the `config` of the plugin in the manifest; an empty object if there is none. */
export function config<T = any>(): T;

/** Reads from the daemon's caches: no request is sent, and own writes are visible at once. */
export namespace cache {
  /** A source by its name, all sources of a kind, or the primaries of this controller. */
  type Place = string | { apiVersion: string; kind: string } | typeof primaries;

  /** The primaries of this controller. */
  const primaries: { readonly primaries: true };

  /** Which objects; without namespace, everywhere and index, those that belong to the primary (of primaries, all). */
  interface Query {
    /** Those of this namespace, whether they belong to the primary or not. */
    namespace?: string;
    /** All. */
    everywhere?: boolean;
    /** Those under a key of this index of the manifest. */
    index?: string;
    /** The key in the index. */
    key?: string;
    /** Those that a label selector accepts, written as for kubectl. */
    labels?: string;
    /** Only these fields, as JSON pointers, beside apiVersion, kind, namespace and name. Large answers cost time. */
    fields?: string[];
    /** Only the newest version of an object that several sources hold. */
    newestOnly?: boolean;
    /** At most so many in a page. */
    limit?: number;
    /** Begin where the page before has ended. */
    after?: string;
  }

  /** Returns the one object that belongs to the primary. Throws if there are several, or if no source watches the kind. */
  function one<T = any>(from: Place): T | undefined;
  /** Returns an object by its name, whether it belongs to the primary or not. */
  function get<T = any>(from: Place, key: { namespace?: string; name: string }): T | undefined;
  /** Returns objects, all pages of them, ordered by namespace and name. */
  function list<T = any>(from: Place, query?: Query): T[];
  /** Returns one page of objects; `next` is left out by the last one. */
  function page<T = any>(from: Place, query?: Query): { items: T[]; next?: string };
}

/** The run that the current call belongs to. */
export namespace context {
  interface Run {
    /** The controller's name. */
    controller: string;
    /** Left out on a fresh run. */
    retry?: Retry;
    /** In all-events mode: the primary is gone, and the object is the last one known. */
    primaryDeleted: boolean;
    /** In all-events mode: the deletion was missed, so there may have been later versions. */
    finalStateUnknown: boolean;
  }

  /** Returns the current run; `undefined` in a call outside a run. */
  function run(): Run | undefined;
  /** Says whether an event for this primary is waiting already, so that another run follows at once. */
  function nextImminent(): boolean;
  /** Returns how many milliseconds the current call may still take. */
  function timeLeft(): number;
  /** Returns the settings in force: `controller` as in the manifest, and `daemon` with identity, namespace and version. */
  function settings(): { controller: any; daemon: { identity: string; namespace: string; version: string } };
}

/** Writes to the cluster, beyond what the workflow and an `Update` do. The manifest has to permit them. */
export namespace operations {
  type Mode = "usual" | "match-and-filter" | "optimistic" | "cache-only" | "force-filter" | "plain";
  type Comparison = "by-verb" | "applied" | "generic" | "status-only" | "equality";

  /** An object of the cluster, or what says which. */
  type Target = { apiVersion: string; kind: string; metadata: { namespace?: string; name: string } } | { apiVersion: string; kind: string; namespace?: string; name: string };

  /** The fine print of a write. */
  interface Options {
    /** How it is treated; `usual` if left out. */
    mode?: Mode;
    /** How it is compared. */
    compareBy?: Comparison;
    /** The subresource to write, such as `status` or `scale`. */
    subresource?: string;
    /** The source that it concerns, if several watch the kind. */
    source?: string;
    /** An object to compare with instead of the cached one. */
    actual?: object;
  }

  /** The fine print of a deletion. */
  interface RemoveOptions {
    /** What becomes of owned objects. */
    propagation?: "usual" | "background" | "foreground" | "orphan";
    /** Delete only the object with this uid. */
    uid?: string;
    /** Delete only this version. */
    resourceVersion?: string;
    /** The seconds that it gets for its end. */
    graceSeconds?: number;
  }

  /** Creates an object; a `conflict` if it exists. Returns it as it is after the write, as the others do. */
  function create<T extends object>(object: T, options?: Options): T & KubernetesObject;
  /**
   * Applies an object: server-side apply with the controller's field manager. Sent exactly as given. Forced if the object is the
   * primary's; of any other, fields that another manager has are a `conflict`.
   */
  function apply<T extends object>(object: T, options?: Options): T & KubernetesObject;

  /** Applies an object like `apply`, but forced, whosever it is: takes fields from other managers. */
  function forceApply<T extends object>(object: T, options?: Options): T & KubernetesObject;
  /** Replaces an object. */
  function update<T extends object>(object: T, options?: Options): T & KubernetesObject;
  /** Sends the JSON patch that leads from the cached object to this one. */
  function edit<T extends object>(object: T, options?: Options): T & KubernetesObject;
  /** Sends a JSON patch (RFC 6902). */
  function jsonPatch(target: Target, patch: object[], options?: Options): KubernetesObject;
  /** Sends a JSON merge patch (RFC 7386). */
  function mergePatch(target: Target, patch: object, options?: Options): KubernetesObject;
  /** Deletes an object. It is a success if it is gone already. */
  function remove(target: Target, options?: RemoveOptions): void;
  /**
   * Adds a finalizer to the primary; without a name the controller's, which the daemon adds by itself where it is needed. With `triggerOnAllEvents`
   * that is the one that the manifest names; any other takes the grants `patch` and `delete` on the primary's kind.
   */
  function addFinalizer(finalizer?: string): KubernetesObject;
  /** Removes a finalizer from the primary; without a name the controller's. Returns the last known primary if it is gone. */
  function removeFinalizer(finalizer?: string): KubernetesObject;
  /** Compares without writing: true, or a text that says what differs. Differences under the JSON pointers `ignore` do not count. */
  function compare(by: Comparison, actual: object, desired: object, options?: { ignore?: string[] }): true | string;
}

/** Workflows and dependents run by hand, and what became of the managed workflow. Without a name: the managed one. */
export namespace workflow {
  interface Result {
    /** The nodes that were reached, in the order of the graph. */
    nodes: Node[];
    /** True if no node failed and no condition is open. */
    complete: boolean;
  }
  interface Node {
    /** The dependent's name. */
    name: string;
    /** What was done, one entry per object; empty if it failed or was inactive. */
    done: { key: string; operation: "unchanged" | "created" | "updated" | "deleted" }[];
    /** The conditions that were evaluated. */
    conditions: { role: "activation" | "reconcile-precondition" | "ready-postcondition" | "delete-postcondition"; met: boolean; detail?: any }[];
    /** The text of its failure; left out if it did not fail. */
    failed?: string;
  }

  /** Reconciles a workflow; the managed one must be explicit. Throws if a node failed, unless the manifest leaves failures to the reconciler. */
  function reconcile(name?: string): Result;
  /** Deletes what a workflow has made, leaves first. */
  function cleanup(name?: string): Result;
  /** Reconciles one standalone dependent. */
  function reconcileDependent(name: string): Node;
  /** Deletes one standalone dependent. */
  function removeDependent(name: string): Node;
  /** Returns what became of a workflow in this run; `undefined` if it has not run. */
  function lastResult(name?: string): Result | undefined;
}

/** Values that the daemon keeps, because instances share nothing and do not last. */
export namespace memo {
  interface Memo {
    /** Returns the value of a key; `undefined` if there is none. */
    get<T = any>(key: string): T | undefined;
    /** Sets the value of a key. Throws `exhausted` beyond the manifest's bound. */
    set(key: string, value: unknown): void;
    /** Removes a key. */
    remove(key: string): void;
  }

  /** Kept as long as the run: hands values from one call to another. */
  const run: Memo;
  /** Kept as long as the primary; lost when the daemon stops. */
  const primary: Memo;
  /** Kept as long as the plugin's version is loaded, and shared by all its runs; the last writer wins. */
  const plugin: Memo;
}

/**
 * One thing per primary that is expected to come true in time. The daemon keeps it until it stops; the component itself finds out whether
 * it has. Nothing calls the component when the time is over: reschedule.
 *
 * ```js
 * const isReady = () => secondary("deployment")?.status?.readyReplicas === 3;
 * const outcome = expectations.check("ready", isReady);
 * if (!outcome && expectations.checkAndSet("ready", "30s", isReady)) return { reschedule: "30s" };
 * ```
 */
export namespace expectations {
  /** What is expected. */
  interface Expectation {
    name: string;
    /** True once its time is over. */
    timedOut: boolean;
  }

  /**
   * What has become of an expectation. `fulfilled`: it has come true, and is expected no more. `timed-out`: its time is over; it is
   * expected until it is cleared or replaced. `pending`: it has not come true yet.
   */
  type Outcome = "fulfilled" | "timed-out" | "pending";

  /** Expects something of the primary, in place of anything else. */
  function expect(name: string, timeout: Duration): void;
  /** Returns what is expected of the primary; `undefined` if nothing is. */
  function pending(): Expectation | undefined;
  /** Expects this no more. Returns whether it was expected. */
  function clear(name: string): boolean;
  /** Expects something, unless it is so already. Returns whether it is expected now. */
  function checkAndSet(name: string, timeout: Duration, isSo: () => boolean): boolean;
  /** Returns what has become of an expectation; `undefined` if nothing of this name is expected. */
  function check(name: string, isSo: () => boolean): Outcome | undefined;
}

/**
 * Event sources that come and go while the controller runs. A source is one of the controller: it wakes all primaries that its objects belong
 * to. Register it in each run; where it is there already, that costs nothing. The manifest has to permit `watch` on the kind.
 *
 * ```js
 * sources.register("keys", { informer: { apiVersion: "v1", kind: "Secret" } });
 * const keys = secondaries("keys");
 * ```
 */
export namespace sources {
  /** A source, declared as in the manifest under `sources`. */
  interface Declaration {
    informer: { apiVersion: string; kind: string; [field: string]: unknown };
  }

  /** Starts a source, and waits until its cache is filled. Returns false if there is one of that name, which is then kept. */
  function register(name: string, declaration: Declaration): boolean;
  /**
   * Tells a source of things outside of the cluster that this run has made a thing for its primary, or put it in the place of `replaced`: it is
   * read from now on, and the next poll does not undo it. Nothing happens if something newer is known already.
   */
  function remember(name: string, actual: object, replaced?: object | null): void;
  /** Tells a source of things outside of the cluster that this run has removed its primary's thing with this id. */
  function forget(name: string, id: string): void;
  /** Stops a source that was started by `register`, if there is one. */
  function deregister(name: string): void;
}

/** A condition in the status of a primary, as Kubernetes knows it. Of its type there is one in a status. */
export interface StatusCondition {
  /** What is or is not so, in CamelCase. */
  type: string;
  status: "True" | "False" | "Unknown";
  /**
   * The generation of the primary of which that is known.
   * @asType integer
   */
  observedGeneration?: number;
  /** Since when it is; set by `setCondition`. */
  lastTransitionTime?: string;
  /** Why, as one word in CamelCase. */
  reason?: string;
  /** Why, for people. */
  message?: string;
}

/**
 * Puts a condition in the place of the one of its type, or behind the others. Its time is kept as long as its status is, else it is now. Returns
 * whether anything is different.
 *
 * ```js
 * const conditions = [...(page.status?.conditions ?? [])];
 * setCondition(conditions, { type: "Synced", status: true, reason: "UpToDate", observedGeneration: page.metadata.generation });
 * return { status: { conditions } };
 * ```
 *
 * Where the manifest says `statusConditions: standard`, `Ready`, `Progressing` and `Degraded` are the daemon's, and what is answered in their place
 * is left out.
 */
export function setCondition(
  conditions: StatusCondition[],
  condition: { type: string; status: boolean | "True" | "False" | "Unknown"; reason: string; message?: string; observedGeneration?: number },
): boolean;

/** Kubernetes Events about the primary, which `kubectl describe` shows. Best effort. */
export namespace recorder {
  interface Options {
    /** Events with the same key are counted as one; else those with the same message. */
    key?: string;
    /** What was being done. */
    action?: string;
    /** Who reports it, kept as the annotation `capstan.dev/component`. */
    component?: string;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
  }

  /** Records that all is as it should be. The reason is one word in CamelCase, the message a sentence. */
  function normal(reason: string, message: string, options?: Options): void;
  /** Records that somebody should look. */
  function warning(reason: string, message: string, options?: Options): void;
}

/** The daemon's log. Plugin, controller and primary are added to each line. The message says what happened, the fields have the facts. */
export namespace log {
  type Fields = Record<string, unknown>;

  /** Each step. */
  function trace(message: string, fields?: Fields): void;
  /** For finding faults. */
  function debug(message: string, fields?: Fields): void;
  /** Worth knowing. */
  function info(message: string, fields?: Fields): void;
  /** Odd, but it goes on. */
  function warn(message: string, fields?: Fields): void;
  /** Something failed. */
  function error(message: string, fields?: Fields): void;
}

/** Time and chance, from the daemon. */
export namespace system {
  /** Returns the time as Kubernetes writes it: `2026-01-31T12:00:00Z`. */
  function now(): string;
  /** Returns the time in milliseconds since 1970, with fractions. */
  function nowMs(): number;
  /** Returns so many random bytes. */
  function randomBytes(length: number): Uint8Array;
  /** Returns a random UUID (version 4). */
  function uuid(): string;
}

// === what a component has beside the language ===

declare global {
  /** Writes to the daemon's log. */
  interface Console {
    log(...values: any[]): void;
    info(...values: any[]): void;
    debug(...values: any[]): void;
    warn(...values: any[]): void;
    error(...values: any[]): void;
    trace(...values: any[]): void;
    dir(value?: any): void;
    assert(condition?: boolean, ...values: any[]): void;
  }
  var console: Console;
}

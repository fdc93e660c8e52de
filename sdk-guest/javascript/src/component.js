// What a component exports: the author's functions behind the contract's. The build alone uses it.

import { context, log } from "#daemon";
import { failure, trace } from "./error.js";
import { registry } from "./operator.js";
import { phase } from "./phase.js";
import { wellFormed } from "./unicode.js";

/** The interfaces of the contract, by what an author registers. */
const INTERFACES = {
  reconcile: "reconciler",
  cleanup: "cleaner",
  handleError: "error-handler",
  decideRetry: "retry-policy",
  validate: "validator",
  initialize: "initializer",
  desired: "dependent",
  desiredSet: "bulk",
  createExternal: "external",
  updateExternal: "external",
  removeExternal: "external",
  match: "matcher",
  condition: "condition",
  poll: "poller",
  pollOne: "resource-poller",
  receive: "inbound",
  accepts: "filter",
  toPrimaries: "mapper",
  toSecondaries: "secondary-mapper",
};
/** What each component exports: which names its functions answer to. */
const DESCRIPTION = "description";

/**
 * Returns what an operator registers, for the build: the interfaces to export, and a sentence on each controller.
 * @param {unknown} author the default export of the author's file
 * @returns {{ interfaces: string[], controllers: { name?: string, handlers: string[] }[] } | undefined} undefined if it is no operator
 */
export function describe(author) {
  const controllers = registry(author);
  if (!controllers) return undefined;
  const all = [...controllers.values()];
  return {
    interfaces: [...new Set(Object.keys(INTERFACES).filter((name) => all.some((handlers) => name in handlers)).map((name) => INTERFACES[name])), DESCRIPTION],
    controllers: [...controllers].map(([name, handlers]) => ({ name, handlers: Object.entries(handlers).map(said) })),
  };
}

function said([name, handler]) {
  return typeof handler === "function" ? name : `${name} ${Object.keys(handler).join(", ")}`;
}

/**
 * Returns the exports of a component, by interface; only those of `describe` are exported.
 * @param {unknown} author the default export of the author's file
 */
export function component(author) {
  const controllers = registry(author);

  /** Returns the name of the controller that is called for; validators, pollers, receivers, filters and mappers belong to no run. */
  const called = () => context.run()?.controller ?? JSON.parse(context.settings()).controller?.name;

  /** Returns the handlers of that controller. */
  const handlers = () => {
    if (controllers.has(undefined)) return controllers.get(undefined);
    return controllers.get(called()) ?? {};
  };

  /** Returns the one handler of a kind, such as `reconcile`. */
  const single = (what) => {
    const found = handlers()[what];
    if (found) return found;
    const known = [...controllers].filter(([, of]) => what in of).map(([name]) => name);
    throw unknown(`${what} for the controller`, called() ?? "", known);
  };

  /** Returns the handler of this name. */
  const named = (what, kind, name) => {
    const known = handlers()[what] ?? {};
    if (Object.hasOwn(known, name)) return known[name];
    throw unknown(kind, name, Object.keys(known));
  };

  return {
    [DESCRIPTION]: { describe: () => guarded("describe", () => names(controllers)) },
    reconciler: {
      reconcile: (primary) => guarded("reconcile", () => single("reconcile")(JSON.parse(primary))),
    },
    cleaner: {
      // A controller that does without has nothing to tidy up.
      cleanup: (primary) =>
        guarded("cleanup", () => handlers().cleanup?.(JSON.parse(primary)) ?? { tag: "remove-finalizer" }),
    },
    errorHandler: {
      // A controller that does without leaves failures to the daemon.
      handleError: (primary, failed) =>
        guarded("handleError", () => handlers().handleError?.(JSON.parse(primary), worded(failed)) ?? { tag: "unhandled" }),
    },
    retryPolicy: {
      // A controller that does without leaves delays to the manifest.
      decideRetry: (primary, failed) =>
        guarded("decideRetry", () => handlers().decideRetry?.(JSON.parse(primary), worded(failed)) ?? { tag: "declared" }),
    },
    validator: {
      // A controller that does without finds nothing wrong.
      validate: (primary) => guarded("validate", () => handlers().validate?.(JSON.parse(primary)) ?? []),
    },
    initializer: {
      // A controller that does without has nothing to prepare.
      initialize: (primary) => guarded("initialize", () => handlers().initialize?.(JSON.parse(primary))),
    },
    dependent: {
      desired: (name, primary) =>
        guarded(`desired.${name}`, () => named("desired", "desired state for", name)(JSON.parse(primary))),
    },
    bulk: {
      desiredSet: (name, primary) =>
        guarded(`desiredSet.${name}`, () => named("desiredSet", "desired set for", name)(JSON.parse(primary))),
    },
    external: {
      create: (name, desired, primary) =>
        guarded(`createExternal.${name}`, () => named("createExternal", "creator of", name)(...parsed(desired, primary))),
      update: (name, actual, desired, primary) =>
        guarded(`updateExternal.${name}`, () => named("updateExternal", "updater of", name)(...parsed(actual, desired, primary))),
      remove: (name, actual, primary) =>
        guarded(`removeExternal.${name}`, () => named("removeExternal", "remover of", name)(...parsed(actual, primary))),
    },
    matcher: {
      match: (name, actual, desired, primary) =>
        guarded(`match.${name}`, () =>
          named("match", "matcher", name)(...parsed(actual, desired, primary))),
    },
    condition: {
      isMet: (name, dependent, primary) =>
        guarded(`condition.${name}`, () => named("condition", "condition", name)(JSON.parse(primary), dependent)),
    },
    poller: {
      poll: (name) => guarded(`poll.${name}`, () => named("poll", "poller of", name)()),
    },
    resourcePoller: {
      pollOne: (name, primary) =>
        guarded(`pollOne.${name}`, () => named("pollOne", "resource poller of", name)(JSON.parse(primary))),
    },
    inbound: {
      receive: (name, request) => guarded(`receive.${name}`, () => named("receive", "receiver of", name)(requestOf(request))),
    },
    filter: {
      accepts: (name, change) => guarded(`accepts.${name}`, () => named("accepts", "filter", name)(changeOf(change))),
    },
    mapper: {
      toPrimaries: (name, secondary) =>
        guarded(`toPrimaries.${name}`, () => named("toPrimaries", "mapper", name)(JSON.parse(secondary))),
    },
    secondaryMapper: {
      toSecondaries: (name, primary) =>
        guarded(`toSecondaries.${name}`, () => named("toSecondaries", "secondary mapper", name)(JSON.parse(primary))),
    },
  };
}

/** Returns documents as an author sees them. */
function parsed(...texts) {
  return texts.map((text) => JSON.parse(text));
}

/** Returns which names each interface answers to, by controller; an interface whose function takes no name has none. */
function names(controllers) {
  const known = (controller) => ([what, handlers]) =>
    ({ exported: INTERFACES[what], controller: controller ?? null, names: typeof handlers === "function" ? null : Object.keys(handlers) });
  return [...controllers].flatMap(([controller, handlers]) => Object.entries(handlers).map(known(controller)));
}

/** Returns a request as an author sees it. */
function requestOf({ path, headers: pairs, body }) {
  const headers = new Map();
  for (const { name, value } of pairs) headers.set(name, headers.has(name) ? `${headers.get(name)}, ${value}` : value);
  return { path, headers: Object.fromEntries(headers), body };
}

/** Returns a change as an author sees it. */
function changeOf({ tag, val }) {
  if (tag === "added") return { sort: tag, object: JSON.parse(val) };
  if (tag === "updated") return { sort: tag, object: JSON.parse(val.after), before: JSON.parse(val.before) };
  return { sort: tag, object: JSON.parse(val.last), finalStateUnknown: val.finalStateUnknown };
}

function unknown(what, name, known) {
  return new Error(`this component has no ${what} \`${name}\`; it has: ${known.join(", ") || "none"}`);
}

/** Calls the author: what is thrown becomes the text of the failure, and the daemon's log gets its stack. */
function guarded(call, work) {
  phase.running = true;
  try {
    return wellFormed(work());
  } catch (thrown) {
    const error = wellFormed(told(() => failure(thrown)) ?? "something was thrown that can't be told");
    // What is no error has no stack; what the SDK finds wrong with an answer has none in the author's files.
    const fields = Object.entries({ function: call, error, stack: told(() => trace(thrown)) ?? "" }).filter(([, value]) => value !== "");
    log.write("warn", "an error was thrown", wellFormed(fields.map(([name, value]) => ({ name, value }))));
    // Not an error, but the text itself: the contract's type of a failure.
    throw error;
  }
}

/** Returns what is said of something thrown; nothing if that throws, too. */
function told(say) {
  try {
    return say();
  } catch {
    return undefined;
  }
}

/** Has a failure be its message as a text, as in `${failure}`, and leaves out what the engine has as null. */
function worded(failure) {
  for (const one of [failure, ...(failure.dependents ?? [])]) if (one.refused === null) delete one.refused;
  return Object.defineProperty(failure, "toString", { value: () => failure.message, configurable: true });
}

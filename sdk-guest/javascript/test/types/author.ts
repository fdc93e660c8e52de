// What the types accept, and what they know of it; and what they refuse: a line after `@ts-expect-error` has to be wrong.

import { CallError, cache, config, log, memo, operations, operator, operators, type Resource, secondaries, secondary } from "@capstan/guest";
import { Daemon } from "@capstan/guest/test";
import type { StatefulSet } from "kubernetes-types/apps/v1.js";
import type { ConfigMap } from "kubernetes-types/core/v1.js";

type WebPage = Resource<{ html: string; replicas?: number }, { areWeGood: boolean }>;
type Theme = Resource<{ colour: string }>;

const webpage = operator<WebPage>({
  reconcile(page) {
    const html: string = page.spec.html;
    // @ts-expect-error: there is no such field in the spec.
    page.spec.htlm;
    log.info("reconciled", { html, replicas: page.spec.replicas });
    console.log(html);
    return { status: { areWeGood: true }, reschedule: "30s" };
  },
  cleanup: () => ({ keepFinalizer: true, reschedule: 500 }),
  initialize: (page) => memo.run.set("name", page.metadata.name),
  handleError(page, failure) {
    if (failure.origin === "timeout" && !failure.retry.last) return { status: { areWeGood: false }, stop: true };
    // @ts-expect-error: failures come from elsewhere.
    if (failure.origin === "space") return {};
  },
  decideRetry(page, failed) {
    if (failed.failureClass === "conflict") return { after: "100ms" };
    // @ts-expect-error: there is no such class.
    if (failed.failureClass === "space") return { stop: page.spec.html === "" };
  },
  desired: { configmap: (page) => ({ data: { html: page.spec.html } }) },
  desiredSet: { themes: (page) => [{ metadata: { name: page.spec.html } }] },
  createExternal: { domain: (desired, page) => ({ thing: { ...desired, id: page.spec.html }, state: { data: { id: "1" } } }) },
  updateExternal: { domain: (actual, desired) => ({ ...actual, ...desired }) },
  removeExternal: { domain: (_actual, page) => void page.spec.html },
  match: { data: (actual, desired) => actual.data === desired.data || "data" },
  condition: { there: (_page, dependent) => secondary(dependent) !== undefined },
  poll: { themes: () => [{ namespace: "web", name: "a", things: [{ id: 1 }] }] },
  pollOne: { domains: (page) => [{ id: page.spec.html }], later: () => ({ things: [], again: "5s" }) },
  accepts: { renamed: (change) => change.sort === "updated" && change.object.name !== change.before.name },
  toPrimaries: { pages: (theme) => ["a", "n/b", { name: theme.name }], none: () => {} },
  toSecondaries: { themes: (page) => [{ namespace: "n", name: page.spec.html }] },
});

webpage.reconcile({ apiVersion: "v1", kind: "WebPage", metadata: { name: "a" }, spec: { html: "" } });
// @ts-expect-error: a primary has a spec.
webpage.reconcile({ apiVersion: "v1", kind: "WebPage", metadata: { name: "a" } });

// The type of the primary may come from one parameter; names are known then.
const inferred = operator({
  reconcile(page: WebPage) {
    return { status: { areWeGood: page.spec.html !== "" } };
  },
  desired: {
    service(page) {
      // @ts-expect-error: there is no such field in the spec.
      return { name: page.spec.htlm };
    },
  },
});
inferred.desired.service;
// @ts-expect-error: there is no such dependent.
inferred.desired.servcie;

// What is written is what tests call: its answers, and what it takes.
const written = operator({
  reconcile: (page: WebPage) => ({ status: { areWeGood: page.spec.html !== "" } }),
  desired: { configmap: (page: WebPage) => ({ data: { html: page.spec.html } }) },
  condition: { there: (page: WebPage) => ({ met: page.spec.html !== "", detail: "1 of 2" }) },
});
const page: WebPage = { apiVersion: "v1", kind: "WebPage", metadata: { name: "a" }, spec: { html: "" } };
const areWeGood: boolean = written.reconcile(page).status.areWeGood;
const html: string = written.desired.configmap(page).data.html;
const detail: string = written.condition.there(page).detail;
memo.run.set("written", [areWeGood, html, detail]);
// @ts-expect-error: nothing is called so.
operator({ reconcile: (page: WebPage) => ({ status: { areWeGood: page.spec.html !== "" } }), reconsile() {} });

// Without types, anything goes.
operator({ reconcile: (page) => ({ status: { seen: page.anything.at.all } }) });

// @ts-expect-error: a status has its type.
operator<WebPage>({ reconcile: () => ({ status: { areWeGood: "yes" } }) });
// @ts-expect-error: nothing is called so.
operator<WebPage>({ reconsile() {} });
// @ts-expect-error: calls are synchronous.
operator<WebPage>({ reconcile: async () => ({}) });
// @ts-expect-error: an answer has no such field.
operator<WebPage>({ reconcile: () => ({ statsu: {} }) });
// @ts-expect-error: an object is desired.
operator<WebPage>({ desired: { service: () => undefined } });
// @ts-expect-error: a list of objects is desired.
operator<WebPage>({ desiredSet: { themes: () => ({}) } });
// @ts-expect-error: a thing is created.
operator<WebPage>({ createExternal: { domain: () => ({}) } });
// @ts-expect-error: things have a primary.
operator<WebPage>({ poll: { themes: () => [{ things: [] }] } });
// @ts-expect-error: a condition is met or not.
operator<WebPage>({ condition: { ready: () => "ready" } });

const both = operators({ webpage, theme: operator<Theme>({ reconcile: (theme) => void theme.spec.colour }), plain: { reconcile: () => {} } });
both.theme.reconcile({ apiVersion: "v1", kind: "Theme", metadata: { name: "a" }, spec: { colour: "red" } });
// @ts-expect-error: there is no such controller.
both.them;

interface Deployment {
  status?: { readyReplicas?: number };
}
const ready: number | undefined = secondary<StatefulSet>("database")?.status?.readyReplicas;
const themes: Theme[] = secondaries<Theme>("themes", { labels: "app=web", fields: ["/spec/colour"] });
cache.get<Theme>({ apiVersion: "v1", kind: "Theme" }, { namespace: "web", name: "dark" })?.spec.colour;
cache.list(cache.primaries, { everywhere: true });
// @ts-expect-error: a query has no such field.
cache.list("themes", { label: "app=web" });
const title: string = config<{ title: string }>().title;
memo.run.set("themes", themes.length + (ready ?? 0) + title.length);
operations.apply({ apiVersion: "v1", kind: "ConfigMap", metadata: { name: "a" } }, { mode: "plain" });
// @ts-expect-error: there is no such mode.
operations.apply({}, { mode: "fast" });
try {
  operations.remove({ apiVersion: "v1", kind: "ConfigMap", name: "a" });
} catch (error) {
  if (!(error instanceof CallError) || error.reason !== "conflict") throw error;
}

// Kubernetes' own types fit.
operator<WebPage>({ desired: { configmap: (page): ConfigMap => ({ metadata: { name: page.metadata.name }, data: { "index.html": page.spec.html } }) } });
// @ts-expect-error: a ConfigMap has no such field.
operator<WebPage>({ desired: { configmap: (): ConfigMap => ({ dataa: {} }) } });
const replicas: number | undefined = secondary<StatefulSet>("database")?.status?.readyReplicas;
memo.run.set("replicas", replicas);

const daemon = new Daemon({ secondaries: { deployment: {} }, refuse: { apply: { reason: "denied" } } });
const answer = daemon.run(() => webpage.reconcile({} as WebPage));
const good: boolean | undefined = answer?.status?.areWeGood;
daemon.logs[0]?.fields.html?.length;
// @ts-expect-error: there is no such fact.
new Daemon({ secondary: {} });
export { good };

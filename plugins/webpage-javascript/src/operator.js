// Decides what a WebPage needs in the cluster, and what its status says.

import { log, operator } from "@capstan/guest";

/** @typedef {import("@capstan/guest").Resource<{ html: string, exposed?: boolean }>} WebPage */

export default operator({
  /** The workflow has run before: everything that the page needs is there. */
  reconcile(/** @type {WebPage} */ page) {
    log.debug("page is published", { html_config_map: configMapName(page) });
    return { status: statusOf(page) };
  },

  /** Only a change of the page can mend bad HTML, so it is not retried. Anything else is. */
  handleError(page) {
    if (problem(page)) return { status: statusOf(page), stop: true };
  },

  desired: {
    /** Comes first in the workflow: if it can't be made, the last good page stays as it is. */
    configmap(page) {
      const wrong = problem(page);
      if (wrong) throw new Error(wrong);
      return {
        apiVersion: "v1",
        kind: "ConfigMap",
        metadata: { name: configMapName(page), labels: labels(page) },
        data: { "index.html": page.spec.html },
      };
    },

    deployment: (page) => ({
      apiVersion: "apps/v1",
      kind: "Deployment",
      metadata: { name: page.metadata.name, labels: labels(page) },
      spec: {
        replicas: 1,
        selector: { matchLabels: labels(page) },
        template: {
          metadata: { labels: labels(page) },
          spec: {
            containers: [
              {
                name: "nginx",
                image: "nginx:1.29",
                ports: [{ containerPort: 80, protocol: "TCP" }],
                volumeMounts: [{ name: "html", mountPath: "/usr/share/nginx/html" }],
              },
            ],
            volumes: [{ name: "html", configMap: { name: configMapName(page) } }],
          },
        },
      },
    }),

    service: (page) => ({
      apiVersion: "v1",
      kind: "Service",
      metadata: { name: page.metadata.name, labels: labels(page) },
      spec: { selector: labels(page), ports: [{ port: 80, targetPort: 80, protocol: "TCP" }] },
    }),

    ingress(page) {
      const service = { name: page.metadata.name, port: { number: 80 } };
      return {
        apiVersion: "networking.k8s.io/v1",
        kind: "Ingress",
        metadata: { name: page.metadata.name, labels: labels(page) },
        spec: { rules: [{ http: { paths: [{ path: "/", pathType: "Prefix", backend: { service } }] } }] },
      };
    },
  },
});

/** @param {WebPage} page */
const configMapName = (page) => `${page.metadata.name}-html`;

/** @param {WebPage} page */
const labels = (page) => ({ app: page.metadata.name });

/**
 * Returns what is wrong with a page, if anything is.
 * @param {WebPage} page
 */
function problem({ spec: { html } }) {
  return html.includes("<html") && html.includes("</html>") ? undefined : "spec.html needs <html> and </html>";
}

/**
 * Follows from the page alone, so that it is written once for each change of the page.
 * @param {WebPage} page
 */
function statusOf(page) {
  const errorMessage = problem(page);
  const observedGeneration = page.metadata.generation;
  if (errorMessage) return { areWeGood: false, errorMessage, observedGeneration };
  return { areWeGood: true, htmlConfigMap: configMapName(page), observedGeneration };
}

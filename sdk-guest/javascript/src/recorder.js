// Records Kubernetes Events about the primary, which `kubectl describe` shows. Best effort.

import { recorder as daemon } from "#daemon";
import { given, optionalText, refuse, text } from "./check.js";

/** Records that all is as it should be. */
export const normal = (reason, message, options) => publish("normal", reason, message, options);
/** Records that somebody should look. */
export const warning = (reason, message, options) => publish("warning", reason, message, options);

function publish(severity, reason, message, options) {
  const { key, action, component, labels = {}, annotations = {}, ...strange } = given(options);
  refuse(strange, "key, action, component, labels, annotations");
  daemon.publish({
    severity,
    reason: text(reason, "the reason"),
    message: text(message, "the message"),
    key: optionalText(key, "key"),
    action: optionalText(action, "action"),
    component: optionalText(component, "component"),
    labels: pairs(labels),
    annotations: pairs(annotations),
  });
}

function pairs(record) {
  return Object.entries(record).map(([name, value]) => ({ name: text(name, "a name"), value: text(value, name) }));
}

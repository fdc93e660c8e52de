// Reads the plugin's own configuration.

import { config as daemon } from "#daemon";

/** Returns the `config` of the plugin in the manifest; an empty object if there is none. */
export function config() {
  return JSON.parse(daemon.get());
}

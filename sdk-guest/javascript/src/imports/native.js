// Stands in for the daemon outside of a component: the world of the test that is running.

import { World } from "../double/world.js";
import { forward } from "./forward.js";

let current = new World({});

/**
 * Runs a function in a world.
 * @template T
 * @param {World} world
 * @param {() => T} work
 * @returns {T}
 */
export function within(world, work) {
  const before = current;
  current = world;
  try {
    return work();
  } finally {
    current = before;
  }
}

export const { cache, config, context, expectations, log, memo, operations, recorder, sources, system, workflow } = forward(
  (name, method, args) => current[name][method](...args),
);

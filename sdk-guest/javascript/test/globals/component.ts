// What of the surroundings of Node there is in a component, and what is not: a line after `@ts-expect-error` has to be wrong.

import { operator } from "@capstan/guest";

export default operator({
  reconcile() {
    const bytes = new TextEncoder().encode(crypto.randomUUID());
    console.log(new TextDecoder("utf-8", { fatal: true }).decode(crypto.getRandomValues(bytes)), btoa(atob("")));
    // @ts-expect-error: nothing waits in a component.
    setTimeout(() => {}, 5);
    // @ts-expect-error: it has no network of its own.
    fetch("https://example.com");
    // @ts-expect-error: nor an environment.
    process.env;
  },
});

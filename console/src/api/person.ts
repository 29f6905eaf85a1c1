/** The caller that this page acts for: a person that has logged in, or the caller of the key. */
import { signal } from "@preact/signals";
import { fetchJSON } from "./client";
import { keyChanges } from "./key";
import type { Me } from "./schema";

/** Null before it is known, and on a gateway without callers. */
export const person = signal<Me | null>(null);

/** Read who the caller is. One that is refused is asked for a key by the request itself. */
export async function readPerson(): Promise<void> {
  const asked = keyChanges.value;
  try {
    const me = await fetchJSON<Me>("v1/me");
    if (asked === keyChanges.value) person.value = me.id === "local" ? null : me;
  } catch {
    if (asked === keyChanges.value) person.value = null;
  }
}

/** End the session of this browser. Nothing of it stays in the page. */
export async function logOut(): Promise<void> {
  await fetchJSON("v1/logout", { method: "POST" });
  person.value = null;
  keyChanges.value += 1;
}

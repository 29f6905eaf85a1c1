/** The key of the gateway: entered once, stored for this tab only, sent with every request. */
import { signal } from "@preact/signals";

const STORAGE_NAME = "holodeck.key";

export const key = signal(sessionStorage.getItem(STORAGE_NAME) ?? "");

/** How often a key was entered or forgotten in this page. What was read before is then read again. */
export const keyChanges = signal(0);

/** Whether the gateway has refused a request for want of a (better) key. The shell then asks for one. */
export const isKeyNeeded = signal(false);

/** Where a person logs in to the gateway, relative to the page; empty if that is not known to be possible. */
export const loginPath = signal("");

export function storeKey(entered: string): void {
  key.value = entered;
  sessionStorage.setItem(STORAGE_NAME, entered);
  isKeyNeeded.value = false;
  keyChanges.value += 1;
}

export function removeKey(): void {
  key.value = "";
  sessionStorage.removeItem(STORAGE_NAME);
  keyChanges.value += 1;
}

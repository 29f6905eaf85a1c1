/** The key of the gateway: entered once, stored for this tab only, sent with every request. */
import { signal } from "@preact/signals";

const STORAGE_NAME = "holodeck.key";

export const key = signal(sessionStorage.getItem(STORAGE_NAME) ?? "");

/** Whether the gateway has refused a request for want of a (better) key. The shell then asks for one. */
export const isKeyNeeded = signal(false);

export function storeKey(entered: string): void {
  key.value = entered;
  sessionStorage.setItem(STORAGE_NAME, entered);
  isKeyNeeded.value = false;
}

export function removeKey(): void {
  key.value = "";
  sessionStorage.removeItem(STORAGE_NAME);
}

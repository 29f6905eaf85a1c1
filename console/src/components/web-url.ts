/** Whether a text of the gateway is the address of a web page, and so may become a link. */
export function isWebURL(text: string): boolean {
  try {
    return ["http:", "https:"].includes(new URL(text).protocol);
  } catch {
    return false;
  }
}

/** Hands a file to the browser, which saves it. */

const MAX_NAME_CHARS = 100;
// Never one that a browser would open as a page of the gateway.
const SAVED_TYPE = "application/octet-stream";

/** The link is gone when the download has begun, so that nothing on the page leads to the content. */
export function saveFile(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

/** Save bytes that a server or a tool has sent. Their own type is not used. */
export function saveBytes(bytes: Uint8Array<ArrayBuffer>, name: string): void {
  saveFile(new Blob([bytes], { type: SAVED_TYPE }), name);
}

/** The bytes of base64, or null where it is none. */
export function decodeBase64(data: string): Uint8Array<ArrayBuffer> | null {
  try {
    return Uint8Array.from(atob(data), (character) => character.charCodeAt(0));
  } catch {
    return null;
  }
}

/** A file name from the end of a name or address, without what a file system or a reader would misunderstand. */
export function fileNameOf(address: string, otherwise: string): string {
  const last =
    address
      .replace(/^[a-z][a-z\d+.-]*:/i, "")
      .replace(/[?#].*$/s, "")
      .split(/[/\\]/)
      .findLast(Boolean) ?? "";
  const name = last.replace(/[^\p{L}\p{N}._ -]/gu, "_").replace(/^[. ]+/, "");
  return name.slice(-MAX_NAME_CHARS) || otherwise;
}

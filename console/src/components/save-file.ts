/** Hands a file to the browser, which saves it. */

/** The link is gone when the download has begun, so that nothing on the page leads to the content. */
export function saveFile(content: Blob, name: string): void {
  const url = URL.createObjectURL(content);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  URL.revokeObjectURL(url);
}

/** Copies a text, and says so. */
import { useState } from "preact/hooks";

// How long the button says that it has copied.
const SHOWN_MS = 1_500;

export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    const value = typeof text === "string" ? text : text();
    // There is no clipboard on a page that is neither local nor https.
    const isCopied = await navigator.clipboard.writeText(value).then(
      () => true,
      () => false,
    );
    setSaid(isCopied ? "Copied" : "Not copied");
    setTimeout(() => setSaid(""), SHOWN_MS);
  };
  return (
    <button type="button" class="quiet" onClick={() => void copy()}>
      <span aria-live="polite">{said || label}</span>
    </button>
  );
}

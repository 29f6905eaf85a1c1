/** Texts of tools and servers, which may have any length. */
import { useMemo } from "preact/hooks";
import { formatCount, indentJSON } from "./format";

// Characters of one text that are shown: a browser draws these at once.
export const MAX_SHOWN_CHARACTERS = 200_000;

/** A text as it is. One that is too long is cut, with the number of characters that are missing. */
export function LongText({ text, class: className = "" }: { text: string; class?: string }) {
  const missing = text.length - MAX_SHOWN_CHARACTERS;
  return (
    <>
      <pre tabIndex={0} class={className}>
        {missing > 0 ? text.slice(0, MAX_SHOWN_CHARACTERS) : text}
      </pre>
      {missing > 0 && <p class="note">{formatCount(missing)} more characters are not shown.</p>}
    </>
  );
}

/** A text with indents if it is JSON. It is read once, however often the page around it is drawn. */
export function JSONText({ text }: { text: string }) {
  // One that is not shown whole is not worth the time that reading it takes.
  const shown = useMemo(() => (text.length > MAX_SHOWN_CHARACTERS ? text : indentJSON(text)), [text]);
  return <LongText text={shown} />;
}

/** Text of the gateway's own documents: paragraphs, and code between backticks. */

export function InlineCode({ text }: { text: string }) {
  return (
    <>
      {text
        .split("`")
        .map((part, index) => (index % 2 === 1 ? <code key={index}>{part}</code> : <span key={index}>{part}</span>))}
    </>
  );
}

export function Paragraphs({ text }: { text: string }) {
  return (
    <>
      {text.split(/\n{2,}/).map((paragraph, index) => (
        <p key={index}>
          <InlineCode text={paragraph} />
        </p>
      ))}
    </>
  );
}

/** The result of a call: text, pictures, sound, resources, structured content. Nothing of it is loaded from elsewhere. */
import { CopyButton } from "../../components/copy-button";
import { PICTURE_TYPES } from "../../components/tool-parts";
import type { CallResult, ContentBlock } from "./mcp-client";

export function ToolResult({ result }: { result: CallResult }) {
  const blocks = result.content ?? [];
  return (
    <div class="tool-result">
      {result.isError && <p class="alert">The tool says that it has failed.</p>}
      {blocks.length === 0 && result.structuredContent === undefined && <p class="hint">The result is empty.</p>}
      {blocks.map((block, index) => (
        <Block key={index} block={block} />
      ))}
      {result.structuredContent !== undefined && (
        <>
          <h4>Structured content</h4>
          <pre tabIndex={0}>{JSON.stringify(result.structuredContent, null, 2)}</pre>
        </>
      )}
      <CopyButton text={() => JSON.stringify(result, null, 2)} label="Copy as JSON" />
    </div>
  );
}

function Block({ block }: { block: ContentBlock }) {
  const type = block.mimeType ?? "";
  if (block.type === "text") return <pre tabIndex={0}>{block.text ?? ""}</pre>;
  if (block.type === "image" && PICTURE_TYPES.has(type) && block.data) {
    return <img class="tool-picture" src={`data:${type};base64,${block.data}`} alt={`Picture of the tool (${type})`} />;
  }
  if (block.type === "resource" && typeof block.resource?.text === "string") {
    return (
      <>
        <p class="hint">
          <code>{block.resource.uri}</code>
        </p>
        <pre tabIndex={0}>{block.resource.text}</pre>
      </>
    );
  }
  if (block.type === "resource_link") {
    return (
      <p>
        Resource {block.name ?? ""} <code>{block.uri}</code>
      </p>
    );
  }
  return (
    <p class="hint">
      A part of type {block.type}
      {type && ` (${type})`}, which is not shown here.
    </p>
  );
}

/** The result of a call: its parts, and its structured content. */
import { CopyButton } from "../../components/copy-button";
import { LongText } from "../../components/long-text";
import { ContentView } from "./content-view";
import type { CallResult } from "./mcp-client";

export function ToolResult({ result }: { result: CallResult }) {
  const blocks = result.content ?? [];
  return (
    <div class="tool-result">
      {/* The tool may not have run: the gateway answers alike for arguments that it refuses and for a server that died. */}
      {result.isError && <p class="alert">The call failed.</p>}
      {blocks.length === 0 && result.structuredContent === undefined && <p class="hint">The result is empty.</p>}
      {blocks.map((block, index) => (
        <ContentView key={index} block={block} source="tool" />
      ))}
      {result.structuredContent !== undefined && (
        <>
          <h3>Structured content</h3>
          <LongText text={JSON.stringify(result.structuredContent, null, 2)} />
        </>
      )}
      <CopyButton text={() => JSON.stringify(result, null, 2)} label="Copy as JSON" />
    </div>
  );
}

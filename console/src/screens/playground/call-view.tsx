/** A tool call as it happens: server, tool, arguments, result, time. */
import { formatSeconds } from "../../components/format";
import { JSONText, LongText } from "../../components/long-text";
import type { FunctionCallItem, FunctionCallOutputItem, MCPCallItem, Part } from "../../api/types";
import { readPictureURL, type ToolPart } from "../../components/tool-parts";
import { ToolPartsView } from "../../components/tool-parts-view";
import { isHeldPicture } from "./attachments";
import type { ItemTimes } from "./response-state";

interface CallViewProps {
  call: MCPCallItem | FunctionCallItem;
  /** The model or agent, which the gateway names as the server of its own functions and of tools that do not exist. */
  model: string;
  /** The output of a call whose output is an item of its own. */
  output: FunctionCallOutputItem | undefined;
  /** What the result has that is no text. */
  parts: readonly ToolPart[];
  times: ItemTimes | undefined;
}

export function CallView({ call, model, output, parts, times }: CallViewProps) {
  const isMCP = call.type === "mcp_call";
  const server = isMCP && call.server_label !== model ? call.server_label : null;
  const error = isMCP ? textOfError(call.error) : "";
  const isRunning = isMCP && call.status === "in_progress";
  const held = output ? picturesOf(output.output) : [];
  const outcome = error ? "failed" : isRunning ? "running" : "done";
  return (
    <>
      <details class={`call ${outcome}`}>
        <summary>
          <span class="call-mark" aria-hidden="true">
            {error ? "×" : isRunning ? "…" : "✓"}
          </span>
          <span class="call-name">
            {server && <span class="call-server">{server}</span>}
            <code>{call.name}</code>
          </span>
          <span class="visually-hidden">{outcome}</span>
          <span class="call-preview">{call.arguments}</span>
          {times?.end != null && <span class="call-time">{formatSeconds((times.end - times.start) / 1000)}</span>}
        </summary>
        <p class="call-heading">Arguments</p>
        <JSONText text={call.arguments} />
        {error && (
          <>
            <p class="call-heading">Error</p>
            <LongText class="error-text" text={error} />
          </>
        )}
        {isMCP && call.output !== null && (
          <>
            <p class="call-heading">Result</p>
            <JSONText text={call.output} />
          </>
        )}
        {output && (
          <>
            <p class="call-heading">Result</p>
            <OutputView output={output.output} />
          </>
        )}
      </details>
      <ToolPartsView parts={held.length > 0 ? held : parts} tool={call.name} server={server} />
    </>
  );
}

function OutputView({ output }: { output: string | Part[] }) {
  if (typeof output === "string") return <JSONText text={output} />;
  // Pictures that the page holds are below the call, where they are seen without opening it.
  const others = output.filter((part) => picturesOf([part]).length === 0);
  return (
    <>
      {others.map((part, index) => (
        <PartView key={index} part={part} />
      ))}
    </>
  );
}

function picturesOf(output: string | Part[]): ToolPart[] {
  if (typeof output === "string") return [];
  return output.flatMap((part) => (part.type === "input_image" && readPictureURL(part.image_url ?? "")) || []);
}

/** A part of a message or result that is no Markdown: text as it is, pictures that the page holds, names of files. */
export function PartView({ part }: { part: Part }) {
  if (part.type === "input_image") {
    const url = part.image_url ?? "";
    if (isHeldPicture(url)) return <img class="held-picture" src={url} alt="Attached" />;
    return <p class="hint">[picture: {url.startsWith("data:") ? "of a type that is not shown" : url}]</p>;
  }
  if (part.type === "input_file") return <p class="file-name">{part.filename ?? "file"}</p>;
  return <LongText text={part.type === "refusal" ? part.refusal : part.text} />;
}

/** The words of an `error` field, which is a text or an object of several forms. */
export function textOfError(error: unknown): string {
  if (error === null || error === undefined) return "";
  if (typeof error === "string") return error;
  if (typeof error === "object" && "message" in error && typeof error.message === "string") return error.message;
  if (typeof error === "object" && "content" in error && Array.isArray(error.content)) {
    return error.content.map((part: unknown) => textOfContent(part)).join("\n");
  }
  return JSON.stringify(error, null, 2);
}

function textOfContent(part: unknown): string {
  if (typeof part === "object" && part !== null && "text" in part && typeof part.text === "string") return part.text;
  return JSON.stringify(part);
}

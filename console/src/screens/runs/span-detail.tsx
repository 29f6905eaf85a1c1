/** One step of a run: what went in and what came out. */
import { useState } from "preact/hooks";
import { formatCount, formatSeconds, indentJSON } from "../../components/format";
import { JSONText, LongText } from "../../components/long-text";
import { readToolParts } from "../../components/tool-parts";
import { ToolPartsView } from "../../components/tool-parts-view";
import { OfferedTools } from "./offered-tools";
import type { Span, Trace, TraceItem } from "./run-types";

// Items of an input that are shown at first: the latest ones.
const SHOWN_ITEMS = 12;

export function SpanDetail({ span, trace }: { span: Span; trace: Trace }) {
  const sent = pick(trace, span.input_items);
  const said = pick(trace, span.output_items);
  return (
    <section class="span-detail" aria-label={`Step: ${span.name}`}>
      <h2>
        {span.server && <span class="call-server">{span.server}</span>}
        {span.tool ?? span.name}
      </h2>
      <p class="hint">{describe(span)}</p>
      {span.error && <p class="alert">{span.error}</p>}
      {span.arguments !== null && span.arguments !== undefined && (
        <>
          <h3>Arguments</h3>
          <LongText
            text={typeof span.arguments === "string" ? span.arguments : JSON.stringify(span.arguments, null, 2)}
          />
        </>
      )}
      {span.output !== null && (
        <>
          <h3>{span.is_error ? "Error" : "Result"}</h3>
          {span.output !== "" && <JSONText text={span.output} />}
          <ToolPartsView
            parts={(said ?? []).flatMap((item) => readToolParts(item.content))}
            tool={span.tool ?? span.name}
            server={span.server}
          />
        </>
      )}
      {span.kind === "model" || span.kind === "turn" ? (
        <>
          <Instructions trace={trace} />
          {span.tools !== null && <OfferedTools key={span.id} tools={span.tools} />}
          <h3>The model was sent</h3>
          {trace.context.items > 0 && (
            <p class="hint">{formatCount(trace.context.items)} items of earlier responses, then:</p>
          )}
          {sent === null ? <p class="hint">A later compaction has replaced it.</p> : <Items items={sent} />}
          <h3>The model said</h3>
          <Items items={said ?? []} />
        </>
      ) : null}
      {span.kind === "run" && <Items items={trace.items} />}
    </section>
  );
}

function Instructions({ trace }: { trace: Trace }) {
  return (
    <>
      {(trace.agent_instructions !== null || trace.agent_instructions_changed) && (
        <>
          <h3>Instructions of the agent</h3>
          {trace.agent_instructions !== null && <pre>{trace.agent_instructions}</pre>}
          {trace.agent_instructions_changed && <p class="hint">They have changed since this run.</p>}
        </>
      )}
      {trace.instructions && (
        <>
          <h3>Instructions of the request</h3>
          <pre>{trace.instructions}</pre>
        </>
      )}
    </>
  );
}

function Items({ items }: { items: readonly TraceItem[] }) {
  const [isWhole, setIsWhole] = useState(false);
  if (items.length === 0) return <p class="hint">Nothing yet.</p>;
  const hidden = isWhole ? 0 : Math.max(0, items.length - SHOWN_ITEMS);
  return (
    <>
      {hidden > 0 && (
        <button type="button" class="quiet" onClick={() => setIsWhole(true)}>
          Show {formatCount(hidden)} earlier items
        </button>
      )}
      <ol class="trace-items" start={hidden + 1}>
        {items.slice(hidden).map((item, index) => (
          <li key={index}>
            <span class="trace-role">{item.role ?? item.type.replaceAll("_", " ")}</span>
            {item.name && <code> {item.name}</code>}
            <LongText text={textOfItem(item)} />
          </li>
        ))}
      </ol>
    </>
  );
}

function pick(trace: Trace, indexes: readonly number[] | null): TraceItem[] | null {
  return indexes === null ? null : indexes.flatMap((index) => trace.items[index] ?? []);
}

/** What an item says, as text; what is no text is named. */
export function textOfItem(item: TraceItem): string {
  if (typeof item.arguments === "string") return indentJSON(item.arguments);
  if (typeof item.content === "string") return item.content;
  if (!Array.isArray(item.content)) return JSON.stringify(item, null, 2);
  return item.content.map(textOfPart).join("\n");
}

function textOfPart(part: unknown): string {
  if (typeof part !== "object" || part === null) return String(part);
  if ("text" in part && typeof part.text === "string") return part.text;
  const kind = "type" in part && typeof part.type === "string" ? part.type : "part";
  const type = "mime_type" in part && typeof part.mime_type === "string" ? `, ${part.mime_type}` : "";
  return `[${kind}${type}]`;
}

function describe(span: Span): string {
  const parts = [span.kind, span.seconds === null ? "running" : formatSeconds(span.seconds)];
  parts.push(`from ${formatSeconds(span.start)}`);
  if (span.first_token_seconds !== null) parts.push(`first token after ${formatSeconds(span.first_token_seconds)}`);
  if (span.usage) {
    parts.push(`${formatCount(span.usage.input_tokens)} tokens in, ${formatCount(span.usage.output_tokens)} out`);
  }
  if (span.cost !== null) parts.push(`cost ${span.cost}`);
  return parts.join(" · ");
}

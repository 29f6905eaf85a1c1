/** One tool: what it says of itself, a form to try it, and what came back. */
import { useMemo, useState } from "preact/hooks";
import { SchemaFields } from "../../components/schema-fields";
import { buildFields, focusProblem, readForm } from "../../components/schema-form";
import { callTool, type CallResult } from "./mcp-client";
import { RequestActions, RequestOutcome, useMCPRequest } from "./mcp-request";
import { OfferDetails } from "./offer-details";
import type { Tool } from "./server-types";
import { ToolResult } from "./tool-result";

interface ToolViewProps {
  server: string;
  tool: Tool;
  canCall: boolean;
}

export function ToolView({ server, tool, canCall }: ToolViewProps) {
  return (
    <OfferDetails
      name={tool.name}
      title={tool.title}
      about={tool.description}
      badges={listHints(tool.annotations ?? {})}
    >
      {canCall && <ToolForm server={server} tool={tool} />}
      <details class="schema" open={!canCall}>
        <summary>Schema</summary>
        <pre tabIndex={0}>{JSON.stringify(tool.inputSchema, null, 2)}</pre>
      </details>
    </OfferDetails>
  );
}

/** What a server says of a tool. It is the word of the server, and no more. */
function listHints(annotations: Record<string, unknown>): string[] {
  const hints: string[] = [];
  if (annotations["readOnlyHint"] === true) hints.push("reads only");
  if (annotations["readOnlyHint"] !== true && annotations["destructiveHint"] === true) hints.push("may destroy");
  if (annotations["idempotentHint"] === true) hints.push("can be repeated");
  return hints;
}

function ToolForm({ server, tool }: { server: string; tool: Tool }) {
  const fields = useMemo(() => buildFields(tool.inputSchema), [tool]);
  const [texts, setTexts] = useState<ReadonlyMap<string, string>>(new Map());
  const [problems, setProblems] = useState<ReadonlyMap<string, string>>(new Map());
  const request = useMCPRequest<CallResult>();
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const filled = readForm(fields, texts);
    setProblems(filled.problems);
    if (filled.problems.size > 0) {
      focusProblem(event);
      return;
    }
    const call = { tool: tool.name, schema: tool.inputSchema, arguments: filled.values };
    request.start((answered, signal) => callTool(server, call, { ...answered, signal }));
  };
  return (
    <>
      <form class="try-tool" aria-label={`Try ${tool.name}`} noValidate onSubmit={submit}>
        {fields.length === 0 && <p class="hint">It takes no arguments.</p>}
        <SchemaFields
          fields={fields}
          texts={texts}
          problems={problems}
          onChange={(name, text) => setTexts((before) => new Map(before).set(name, text))}
        />
        <RequestActions request={request} label="Call" />
      </form>
      <RequestOutcome request={request}>{(result) => <ToolResult result={result} />}</RequestOutcome>
    </>
  );
}

/** One tool: what it says of itself, a form to try it, and what came back. */
import { useMemo, useRef, useState } from "preact/hooks";
import { asError } from "../../components/resource";
import { formatSeconds } from "../../components/format";
import { QuestionForm, type Answers } from "../../components/question-form";
import { SchemaFields } from "../../components/schema-fields";
import { buildFields, readForm } from "../../components/schema-form";
import { callTool, type CallResult } from "./mcp-client";
import type { Tool } from "./server-types";
import { ToolResult } from "./tool-result";

interface ToolViewProps {
  server: string;
  tool: Tool;
  canCall: boolean;
}

export function ToolView({ server, tool, canCall }: ToolViewProps) {
  const [isOpen, setIsOpen] = useState(false);
  const hints = listHints(tool.annotations ?? {});
  return (
    <details class="server-tool" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        <code>{tool.name}</code>
        {tool.title && <span> {tool.title}</span>}
        {hints.map((hint) => (
          <span key={hint} class="badge neutral">
            {hint}
          </span>
        ))}
        {tool.description && <span class="hint tool-about">{tool.description}</span>}
      </summary>
      {isOpen && (
        <div class="tool-body">
          {canCall && <ToolForm server={server} tool={tool} />}
          <details class="schema" open={!canCall}>
            <summary>Schema</summary>
            <pre tabIndex={0}>{JSON.stringify(tool.inputSchema, null, 2)}</pre>
          </details>
        </div>
      )}
    </details>
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

interface Outcome {
  result: CallResult | null;
  failure: string;
  seconds: number;
}

function ToolForm({ server, tool }: { server: string; tool: Tool }) {
  const fields = useMemo(() => buildFields(tool.inputSchema), [tool]);
  const [texts, setTexts] = useState<ReadonlyMap<string, string>>(new Map());
  const [problems, setProblems] = useState<ReadonlyMap<string, string>>(new Map());
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  const [isRunning, setIsRunning] = useState(false);
  const stop = useRef<AbortController | null>(null);
  const sent = useRef<Record<string, unknown>>({});

  const run = async (answers?: Answers) => {
    const controller = new AbortController();
    stop.current = controller;
    const before = outcome?.result;
    const started = performance.now();
    setIsRunning(true);
    setOutcome(null);
    const answered = answers && before ? { answers, before } : {};
    const call = { tool: tool.name, schema: tool.inputSchema, arguments: sent.current, signal: controller.signal };
    let result: CallResult | null = null;
    let failure = "";
    try {
      result = await callTool(server, { ...call, ...answered });
    } catch (error) {
      failure = controller.signal.aborted ? "You have stopped the call." : asError(error).message;
    }
    setOutcome({ result, failure, seconds: (performance.now() - started) / 1000 });
    setIsRunning(false);
  };
  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const filled = readForm(fields, texts);
    setProblems(filled.problems);
    if (filled.problems.size > 0) {
      const form = event.currentTarget as HTMLFormElement;
      // After the fields are marked.
      requestAnimationFrame(() => form.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus());
      return;
    }
    sent.current = filled.values;
    void run();
  };
  const questions = Object.entries(outcome?.result?.inputRequests ?? {});
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
        <p class="actions">
          <button type="submit" class="primary" disabled={isRunning}>
            Call
          </button>
          {isRunning && (
            <button type="button" onClick={() => stop.current?.abort()}>
              Stop
            </button>
          )}
        </p>
      </form>
      <div class="tool-outcome" aria-live="polite">
        {isRunning && <p class="hint">Running…</p>}
        {outcome?.failure && <p class="alert">{outcome.failure}</p>}
        {outcome?.result && questions.length === 0 && <ToolResult result={outcome.result} />}
        {outcome && questions.length === 0 && <p class="hint">Took {formatSeconds(outcome.seconds)}.</p>}
      </div>
      {questions.length > 0 && <QuestionForm questions={questions} onAnswer={(answers) => void run(answers)} />}
    </>
  );
}

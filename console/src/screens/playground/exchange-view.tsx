/** One exchange: what was sent, and the response with its calls as they happen. */
import { Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import {
  isFinished,
  type ApprovalRequestItem,
  type ApprovalResponseItem,
  type Elicitation,
  type Item,
} from "../../api/types";
import { formatCount, formatSeconds } from "../../components/format";
import { LiveRegion } from "../../components/live-region";
import { Markdown } from "../../components/markdown";
import { stemOf } from "../../components/tool-parts";
import { buildHash } from "../../shell/route";
import { Approvals } from "./approval-view";
import { CallView, PartView } from "./call-view";
import { hasQuestion, textOfInput, type Conversation, type Exchange } from "./conversation";
import { ElicitationList } from "./elicitation-view";
import { useElicitations, type OpenElicitations } from "./elicitations";
import { textOf, textOfParts, type ResponseState } from "./response-state";
import { useToolOutputs, type ToolOutputs } from "./tool-outputs";

// Of what was asked, in the heading that screen readers find.
const TITLE_CHARS = 80;

export interface ExchangeActions {
  onRetry: (exchange: Exchange) => void;
  onEdit: (exchange: Exchange, text: string) => void;
  onDecide: (exchange: Exchange, answers: ApprovalResponseItem[]) => void;
  onInspect: (exchange: Exchange) => void;
}

interface ExchangeViewProps extends ExchangeActions {
  exchange: Exchange;
  conversation: Conversation;
  isLast: boolean;
  /** The answers to its approval requests, which are the input of the next exchange. */
  answers: readonly ApprovalResponseItem[];
}

export function ExchangeView(props: ExchangeViewProps) {
  const { exchange, conversation, isLast } = props;
  const state = exchange.state.value;
  const outputs = useToolOutputs(exchange);
  const failure = exchange.failure.value;
  const isDone = failure !== "" || isFinished(state.status);
  const elicitations = useElicitations(state);
  const siblings = conversation.siblingsOf(exchange);
  const position = siblings.indexOf(exchange);
  return (
    <article class="exchange" aria-labelledby={`exchange-${exchange.key}`}>
      <h2 class="visually-hidden" id={`exchange-${exchange.key}`}>
        {textOfInput(exchange.input).slice(0, TITLE_CHARS) || "Answer to an approval"}
      </h2>
      <Question exchange={exchange} onEdit={props.onEdit} isEditable={!conversation.isRunning.value} />
      <div class="answer" aria-busy={!isDone}>
        <Items
          state={state}
          outputs={outputs}
          isLast={isLast}
          answers={props.answers}
          onDecide={(each) => props.onDecide(exchange, each)}
          elicitations={elicitations}
        />
        {!isDone && (
          <>
            <p class="hint running">
              {elicitations.questions.length > 0
                ? "Waiting for your answer…"
                : describeProgress(state, exchange.isConnected.value)}
            </p>
            <p class="visually-hidden" role="status">
              {elicitations.questions.map((each) => `Server ${each.server_label} asks: ${each.message}`).join("\n")}
            </p>
          </>
        )}
        <Ending state={state} failure={failure} />
        {exchange.isLive && <LiveRegion text={textToSay(state)} isFinished={isDone} />}
        {isDone && (
          <footer class="exchange-foot">
            <span class="hint">{describeUsage(state)}</span>
            {siblings.length > 1 && (
              <span class="branches">
                <button
                  type="button"
                  class="quiet"
                  aria-label="Previous branch"
                  disabled={position === 0}
                  onClick={() => showBranch(conversation, siblings[position - 1])}
                >
                  ‹
                </button>
                <span class="hint">
                  {position + 1} of {siblings.length}
                </span>
                <button
                  type="button"
                  class="quiet"
                  aria-label="Next branch"
                  disabled={position === siblings.length - 1}
                  onClick={() => showBranch(conversation, siblings[position + 1])}
                >
                  ›
                </button>
              </span>
            )}
            {hasQuestion(exchange) && (
              <button type="button" class="quiet" onClick={() => props.onRetry(exchange)}>
                Retry
              </button>
            )}
            <button type="button" class="quiet" onClick={() => props.onInspect(exchange)}>
              Code and events
            </button>
            {state.id && <a href={buildHash(["runs", state.id])}>Run</a>}
          </footer>
        )}
      </div>
    </article>
  );
}

function showBranch(conversation: Conversation, exchange: Exchange | undefined): void {
  if (exchange) conversation.show(exchange);
}

interface QuestionProps {
  exchange: Exchange;
  onEdit: (exchange: Exchange, text: string) => void;
  isEditable: boolean;
}

function Question({ exchange, onEdit, isEditable }: QuestionProps) {
  const [draft, setDraft] = useState<string | null>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  const isEditing = draft !== null;
  useEffect(() => {
    if (isEditing) area.current?.focus();
  }, [isEditing]);
  const messages = exchange.input.filter((item) => item.type === "message");
  if (messages.length === 0) return null;
  const text = textOfInput(exchange.input);
  if (draft !== null) {
    const save = (event: SubmitEvent) => {
      event.preventDefault();
      setDraft(null);
      onEdit(exchange, draft);
    };
    return (
      <form class="question editing" onSubmit={save}>
        <label>
          <span class="visually-hidden">Edit the message</span>
          <textarea ref={area} value={draft} rows={3} onInput={(event) => setDraft(event.currentTarget.value)} />
        </label>
        <p>
          <button type="submit" class="primary" disabled={!draft.trim()}>
            Send as a branch
          </button>{" "}
          <button type="button" onClick={() => setDraft(null)}>
            Cancel
          </button>
        </p>
      </form>
    );
  }
  const attached = messages.flatMap((item) => item.content).filter((part) => !("text" in part));
  return (
    <div class="question">
      <p class="question-text">{text}</p>
      {attached.map((part, index) => (
        <PartView key={index} part={part} />
      ))}
      {isEditable && (
        <button type="button" class="quiet" onClick={() => setDraft(text)}>
          Edit
        </button>
      )}
    </div>
  );
}

interface ItemsProps {
  state: ResponseState;
  outputs: ToolOutputs;
  isLast: boolean;
  answers: readonly ApprovalResponseItem[];
  onDecide: (answers: ApprovalResponseItem[]) => void;
  elicitations: OpenElicitations;
}

function Items({ state, outputs, isLast, answers, onDecide, elicitations }: ItemsProps) {
  const { questions, answer } = elicitations;
  const callOf = (question: Elicitation) =>
    state.items.findIndex((item) => "id" in item && item.id === question.call_id && item.type !== "message");
  const requests = state.items.filter((item): item is ApprovalRequestItem => item.type === "mcp_approval_request");
  return (
    <>
      {state.items.map((item, index) => (
        <Fragment key={index}>
          <ItemView item={item} state={state} outputs={outputs} index={index} />
          <ElicitationList questions={questions.filter((each) => callOf(each) === index)} onAnswer={answer} />
        </Fragment>
      ))}
      <ElicitationList questions={questions.filter((each) => callOf(each) === -1)} onAnswer={answer} />
      {requests.length > 0 && isFinished(state.status) && (
        <Approvals requests={requests} answers={answers} onDecide={isLast ? onDecide : null} />
      )}
    </>
  );
}

interface ItemViewProps {
  item: Item;
  state: ResponseState;
  outputs: ToolOutputs;
  index: number;
}

function ItemView({ item, state, outputs, index }: ItemViewProps) {
  switch (item.type) {
    case "message":
      return <Markdown text={textOfParts(item.content)} />;
    case "reasoning": {
      const text = [...(item.summary ?? []), ...(item.content ?? [])].map((part) => part.text).join("\n");
      if (!text) return null;
      return (
        <details class="reasoning">
          <summary>Reasoning</summary>
          <p class="reasoning-text">{text}</p>
        </details>
      );
    }
    case "mcp_call":
    case "function_call": {
      const output = state.items.find(
        (each) =>
          each.type === "function_call_output" && item.type === "function_call" && each.call_id === item.call_id,
      );
      return (
        <CallView
          call={item}
          model={state.model}
          output={output?.type === "function_call_output" ? output : undefined}
          parts={outputs.get(stemOf(item.id)) ?? []}
          times={state.times.get(index)}
        />
      );
    }
    case "mcp_list_tools":
      return item.error ? (
        <p class="hint">
          Server <strong>{item.server_label}</strong> is not available: {item.error}
        </p>
      ) : null;
    case "other":
      return (
        <details class="call">
          <summary>Item of another type</summary>
          <pre>{JSON.stringify(item.wire, null, 2)}</pre>
        </details>
      );
    default:
      return null;
  }
}

function Ending({ state, failure }: { state: ResponseState; failure: string }) {
  if (failure) {
    return (
      <p class="alert" role="alert">
        {failure}
      </p>
    );
  }
  if (state.error && isFinished(state.status)) {
    return (
      <p class="alert" role="alert">
        {state.error.message}
      </p>
    );
  }
  if (state.status === "cancelled") {
    return <p class="hint">Stopped. The model is not sent what it had said so far.</p>;
  }
  if (state.status === "incomplete")
    return <p class="hint">Incomplete: {state.incompleteReason ?? "no reason given"}.</p>;
  return null;
}

/** What a screen reader says of a response. */
function textToSay(state: ResponseState): string {
  const isHeld = isFinished(state.status) && state.items.some((item) => item.type === "mcp_approval_request");
  return `${textOf(state)}${isHeld ? "\nA call waits for your approval." : ""}`;
}

function describeProgress(state: ResponseState, isConnected: boolean): string {
  if (!isConnected) return "The connection is lost. Trying again…";
  if (state.status === "queued") return "Queued…";
  const last = state.items.at(-1);
  if (last?.type === "mcp_call" && last.status !== "completed" && last.status !== "failed") {
    return `Waiting for ${last.server_label}…`;
  }
  return "Working…";
}

function describeUsage(state: ResponseState): string {
  const parts: string[] = [];
  if (state.seconds) parts.push(formatSeconds(state.seconds));
  const { input_tokens: input = 0, output_tokens: output = 0 } = state.usage ?? {};
  // An answer that was broken off has not been counted.
  if (input + output > 0) {
    parts.push(`${formatCount(input)} tokens in, ${formatCount(output)} out`);
  }
  return parts.join(" · ");
}

/** One request to a server by a person: it runs, may ask something in its middle, and ends with a result or a failure. */
import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { formatSeconds } from "../../components/format";
import { QuestionForm, type Answers } from "../../components/question-form";
import { asError } from "../../components/resource";
import type { Answered, Asking } from "./mcp-client";

export type Send<T> = (answered: Answered, signal: AbortSignal) => Promise<T>;

export interface MCPRequest<T> {
  outcome: { result: T | null; failure: string; seconds: number } | null;
  isRunning: boolean;
  /** Send it. What came back before is dropped. */
  start: (send: Send<T>) => void;
  /** Send the same again, with answers to the questions of its result. */
  answer: (answers: Answers) => void;
  stop: () => void;
}

export function useMCPRequest<T extends Asking>(): MCPRequest<T> {
  const [outcome, setOutcome] = useState<MCPRequest<T>["outcome"]>(null);
  const [isRunning, setIsRunning] = useState(false);
  const running = useRef<AbortController | null>(null);
  const sent = useRef<Send<T> | null>(null);

  const run = async (send: Send<T>, answered: Answered) => {
    const controller = new AbortController();
    running.current = controller;
    sent.current = send;
    const started = performance.now();
    setIsRunning(true);
    setOutcome(null);
    let result: T | null = null;
    let failure = "";
    try {
      result = await send(answered, controller.signal);
    } catch (error) {
      failure = controller.signal.aborted ? "You have stopped it." : asError(error).message;
    }
    setOutcome({ result, failure, seconds: (performance.now() - started) / 1000 });
    setIsRunning(false);
  };
  return {
    outcome,
    isRunning,
    start: (send) => void run(send, {}),
    answer: (answers) => {
      if (sent.current && outcome?.result) void run(sent.current, { answers, before: outcome.result });
    },
    stop: () => running.current?.abort(),
  };
}

/** The button that sends a request, and the one that stops it. */
export function RequestActions<T>({ request, label }: { request: MCPRequest<T>; label: string }) {
  return (
    <p class="actions">
      <button type="submit" class="primary" disabled={request.isRunning}>
        {label}
      </button>
      {request.isRunning && (
        <button type="button" onClick={request.stop}>
          Stop
        </button>
      )}
    </p>
  );
}

interface RequestOutcomeProps<T> {
  request: MCPRequest<T>;
  children: (result: T) => ComponentChildren;
}

/** What became of a request. The questions of its middle are asked here. */
export function RequestOutcome<T extends Asking>({ request, children }: RequestOutcomeProps<T>) {
  const { outcome, isRunning } = request;
  const questions = Object.entries(outcome?.result?.inputRequests ?? {});
  return (
    <>
      <div class="tool-outcome" aria-live="polite">
        {isRunning && <p class="hint">Running…</p>}
        {outcome?.failure && <p class="alert">{outcome.failure}</p>}
        {outcome?.result && questions.length === 0 && children(outcome.result)}
        {outcome && questions.length === 0 && <p class="hint">Took {formatSeconds(outcome.seconds)}.</p>}
      </div>
      {questions.length > 0 && <QuestionForm questions={questions} onAnswer={request.answer} />}
    </>
  );
}

/** Runs and their traces, as `/v1/runs` has them. */
import type { Status } from "../../api/types";

export interface RunTokens {
  input_tokens: number;
  output_tokens: number;
  cached_tokens: number;
  reasoning_tokens: number;
  total_tokens: number;
}

export interface Run {
  id: string;
  caller: string;
  model: string;
  status: Status;
  created_at: number;
  completed_at: number | null;
  seconds: number;
  background: boolean;
  turns: number;
  tool_calls: number;
  tools: string[];
  servers: string[];
  usage: RunTokens;
  cost: number | null;
  first_token_seconds: number | null;
  error: { code?: string | null; message?: string } | null;
  question: string;
  answer: string;
  previous_response_id: string | null;
  conversation: string | null;
}

export type SpanKind = "run" | "turn" | "model" | "tool" | "approval" | "wait" | "retry" | "recovery" | "compaction";

export interface Span {
  id: string;
  parent: string | null;
  kind: SpanKind;
  name: string;
  server: string | null;
  tool: string | null;
  call_id: string | null;
  /** Seconds from the creation of the run. */
  start: number;
  seconds: number | null;
  status: "ok" | "error" | "running" | "refused";
  first_token_seconds: number | null;
  usage: RunTokens | null;
  cost: number | null;
  arguments: unknown;
  output: string | null;
  is_error: boolean | null;
  error: string | null;
  /** Indexes into the items of the trace. */
  input_items: number[] | null;
  output_items: number[] | null;
  /** The names of the tools that a model was offered, for operators; null where it is not known. */
  tools: string[] | null;
}

export interface TraceItem {
  type: string;
  id?: string;
  role?: string;
  content?: unknown;
  name?: string;
  call_id?: string;
  arguments?: string;
}

export interface Trace {
  run: Run;
  started_at: number;
  instructions: string | null;
  /** Those of the operator, for operators. */
  agent_instructions: string | null;
  agent_instructions_changed: boolean;
  context: { previous_response_id: string | null; conversation: string | null; items: number };
  items: TraceItem[];
  spans: Span[];
}

export const STATUSES: readonly Status[] = [
  "queued",
  "in_progress",
  "completed",
  "requires_action",
  "incomplete",
  "failed",
  "cancelled",
];

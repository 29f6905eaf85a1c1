/** Runs and their traces, as `/v1/runs` has them. */
import type { Run as APIRun, RunTrace, Span } from "../../api/schema";
import type { Status } from "../../api/types";

export type { RunTokens, Span } from "../../api/schema";

export interface Run extends APIRun {
  error: { code?: string | null; message?: string } | null;
}

export type SpanKind = Span["kind"];

export interface TraceItem {
  type: string;
  id?: string;
  role?: string;
  content?: unknown;
  name?: string;
  call_id?: string;
  arguments?: string;
}

export interface Trace extends Omit<RunTrace, "items"> {
  run: Run;
  items: TraceItem[];
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

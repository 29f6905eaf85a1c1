/** The spans of a trace as rows of a waterfall: each below the span around it, in the order of their starts. */
import type { Span } from "./run-types";

export interface WaterfallRow {
  span: Span;
  depth: number;
  label: string;
  /** Where the bar begins and how long it is, as parts of the whole. */
  left: number;
  width: number;
  /** Where in the bar the first token is, as a part of the bar. */
  firstToken: number | null;
}

/** `whole`: the seconds that the full width stands for. */
export function buildRows(spans: readonly Span[], whole: number): WaterfallRow[] {
  const children = new Map<string | null, Span[]>();
  const ids = new Set(spans.map((span) => span.id));
  for (const span of spans) {
    const parent = span.parent !== null && ids.has(span.parent) ? span.parent : null;
    const siblings = children.get(parent);
    if (siblings) siblings.push(span);
    else children.set(parent, [span]);
  }
  const rows: WaterfallRow[] = [];
  // A stack instead of recursion: a trace may be deep.
  const open = [...(children.get(null) ?? [])].reverse().map((span) => ({ span, depth: 0 }));
  for (let next = open.pop(); next; next = open.pop()) {
    const { span, depth } = next;
    rows.push(buildRow(span, depth, whole));
    const below = children.get(span.id) ?? [];
    open.push(...[...below].reverse().map((each) => ({ span: each, depth: depth + 1 })));
  }
  return rows;
}

/** The seconds that a trace takes so far. */
export function lengthOf(spans: readonly Span[]): number {
  return spans.reduce((longest, span) => Math.max(longest, span.start + (span.seconds ?? 0)), 0);
}

function buildRow(span: Span, depth: number, whole: number): WaterfallRow {
  const seconds = span.seconds ?? Math.max(0, whole - span.start);
  const first = span.first_token_seconds;
  return {
    span,
    depth,
    label: labelOf(span),
    left: whole > 0 ? Math.min(1, span.start / whole) : 0,
    width: whole > 0 ? Math.min(1, seconds / whole) : 1,
    firstToken: span.kind === "model" && first !== null && seconds > 0 ? Math.min(1, first / seconds) : null,
  };
}

function labelOf(span: Span): string {
  if (span.server && span.tool) return `${span.server} ${span.tool}`;
  return span.tool ?? span.name;
}

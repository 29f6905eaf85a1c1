/** The spans of a run to scale. Any number of them: only the visible rows are drawn. */
import { useMemo } from "preact/hooks";
import { formatSeconds } from "../../components/format";
import { VirtualList } from "../../components/virtual-list";
import type { Span } from "./run-types";
import { buildRows, type WaterfallRow } from "./waterfall-rows";

const ROW_HEIGHT = 30;

interface WaterfallProps {
  spans: readonly Span[];
  /** The seconds that the full width stands for. */
  whole: number;
  selected: string;
  onSelect: (span: Span) => void;
  label: string;
}

export function Waterfall({ spans, whole, selected, onSelect, label }: WaterfallProps) {
  const rows = useMemo(() => buildRows(spans, whole), [spans, whole]);
  const index = Math.max(
    0,
    rows.findIndex((row) => row.span.id === selected),
  );
  return (
    <div class="waterfall">
      <div class="waterfall-scale" aria-hidden="true">
        <span>0</span>
        <span>{formatSeconds(whole / 2)}</span>
        <span>{formatSeconds(whole)}</span>
      </div>
      <VirtualList
        rows={rows}
        rowHeight={ROW_HEIGHT}
        label={label}
        selected={index}
        onSelect={(each) => {
          const row = rows[each];
          if (row) onSelect(row.span);
        }}
        renderRow={(row) => <Row row={row} />}
      />
    </div>
  );
}

function Row({ row }: { row: WaterfallRow }) {
  const { span } = row;
  return (
    <>
      <span class="span-label" style={{ paddingLeft: `${Math.min(row.depth, 8) * 0.9}rem` }}>
        <span class={`span-dot ${span.kind}`} aria-hidden="true" />
        <span class="visually-hidden">{span.kind}: </span>
        {row.label}
        {span.status !== "ok" && <span class={`span-status ${span.status}`}> {WORDS[span.status]}</span>}
      </span>
      <span class="span-track" aria-hidden="true">
        <span
          class={`span-bar ${span.kind} ${span.status}`}
          style={{ left: `${row.left * 100}%`, width: `max(2px, ${row.width * 100}%)` }}
        >
          {row.firstToken !== null && <span class="first-token" style={{ left: `${row.firstToken * 100}%` }} />}
        </span>
      </span>
      <span class="span-time">{span.seconds === null ? "…" : formatSeconds(span.seconds)}</span>
    </>
  );
}

const WORDS = { ok: "", error: "failed", running: "running", refused: "refused" };

/** One run, or two side by side on the same scale. */
import { useSignal } from "@preact/signals";
import { useCallback, useEffect } from "preact/hooks";
import { fetchJSON } from "../../api/client";
import { isFinished } from "../../api/types";
import { CopyButton } from "../../components/copy-button";
import { asError } from "../../components/resource";
import { formatCount, formatSeconds, formatShare, formatTime } from "../../components/format";
import { buildHash } from "../../shell/route";
import { usePolling } from "../../components/polling";
import type { Run, Trace } from "./run-types";
import { listRoute } from "./run-list";
import { SpanDetail } from "./span-detail";
import { StatusBadge } from "./status-badge";
import { Waterfall } from "./waterfall";
import { lengthOf } from "./waterfall-rows";

// Between two reads of a run that goes on.
const POLL_MS = 1_500;

export function RunScreen({ ids }: { ids: readonly string[] }) {
  const lengths = useSignal<Readonly<Record<string, number>>>({});
  const setLength = useCallback(
    (id: string, seconds: number) => {
      if (lengths.peek()[id] !== seconds) lengths.value = { ...lengths.peek(), [id]: seconds };
    },
    [lengths],
  );
  const whole = Math.max(0.001, ...ids.map((id) => lengths.value[id] ?? 0));
  return (
    <div class="screen-padding run-screen">
      <p>
        <a href={listRoute.value}>All runs</a>
      </p>
      <div class={ids.length > 1 ? "runs-side-by-side" : ""}>
        {ids.map((id) => (
          <RunView key={id} id={id} whole={whole} onLength={setLength} />
        ))}
      </div>
    </div>
  );
}

interface RunViewProps {
  id: string;
  whole: number;
  onLength: (id: string, seconds: number) => void;
}

function RunView({ id, whole, onLength }: RunViewProps) {
  const trace = useSignal<Trace | null>(null);
  const failure = useSignal("");
  const selected = useSignal("");
  const read = useCallback(async () => {
    try {
      const found = await fetchJSON<Trace>(`v1/runs/${encodeURIComponent(id)}/trace`);
      trace.value = found;
      failure.value = "";
      onLength(id, Math.max(found.run.seconds, lengthOf(found.spans)));
    } catch (error) {
      failure.value = error instanceof Error ? error.message : String(error);
    }
  }, [id, trace, failure, onLength]);
  useEffect(() => void read(), [read]);
  const isLive = trace.value !== null && !isFinished(trace.value.run.status);
  usePolling(read, isLive, POLL_MS);

  const shown = trace.value;
  if (failure.value && !shown) {
    return (
      <p class="alert" role="alert">
        {failure.value}
      </p>
    );
  }
  if (!shown) return <p class="hint">Loading…</p>;
  const span = shown.spans.find((each) => each.id === selected.value) ?? shown.spans[0];
  return (
    <article class="run" aria-label={`Run ${id}`}>
      <RunHead run={shown.run} />
      <Waterfall
        spans={shown.spans}
        whole={whole}
        selected={span?.id ?? ""}
        onSelect={(each) => (selected.value = each.id)}
        label={`Steps of ${id}`}
      />
      {span && <SpanDetail span={span} trace={shown} />}
    </article>
  );
}

/** Ends a run that goes on. The next reading of the run shows how it ended. */
function CancelRun({ id }: { id: string }) {
  const failure = useSignal("");
  const cancel = async () => {
    try {
      await fetchJSON(`v1/runs/${encodeURIComponent(id)}/cancel`, { method: "POST", body: {} });
    } catch (error) {
      failure.value = asError(error).message;
    }
  };
  return (
    <p class="actions" aria-live="polite">
      <button type="button" onClick={() => void cancel()}>
        Cancel this run
      </button>{" "}
      {failure.value}
    </p>
  );
}

function RunHead({ run }: { run: Run }) {
  const facts: [string, string][] = [
    ["Model", run.model],
    ["Caller", run.caller],
    ["Started", formatTime(run.created_at)],
    ["Took", formatSeconds(run.seconds)],
    ["First token", formatSeconds(run.first_token_seconds)],
    ["Turns", formatCount(run.turns)],
    ["Tool calls", formatCount(run.tool_calls)],
    ["Tokens in", formatCount(run.usage.input_tokens)],
    ["Cached", formatShare(run.usage.cached_tokens, run.usage.input_tokens)],
    ["Tokens out", formatCount(run.usage.output_tokens)],
    ...(run.usage.estimated_tokens ? [["Estimated", formatCount(run.usage.estimated_tokens)] as [string, string]] : []),
    ...(run.cost === null ? [] : [["Cost", String(run.cost)] as [string, string]]),
  ];
  return (
    <header class="run-head">
      <h1>
        {run.question || "Run"} <StatusBadge status={run.status} />
      </h1>
      <p class="hint">
        <code>{run.id}</code> <CopyButton text={run.id} label="Copy id" />
        {run.previous_response_id && (
          <>
            {" "}
            after <a href={buildHash(["runs", run.previous_response_id])}>the run before</a>
          </>
        )}
      </p>
      {!isFinished(run.status) && <CancelRun id={run.id} />}
      {run.error?.message && <p class="alert">{run.error.message}</p>}
      <dl class="facts">
        {facts.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </header>
  );
}

/** The list of runs: filters in the route, newest first, those that go on read again while the page is visible. */
import { signal, useSignal } from "@preact/signals";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { fetchJSON } from "../../api/client";
import { isFinished, type List } from "../../api/types";
import { formatCount, formatSeconds, formatTime } from "../../components/format";
import { buildHash, goTo, route } from "../../shell/route";
import { usePolling } from "../../components/polling";
import { STATUSES, type Run } from "./run-types";
import { nameStatus, StatusBadge } from "./status-badge";

const PAGE_SIZE = 50;
// Between two reads of the first page, while a run of it goes on; and otherwise, to find new ones.
const LIVE_POLL_MS = 2_000;
const IDLE_POLL_MS = 10_000;
// After the last letter of a filter.
const PAUSE_MS = 400;
const FILTERS = ["status", "model", "tool", "server", "caller", "text"] as const;
type Filter = (typeof FILTERS)[number];

/** The route of the list as it was last shown, with its filters. */
export const listRoute = signal("#/runs");

export function RunList({ query }: { query: URLSearchParams }) {
  const runs = useSignal<readonly Run[]>([]);
  const next = useSignal<string | null>(null);
  const isRead = useSignal(false);
  const failure = useSignal("");
  const chosen = useSignal<readonly string[]>([]);
  const search = query.toString();
  useEffect(() => {
    listRoute.value = `#/runs${search && `?${search}`}`;
  }, [search]);
  // A reply to filters that were changed meanwhile is dropped.
  const latest = useRef(search);
  latest.current = search;

  const read = useCallback(
    async (after: string | null) => {
      const asked = new URLSearchParams(search);
      asked.set("limit", String(PAGE_SIZE));
      if (after) asked.set("after", after);
      try {
        const page = await fetchJSON<List<Run>>(`v1/runs?${asked}`);
        if (latest.current !== search) return;
        runs.value = after ? [...runs.value, ...page.data] : mergePages(page.data, runs.value);
        // Reading the first page again does not change what comes after the last one.
        if (after || !isRead.value) next.value = page.has_more ? (page.last_id ?? null) : null;
        failure.value = "";
      } catch (error) {
        if (latest.current !== search) return;
        failure.value = error instanceof Error ? error.message : String(error);
      }
      isRead.value = true;
    },
    [search, runs, next, failure, isRead],
  );
  useEffect(() => {
    runs.value = [];
    isRead.value = false;
    void read(null);
  }, [read, runs, isRead]);
  const readAgain = useCallback(() => read(null), [read]);
  usePolling(readAgain, true, runs.value.some((run) => !isFinished(run.status)) ? LIVE_POLL_MS : IDLE_POLL_MS);

  const choose = (id: string, isChosen: boolean) => {
    const others = chosen.value.filter((each) => each !== id);
    chosen.value = isChosen ? [...others, id].slice(-2) : others;
  };
  const [first, second] = chosen.value;
  return (
    <div class="screen-padding">
      <header class="runs-head">
        <h1>Runs</h1>
        {first && second ? (
          <a class="compare-link" href={buildHash(["runs", first], { with: second })}>
            Compare the two chosen runs
          </a>
        ) : (
          <span class="hint">Choose two to compare them.</span>
        )}
      </header>
      <Filters query={query} />
      {failure.value && (
        <p class="alert" role="alert">
          {failure.value}
        </p>
      )}
      {isRead.value && runs.value.length === 0 && !failure.value && <NoRuns isFiltered={search !== ""} />}
      {runs.value.length > 0 && <Rows runs={runs.value} chosen={chosen.value} onChoose={choose} />}
      {next.value && (
        <p>
          <button type="button" onClick={() => void read(next.value)}>
            Load more
          </button>
        </p>
      )}
    </div>
  );
}

/** The first page as it is now, then what was read of later pages. */
export function mergePages(first: readonly Run[], known: readonly Run[]): Run[] {
  const oldest = first.at(-1)?.created_at ?? Infinity;
  const ids = new Set(first.map((run) => run.id));
  return [...first, ...known.filter((run) => !ids.has(run.id) && run.created_at < oldest)];
}

function NoRuns({ isFiltered }: { isFiltered: boolean }) {
  return (
    <div class="empty">
      <h2>{isFiltered ? "No run is like that" : "No runs yet"}</h2>
      <p>
        {isFiltered ? (
          <a href="#/runs">Remove the filters</a>
        ) : (
          <>
            Ask something in the <a href="#/playground">playground</a>, or send a request to <code>v1/responses</code>.
          </>
        )}
      </p>
    </div>
  );
}

function Filters({ query }: { query: URLSearchParams }) {
  const change = (name: Filter, value: string) => {
    // The route as it is now: another field may have changed it since this was drawn.
    const values: Record<string, string> = Object.fromEntries(route.peek().query);
    goTo(buildHash(["runs"], { ...values, [name]: value }), { replace: true });
  };
  return (
    <form class="filters" role="search" aria-label="Filter runs" onSubmit={(event) => event.preventDefault()}>
      <label>
        Status
        <select value={query.get("status") ?? ""} onChange={(event) => change("status", event.currentTarget.value)}>
          <option value="">any</option>
          {STATUSES.map((each) => (
            <option key={each} value={each}>
              {nameStatus(each)}
            </option>
          ))}
        </select>
      </label>
      {FILTERS.slice(1).map((name) => (
        <FilterField key={name} name={name} value={query.get(name) ?? ""} onChange={(value) => change(name, value)} />
      ))}
    </form>
  );
}

interface FilterFieldProps {
  name: Filter;
  value: string;
  onChange: (value: string) => void;
}

/** A field whose text is its own until the person pauses: the list is drawn again while they type. */
function FilterField({ name, value, onChange }: FilterFieldProps) {
  const [draft, setDraft] = useState(value);
  const latest = useRef(onChange);
  latest.current = onChange;
  // Before it is drawn: an effect after that would remove what a person has typed since.
  useLayoutEffect(() => setDraft(value), [value]);
  useEffect(() => {
    const entered = draft.trim();
    if (entered === value) return undefined;
    const timer = setTimeout(() => latest.current(entered), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [draft, value]);
  return (
    <label>
      {`${name.charAt(0).toUpperCase()}${name.slice(1)}`}
      <input
        type="search"
        value={draft}
        spellcheck={false}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onChange={(event) => onChange(event.currentTarget.value.trim())}
      />
    </label>
  );
}

interface RowsProps {
  runs: readonly Run[];
  chosen: readonly string[];
  onChoose: (id: string, isChosen: boolean) => void;
}

function Rows({ runs, chosen, onChoose }: RowsProps) {
  const now = useMemo(() => new Date(), []);
  return (
    <table class="runs">
      <thead>
        <tr>
          <th>
            <span class="visually-hidden">Compare</span>
          </th>
          <th>Question</th>
          <th>Status</th>
          <th>Model</th>
          <th>Caller</th>
          <th class="number">Calls</th>
          <th class="number">Tokens</th>
          <th class="number">Took</th>
          <th class="number">Started</th>
        </tr>
      </thead>
      <tbody>
        {runs.map((run) => (
          <tr key={run.id}>
            <td>
              <input
                type="checkbox"
                aria-label={`Compare ${run.question || run.id}`}
                checked={chosen.includes(run.id)}
                onChange={(event) => onChoose(run.id, event.currentTarget.checked)}
              />
            </td>
            <td class="run-question">
              <a href={buildHash(["runs", run.id])}>{run.question || run.id}</a>
              {run.tools.length > 0 && <span class="hint run-tools">{run.tools.join(", ")}</span>}
            </td>
            <td>
              <StatusBadge status={run.status} />
            </td>
            <td>{run.model}</td>
            <td>{run.caller}</td>
            <td class="number calls">{formatCount(run.tool_calls)}</td>
            <td class="number tokens">{formatCount(run.usage.total_tokens)}</td>
            <td class="number">{formatSeconds(run.seconds)}</td>
            <td class="number">{formatTime(run.created_at, now)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

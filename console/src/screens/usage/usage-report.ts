/** Reports of `/v1/usage`, and the charts and tables that are made of them. */
import type { UsageReport, UsageRow } from "../../api/schema";

export type { UsageReport, UsageRow } from "../../api/schema";

export type Bucket = "minute" | "hour" | "day";

export interface Range {
  id: string;
  label: string;
  seconds: number;
  bucket: Bucket;
}

const HOUR = 3_600;
const DAY = 24 * HOUR;
export const BUCKET_SECONDS: Record<Bucket, number> = { minute: 60, hour: HOUR, day: DAY };
const LAST_DAY: Range = { id: "24h", label: "24 hours", seconds: DAY, bucket: "hour" };
export const RANGES: readonly Range[] = [
  { id: "1h", label: "1 hour", seconds: HOUR, bucket: "minute" },
  LAST_DAY,
  { id: "7d", label: "7 days", seconds: 7 * DAY, bucket: "hour" },
  { id: "30d", label: "30 days", seconds: 30 * DAY, bucket: "day" },
];
export const GROUPS = ["model", "caller", "server", "tool"] as const;
export type Group = (typeof GROUPS)[number];

export function findRange(id: string | null): Range {
  return RANGES.find((range) => range.id === id) ?? LAST_DAY;
}

export function findGroup(name: string | null): Group | null {
  return GROUPS.find((group) => group === name) ?? null;
}

/** The path of the report that ends with the bucket of now. */
export function buildPath(range: Range, group: Group | null, now: number): string {
  const length = BUCKET_SECONDS[range.bucket];
  const end = (Math.floor(now / length) + 1) * length;
  const query = new URLSearchParams({ bucket: range.bucket, start_time: String(end - range.seconds) });
  if (group) query.set("group_by", group === "tool" ? "server,tool" : group);
  return `v1/usage?${query}`;
}

export type Unit = "count" | "seconds" | "cost";
type Column = Exclude<keyof UsageRow, "start_time" | "end_time" | "status" | Group> | "tokens";

export interface ChartKind {
  title: string;
  unit: Unit;
  columns: readonly { column: Column; label: string }[];
}

const TOGETHER: readonly ChartKind[] = [
  {
    title: "Requests",
    unit: "count",
    columns: [
      { column: "requests", label: "requests" },
      { column: "errors", label: "errors" },
    ],
  },
  {
    title: "Tokens",
    unit: "count",
    columns: [
      { column: "input_tokens", label: "input" },
      { column: "output_tokens", label: "output" },
    ],
  },
  { title: "Cost", unit: "cost", columns: [{ column: "cost", label: "cost" }] },
  {
    title: "Duration",
    unit: "seconds",
    columns: [
      { column: "seconds_p50", label: "p50" },
      { column: "seconds_p95", label: "p95" },
    ],
  },
  {
    title: "Time to first token",
    unit: "seconds",
    columns: [
      { column: "first_token_seconds_p50", label: "p50" },
      { column: "first_token_seconds_p95", label: "p95" },
    ],
  },
  { title: "Tool calls", unit: "count", columns: [{ column: "tool_calls", label: "calls" }] },
];
const single = (title: string, unit: Unit, column: Column): ChartKind => ({
  title,
  unit,
  columns: [{ column, label: title }],
});
const OF_REQUESTS: readonly ChartKind[] = [
  single("Requests", "count", "requests"),
  single("Errors", "count", "errors"),
  single("Tokens", "count", "tokens"),
  single("Cost", "cost", "cost"),
  single("Duration, p50", "seconds", "seconds_p50"),
  single("Duration, p95", "seconds", "seconds_p95"),
  single("Time to first token, p50", "seconds", "first_token_seconds_p50"),
  single("Time to first token, p95", "seconds", "first_token_seconds_p95"),
];
const OF_CALLS: readonly ChartKind[] = [
  single("Tool calls", "count", "tool_calls"),
  single("Errors", "count", "errors"),
  single("Duration, p50", "seconds", "seconds_p50"),
  single("Duration, p95", "seconds", "seconds_p95"),
];

export function isOfCalls(group: Group | null): boolean {
  return group === "server" || group === "tool";
}

export interface Series {
  label: string;
  /** One for each time; null where nothing was measured. */
  values: (number | null)[];
}

/** What charts are made of. */
type Buckets = Pick<UsageReport, "object" | "start_time" | "end_time" | "data">;

export interface Chart {
  title: string;
  unit: Unit;
  times: number[];
  series: Series[];
}

// Series of one chart that can be told apart. The table of totals has all groups.
export const MAX_SERIES = 6;

/** The charts of a report. One without any value, such as the cost of models without a price, is left out. */
export function buildCharts(report: Buckets, range: Range, group: Group | null): Chart[] {
  const times = listTimes(report, range);
  const names = group
    ? listTotals(report.data, group)
        .slice(0, MAX_SERIES)
        .map(({ name }) => name)
    : [];
  const kinds = group === null ? TOGETHER : isOfCalls(group) ? OF_CALLS : OF_REQUESTS;
  const charts = kinds.map(({ title, unit, columns }) => {
    const series = columns.flatMap(({ column, label }) =>
      group === null
        ? [{ label, values: readColumn(report.data, times, column, unit) }]
        : names.map((name) => {
            const rows = report.data.filter((row) => nameGroup(row, group) === name);
            return { label: name, values: readColumn(rows, times, column, unit) };
          }),
    );
    return { title, unit, times, series };
  });
  return charts.filter(({ series }) => series.some(({ values }) => values.some((value) => value)));
}

function listTimes(report: Buckets, range: Range): number[] {
  const length = BUCKET_SECONDS[range.bucket];
  const count = Math.max(0, Math.round((report.end_time - report.start_time) / length));
  return Array.from({ length: count }, (_, index) => report.start_time + index * length);
}

/** The places of values that have none beside them: no line leads to them, so each needs a dot of its own. */
export function findIsolated(values: readonly (number | null)[]): number[] {
  const isMissing = (index: number) => (values[index] ?? null) === null;
  return [...values.keys()].filter((index) => !isMissing(index) && isMissing(index - 1) && isMissing(index + 1));
}

/** The values of a column by time. A bucket without a row counts nothing, and has no duration. */
function readColumn(rows: readonly UsageRow[], times: readonly number[], column: Column, unit: Unit) {
  const byTime = new Map(rows.map((row) => [row.start_time, row]));
  return times.map((time) => {
    const row = byTime.get(time);
    if (!row) return unit === "seconds" ? null : 0;
    const value = column === "tokens" ? row.input_tokens + row.output_tokens : row[column];
    return value ?? (unit === "seconds" ? null : 0);
  });
}

export interface Total {
  name: string;
  requests: number;
  errors: number;
  input_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  estimated_tokens: number;
  tool_calls: number;
  cost: number | null;
}

/** The totals of each group over the whole time, the largest first. Without a group: one total. */
export function listTotals(rows: readonly UsageRow[], group: Group | null): Total[] {
  const totals = new Map<string, Total>();
  for (const row of rows) {
    const name = group ? nameGroup(row, group) : "";
    const before = totals.get(name) ?? emptyTotal(name);
    totals.set(name, {
      name,
      requests: before.requests + row.requests,
      errors: before.errors + row.errors,
      input_tokens: before.input_tokens + row.input_tokens,
      cached_tokens: before.cached_tokens + row.cached_tokens,
      output_tokens: before.output_tokens + row.output_tokens,
      estimated_tokens: before.estimated_tokens + row.estimated_tokens,
      tool_calls: before.tool_calls + row.tool_calls,
      cost: row.cost === null ? before.cost : (before.cost ?? 0) + row.cost,
    });
  }
  return [...totals.values()].sort((a, b) => b.requests + b.tool_calls - (a.requests + a.tool_calls));
}

export function emptyTotal(name: string): Total {
  return {
    name,
    requests: 0,
    errors: 0,
    input_tokens: 0,
    cached_tokens: 0,
    output_tokens: 0,
    estimated_tokens: 0,
    tool_calls: 0,
    cost: null,
  };
}

function nameGroup(row: UsageRow, group: Group): string {
  const name = row[group] ?? "";
  if (group === "tool" && row.server) return `${row.server} ${name}`;
  return name || "none";
}

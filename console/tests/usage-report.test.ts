import assert from "node:assert/strict";
import { test } from "node:test";
import { formatBucket, formatCost, formatTick, formatValue } from "../src/screens/usage/usage-format";
import {
  buildCharts,
  buildPath,
  findIsolated,
  findRange,
  listTotals,
  type Range,
  type UsageRow,
} from "../src/screens/usage/usage-report";

const HOUR: Range = { id: "1h", label: "1 hour", seconds: 180, bucket: "minute" };
const REPORT = { object: "usage", start_time: 0, end_time: 180 } as const;

function row(start: number, more: Partial<UsageRow>): UsageRow {
  const zero = {
    requests: 0,
    errors: 0,
    input_tokens: 0,
    cached_tokens: 0,
    cache_write_tokens: 0,
    output_tokens: 0,
    reasoning_tokens: 0,
    estimated_tokens: 0,
  };
  const none = { seconds_p50: null, seconds_p95: null, first_token_seconds_p50: null, first_token_seconds_p95: null };
  return { start_time: start, end_time: start + 60, ...zero, tool_calls: 0, cost: null, ...none, ...more };
}

test("a report ends with the bucket of now", () => {
  const path = buildPath(findRange("1h"), null, 7_230);
  assert.equal(path, "v1/usage?bucket=minute&start_time=3660");
  assert.equal(buildPath(findRange("30d"), "model", 0).includes("group_by=model"), true);
  assert.equal(findRange("unknown").id, "24h");
});

test("minutes without requests count nothing and have no duration", () => {
  const data = [row(60, { requests: 2, errors: 1, seconds_p50: 0.5, seconds_p95: 0.5 })];
  const charts = buildCharts({ ...REPORT, data }, HOUR, null);
  const find = (title: string) => charts.find((chart) => chart.title === title);
  assert.deepEqual(find("Requests")?.series[0]?.values, [0, 2, 0]);
  assert.deepEqual(find("Requests")?.series[1]?.values, [0, 1, 0]);
  assert.deepEqual(find("Duration")?.series[0]?.values, [null, 0.5, null]);
  assert.equal(find("Cost"), undefined);
});

test("groups are lines of their own, the largest first, and at most six", () => {
  const data = Array.from({ length: 9 }, (_, index) => row(60, { model: `m${index}`, requests: index + 1 }));
  const [requests] = buildCharts({ ...REPORT, data }, HOUR, "model");
  assert.deepEqual(
    requests?.series.map(({ label }) => label),
    ["m8", "m7", "m6", "m5", "m4", "m3"],
  );
  assert.equal(listTotals(data, "model").length, 9);
});

test("tools have the names of their servers", () => {
  const data = [
    row(0, { server: "sums", tool: "add", tool_calls: 2 }),
    row(60, { server: "a", tool: "add", tool_calls: 1 }),
  ];
  assert.deepEqual(
    listTotals(data, "tool").map(({ name, tool_calls: calls }) => `${name} ${calls}`),
    ["sums add 2", "a add 1"],
  );
});

test("tokens that are estimated are added up apart", () => {
  const data = [row(0, { output_tokens: 7, estimated_tokens: 7 }), row(60, { output_tokens: 5, estimated_tokens: 2 })];
  const [total] = listTotals(data, null);
  assert.deepEqual([total?.output_tokens, total?.estimated_tokens], [12, 9]);
});

test("the cost of a group without prices is unknown, not zero", () => {
  const data = [row(0, { model: "a", requests: 1, cost: 0.5 }), row(60, { model: "b", requests: 1 })];
  assert.deepEqual(
    listTotals(data, "model").map(({ cost }) => cost),
    [0.5, null],
  );
});

test("values are short", () => {
  assert.deepEqual([0, 0.0211, 0.00000412, 3, 1234.5].map(formatCost), ["0", "0.021", "0.0000041", "3.00", "1,234.50"]);
  assert.deepEqual(
    [0, 950, 1_500, 2_000_000].map((value) => formatTick(value, "count")),
    ["0", "950", "1.5 k", "2 M"],
  );
  assert.deepEqual(
    [0, 0.25, 1.5].map((value) => formatTick(value, "seconds")),
    ["0", "250 ms", "1.5 s"],
  );
  assert.equal(formatValue(null, "seconds"), "–");
  assert.equal(formatBucket(1_767_225_600, "day"), "Jan 1");
});

test("a value without another beside it is found, at the ends too", () => {
  assert.deepEqual(findIsolated([1, null, 0, null, 2, 3, null, 4]), [0, 2, 7]);
  assert.deepEqual(findIsolated([5]), [0]);
  assert.deepEqual(findIsolated([null, null]), []);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Span } from "../src/screens/runs/run-types";
import { buildRows, lengthOf } from "../src/screens/runs/waterfall-rows";

function span(
  id: string,
  parent: string | null,
  start: number,
  seconds: number | null,
  more: Partial<Span> = {},
): Span {
  return {
    id,
    parent,
    kind: "turn",
    name: id,
    server: null,
    tool: null,
    call_id: null,
    start,
    seconds,
    status: "ok",
    first_token_seconds: null,
    usage: null,
    cost: null,
    arguments: null,
    output: null,
    is_error: null,
    error: null,
    input_items: null,
    output_items: null,
    tools: null,
    ...more,
  };
}

test("spans are below the span around them, in the order of their starts", () => {
  const spans = [span("run", null, 0, 4), span("t1", "run", 0, 2), span("t2", "run", 2, 2), span("m1", "t1", 0, 1)];
  const rows = buildRows(spans, 4);
  assert.deepEqual(
    rows.map((row) => [row.span.id, row.depth]),
    [
      ["run", 0],
      ["t1", 1],
      ["m1", 2],
      ["t2", 1],
    ],
  );
});

test("bars are parts of the whole, and one that goes on reaches its end", () => {
  const [first, second] = buildRows([span("a", null, 1, 2), span("b", null, 3, null)], 4);
  assert.deepEqual([first?.left, first?.width], [0.25, 0.5]);
  assert.deepEqual([second?.left, second?.width], [0.75, 0.25]);
});

test("the first token is a part of the bar of its model call", () => {
  const [row] = buildRows([span("m", null, 0, 2, { kind: "model", first_token_seconds: 0.5 })], 2);
  assert.equal(row?.firstToken, 0.25);
});

test("a span whose parent is missing is shown at the top", () => {
  assert.deepEqual(
    buildRows([span("a", "gone", 0, 1)], 1).map((row) => row.depth),
    [0],
  );
});

test("a trace is as long as its latest end", () => {
  assert.equal(lengthOf([span("a", null, 0, 1), span("b", null, 2, 3), span("c", null, 4, null)]), 5);
});

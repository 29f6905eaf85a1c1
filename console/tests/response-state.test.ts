import assert from "node:assert/strict";
import { test } from "node:test";
import type { MCPCallItem, Item, ResponseEvent, ResponseResource } from "../src/api/types";
import { applyEvent, EMPTY_STATE, textOf, type ResponseState } from "../src/screens/playground/response-state";

const RESOURCE: ResponseResource = {
  id: "resp_1",
  model: "demo",
  status: "in_progress",
  created_at: 100,
  completed_at: null,
  previous_response_id: null,
  instructions: null,
  incomplete_details: null,
  error: null,
  usage: null,
  output: [],
  background: true,
};

function play(...events: Omit<ResponseEvent, "sequence_number">[]): ResponseState {
  return events.reduce(
    (state, event, index) => applyEvent(state, { ...event, sequence_number: index }, index * 10),
    EMPTY_STATE,
  );
}

function message(text: string): Item {
  return { type: "message", id: "msg_1", role: "assistant", content: text ? [{ type: "output_text", text }] : [] };
}

test("text is what its deltas add up to, with or without the event that begins a part", () => {
  const added = { type: "response.output_item.added", output_index: 0, item: message("") };
  const part = {
    type: "response.content_part.added",
    output_index: 0,
    content_index: 0,
    part: { type: "output_text" as const, text: "" },
  };
  const deltas = ["It ", "is."].map((delta) => ({
    type: "response.output_text.delta",
    output_index: 0,
    content_index: 0,
    delta,
  }));
  assert.equal(textOf(play(added, part, ...deltas)), "It is.");
  assert.equal(textOf(play(added, ...deltas)), "It is.");
});

test("a turn that begins again replaces what it had said", () => {
  const state = play(
    { type: "response.output_item.added", output_index: 0, item: message("Half an") },
    { type: "response.output_item.added", output_index: 0, item: message("") },
    { type: "response.output_text.delta", output_index: 0, content_index: 0, delta: "Whole." },
  );
  assert.equal(textOf(state), "Whole.");
});

test("the end has the items of the response and its status", () => {
  const output = [message("Final.")];
  const state = play(
    { type: "response.created", response: RESOURCE },
    { type: "response.output_item.added", output_index: 0, item: message("Fin") },
    { type: "response.completed", response: { ...RESOURCE, status: "completed", completed_at: 103, output } },
  );
  assert.equal(textOf(state), "Final.");
  assert.equal(state.status, "completed");
  assert.equal(state.seconds, 3);
});

test("a call has its arguments as they arrive, and its time", () => {
  const call: MCPCallItem = {
    type: "mcp_call",
    id: "mcp_1",
    status: "in_progress",
    server_label: "sums",
    name: "add",
    arguments: "",
    approval_request_id: null,
    output: null,
    error: null,
  };
  const state = play(
    { type: "response.output_item.added", output_index: 0, item: call },
    { type: "response.mcp_call_arguments.delta", output_index: 0, delta: '{"a"' },
    { type: "response.mcp_call_arguments.delta", output_index: 0, delta: ":1}" },
  );
  assert.equal(state.items[0]?.type === "mcp_call" && state.items[0].arguments, '{"a":1}');
  const done = applyEvent(
    state,
    { type: "response.output_item.done", sequence_number: 3, output_index: 0, item: { ...call, status: "completed" } },
    250,
  );
  assert.deepEqual(done.times.get(0), { start: 0, end: 250 });
});

test("an item of a type that the console does not know is kept as it is", () => {
  const item = { type: "new_thing", id: "new_1", shape: "round" } as unknown as Item;
  const state = play({ type: "response.output_item.added", output_index: 0, item });
  assert.deepEqual(state.items[0], { type: "other", id: "new_1", wire: item });
});

test("an event that the console does not know changes nothing", () => {
  const state = play({ type: "response.created", response: RESOURCE });
  assert.equal(applyEvent(state, { type: "response.other", sequence_number: 9, output_index: 4 }, 0), state);
});

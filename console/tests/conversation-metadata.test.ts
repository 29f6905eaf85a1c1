import assert from "node:assert/strict";
import { test } from "node:test";
import { buildMetadata, readResource, titleOf } from "../src/screens/playground/conversation-metadata";

const STORED = { id: "conv_1", title: "Hello", model: "demo", branches: ["resp_1", "resp_2", "resp_3"], updated: 7 };
const RESOURCE = { object: "conversation", id: "conv_1", created_at: 5 } as const;

test("a conversation is read as it was stored", () => {
  const metadata = buildMetadata(STORED);
  assert.equal(metadata["response"], "resp_3");
  assert.deepEqual(readResource({ ...RESOURCE, metadata }), STORED);
});

test("one of a single branch has the time of its creation if it says no other", () => {
  const metadata = { title: "Hello", response: "resp_1" };
  const read = readResource({ ...RESOURCE, metadata });
  assert.deepEqual(read, { id: "conv_1", title: "Hello", model: "", branches: ["resp_1"], updated: 5 });
});

test("a conversation of a program is none of the playground", () => {
  assert.equal(readResource({ ...RESOURCE, metadata: { topic: "sums" } }), null);
});

test("metadata takes the newest of very many branches", () => {
  const branches = Array.from({ length: 40 }, (_, index) => `resp_${"0".repeat(38)}${index + 10}`);
  const metadata = buildMetadata({ ...STORED, branches });
  assert.ok(Object.values(metadata).every((value) => value.length <= 512));
  assert.deepEqual(readResource({ ...RESOURCE, metadata })?.branches, branches.slice(-12));
});

test("a title is one line of what was asked", () => {
  assert.equal(titleOf("  What\n is  this? "), "What is this?");
  assert.equal(titleOf("x".repeat(100)).length, 80);
  assert.equal(titleOf(""), "Untitled");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { buildChanges, findPlace, hasChanges, readDraft, type CallerKey } from "../src/screens/keys/key-types";

const KEY: CallerKey = {
  object: "key",
  name: "alice",
  id: null,
  admin: false,
  allow: { models: ["small-*", "!small-x"], servers: [], tools: [] },
  limits: { requests_per_minute: 60, in_flight: 4 },
  budget: { amount: 20, period: "week" },
  old_hash_expires: null,
  spending: null,
};

test("a form that was not touched changes nothing", () => {
  assert.deepEqual(buildChanges(KEY, readDraft(KEY)), { name: "alice" });
  assert.equal(hasChanges(buildChanges(KEY, readDraft(KEY))), false);
});

test("a list that allows nothing is not shown as one that allows everything, and stays as it is", () => {
  const draft = readDraft(KEY);
  assert.deepEqual(draft.scope, { models: "small-*, !small-x", agents: "", servers: "!*", tools: "!*.*", prompts: "" });
  draft.scope = { ...draft.scope, agents: "helper" };
  assert.deepEqual(buildChanges(KEY, draft), {
    name: "alice",
    allow: { models: ["small-*", "!small-x"], agents: ["helper"], servers: [], tools: [] },
  });
});

test("what was emptied is removed, and what was not touched is not sent", () => {
  const draft = { ...readDraft(KEY), scope: {}, limits: { in_flight: " ", requests_per_minute: "" }, amount: "" };
  assert.deepEqual(buildChanges(KEY, draft), { name: "alice", allow: null, limits: null, budget: null });
  const operator = { ...readDraft(KEY), isOperator: true, period: "day" };
  assert.deepEqual(buildChanges(KEY, operator), { name: "alice", admin: true, budget: { amount: 20, period: "day" } });
  const bare: CallerKey = { ...KEY, allow: null, limits: null, budget: null };
  assert.deepEqual(buildChanges(bare, { ...readDraft(bare), period: "day" }), { name: "alice" });
});

test("a refused field has its place in the form", () => {
  const places = [
    "name",
    "admin",
    "allow.tools[0]",
    "allow",
    "limits.sockets",
    "budget.amount",
    "budget.period",
    "x",
    "",
  ];
  const expected = ["name", "admin", "allow.tools", "allow", "limits.sockets", "budget.amount", "budget", "", ""];
  assert.deepEqual(places.map(findPlace), expected);
});

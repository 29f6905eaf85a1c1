import assert from "node:assert/strict";
import { test } from "node:test";
import { buildChanges, findPlace, hasChanges, readDraft, type CallerKey } from "../src/screens/keys/key-types";

const KEY: CallerKey = {
  object: "key",
  name: "alice",
  id: null,
  role: null,
  group: null,
  owner: null,
  allow: { models: ["small-*", "!small-x"], servers: [], tools: [] },
  limits: { requests_per_minute: 60, in_flight: 4 },
  budget: { amount: 20, period: "week" },
  expires: null,
  paused: false,
  old_hash_expires: null,
  caller_id: "key:alice",
  source: "store",
  made_at: null,
  made_by: null,
  last_used_at: null,
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
  const operator = { ...readDraft(KEY), role: "operator", period: "day" };
  assert.deepEqual(buildChanges(KEY, operator), {
    name: "alice",
    role: "operator",
    budget: { amount: 20, period: "day" },
  });
  const bare: CallerKey = { ...KEY, allow: null, limits: null, budget: null };
  assert.deepEqual(buildChanges(bare, { ...readDraft(bare), period: "day" }), { name: "alice" });
});

test("an expiry is sent as a time with its zone, and removed when it is emptied", () => {
  const key: CallerKey = { ...KEY, expires: "2030-01-31T12:00:00Z" };
  assert.deepEqual(buildChanges(key, readDraft(key)), { name: "alice" });
  assert.deepEqual(buildChanges(key, { ...readDraft(key), expires: "" }), { name: "alice", expires: null });
  const later = { ...readDraft(KEY), expires: "2030-02-01T08:30" };
  const expires = new Date("2030-02-01T08:30").toISOString();
  assert.deepEqual(buildChanges(KEY, later), { name: "alice", expires });
});

test("a refused field has its place in the form", () => {
  const places = [
    "name",
    "role",
    "allow.tools[0]",
    "allow",
    "limits.sockets",
    "budget.amount",
    "budget.period",
    "x",
    "",
  ];
  const expected = ["name", "role", "allow.tools", "allow", "limits.sockets", "budget.amount", "budget", "", ""];
  assert.deepEqual(places.map(findPlace), expected);
});

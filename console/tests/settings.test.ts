import assert from "node:assert/strict";
import { test } from "node:test";
import { buildCurl, describeType, findReferences, type Endpoint } from "../src/screens/api/openapi";
import { writeSettings } from "../src/screens/configuration/settings-text";
import { buildBody, EMPTY_DRAFT, describeLimits, describeScope } from "../src/screens/keys/key-types";

test("settings read like the file", () => {
  const settings = {
    listen: { port: 8080, host: "127.0.0.1" },
    models: [{ name: "demo", model: { provider: "rehearsal" } }, { name: "x: y" }],
    keys: [],
    empty: {},
    text: "two\nlines\n",
    words: ["true", "plain words", "- dash", "${KEY}", ""],
    none: null,
  };
  assert.equal(
    writeSettings(settings),
    [
      "listen:",
      "  port: 8080",
      '  host: "127.0.0.1"',
      "models:",
      "  - name: demo",
      "    model:",
      "      provider: rehearsal",
      '  - name: "x: y"',
      "keys: []",
      "empty: {}",
      "text: |",
      "  two",
      "  lines",
      "words:",
      '  - "true"',
      "  - plain words",
      '  - "- dash"',
      "  - ${KEY}",
      '  - ""',
      "none: null",
      "",
    ].join("\n"),
  );
});

test("a key has only what was entered", () => {
  const empty = { ...EMPTY_DRAFT, name: " ann " };
  assert.deepEqual(buildBody(empty), { name: "ann" });
  const full = {
    ...empty,
    role: "operator",
    scope: { models: "small-*, !small-x", tools: " " },
    limits: { requests_per_minute: "5", sockets: "many" },
    amount: "2.5",
  };
  assert.deepEqual(buildBody(full), {
    name: "ann",
    role: "operator",
    allow: { models: ["small-*", "!small-x"] },
    limits: { requests_per_minute: 5, sockets: "many" },
    budget: { amount: 2.5, period: "month" },
  });
});

test("what a key may is a line", () => {
  assert.equal(describeScope(null), "everything");
  assert.equal(describeScope({ models: ["a", "b"], servers: [] }), "models: a, b; servers: none");
  const times = { expires: null, paused: false, old_hash_expires: null, made_at: null, last_used_at: null };
  const rest = { id: null, ...times, spending: null, caller_id: "key:ann", source: "store" as const, made_by: null };
  const key = { object: "key" as const, name: "", role: null, group: null, owner: null, allow: null, ...rest };
  assert.equal(describeLimits({ ...key, limits: null, budget: null }), "as for all");
  assert.equal(
    describeLimits({ ...key, limits: { in_flight: 3, sockets: null }, budget: { amount: 2, period: "day" } }),
    "in flight: 3; budget: 2 per day",
  );
  const spending = { spent: 1.5, left: 0.5, resets_at: 1782864000 };
  assert.equal(
    describeLimits({ ...key, limits: null, budget: { amount: 2, period: "month" }, spending }),
    "budget: 2 per month; spent: 1.50, left: 0.5 until 2026-07-01 00:00 UTC",
  );
});

test("an example request can be pasted into a shell", () => {
  const operation = { operationId: "a", tags: [], summary: "", responses: {} };
  const body = { content: { "application/json": { example: { text: "it's" } } } };
  const post: Endpoint = { method: "POST", path: "/v1/x", operation: { ...operation, requestBody: body } };
  assert.equal(
    buildCurl(post, "http://h/v1/x"),
    [
      "curl 'http://h/v1/x' \\",
      '  -H "authorization: Bearer $HOLODECK_KEY" \\',
      "  -H 'content-type: application/json' \\",
      `  -d '{"text":"it'\\''s"}'`,
    ].join("\n"),
  );
  const open: Endpoint = { method: "DELETE", path: "/x", operation: { ...operation, security: [] } };
  assert.equal(buildCurl(open, "http://h/x"), "curl -X DELETE 'http://h/x'");
});

test("types are named in words", () => {
  const item = { $ref: "#/components/schemas/Item" };
  assert.equal(describeType({ type: ["array", "null"], items: item }), "list of Item or null");
  assert.equal(describeType({ anyOf: [{ type: "string" }, item] }), "text or Item");
  assert.equal(describeType({ enum: ["a", null] }), '"a", null');
  assert.deepEqual(findReferences({ properties: { a: item, b: { anyOf: [item, { type: "null" }] } } }), ["Item"]);
});

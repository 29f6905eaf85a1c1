import assert from "node:assert/strict";
import { test } from "node:test";
import { buildArgumentHeaders, encodeHeader } from "../src/screens/servers/mcp-headers";
import { buildFields, findProblem, listChoices, readForm, type Schema } from "../src/components/schema-form";

const fill = (schema: Schema, texts: Record<string, string>) =>
  readForm(buildFields(schema), new Map(Object.entries(texts)));

test("each type has its field, and what no field can hold is JSON", () => {
  const schema: Schema = {
    type: "object",
    required: ["text"],
    properties: {
      text: { type: "string", description: "Some words." },
      count: { type: "integer", minimum: 1, maximum: 5 },
      flag: { type: "boolean" },
      colour: { enum: ["red", "blue", 3] },
      list: { type: "array", items: { type: "string" } },
      inner: { type: "object" },
      either: { type: ["string", "number"] },
      anything: {},
    },
  };
  const fields = buildFields(schema);
  const kinds = fields.map(({ name, kind }) => `${name} ${kind}`);
  assert.deepEqual(kinds, [
    "text text",
    "count number",
    "flag boolean",
    "colour choice",
    "list json",
    "inner json",
    "either json",
    "anything json",
  ]);
  assert.deepEqual(
    fields.filter(({ isRequired }) => isRequired).map(({ name }) => name),
    ["text"],
  );
  assert.equal(fields[1]?.hint, "at least 1 · at most 5");
  assert.deepEqual(
    listChoices(schema.properties?.["colour"] ?? {}).map(({ label }) => label),
    ["red", "blue", "3"],
  );
});

test("a filled form is the arguments; what is empty is left out", () => {
  const schema: Schema = {
    properties: {
      text: { type: "string" },
      count: { type: "number" },
      flag: { type: "boolean" },
      colour: { enum: ["red", 3] },
      list: { type: "array", items: { type: "integer" } },
      other: { type: "string" },
    },
  };
  const { values, problems } = fill(schema, { text: " a ", count: "1.5", flag: "false", colour: "3", list: "[1, 2]" });
  assert.deepEqual(values, { text: " a ", count: 1.5, flag: false, colour: 3, list: [1, 2] });
  assert.equal(problems.size, 0);
});

test("defaults are there at first, and may be removed", () => {
  const schema: Schema = { properties: { text: { type: "string", default: "x" }, list: { default: [1] } } };
  assert.deepEqual(fill(schema, {}).values, { text: "x", list: [1] });
  assert.deepEqual(fill(schema, { text: "" }).values, { list: [1] });
});

test("what is wrong is said by field", () => {
  const schema: Schema = {
    required: ["needed"],
    properties: {
      needed: { type: "string" },
      count: { type: "integer", maximum: 5 },
      word: { type: "number" },
      json: { type: "object", required: ["a"], properties: { a: { type: "array", items: { type: "string" } } } },
      broken: { type: "array" },
    },
  };
  const wrong = fill(schema, { count: "6", word: "many", json: '{"a": ["x", 1]}', broken: "[1" }).problems;
  assert.equal(wrong.get("needed"), "This is needed.");
  assert.equal(wrong.get("count"), "at most 5.");
  assert.equal(wrong.get("word"), "This is no number.");
  assert.equal(wrong.get("json"), "a[1]: this must be a text.");
  assert.match(wrong.get("broken") ?? "", /^This is no JSON/);
  assert.equal(fill(schema, { needed: "", json: "{}" }).problems.get("json"), "'a' is missing.");
  assert.equal(fill(schema, { count: "1.5" }).problems.get("count"), "this must be a whole number.");
});

test("an empty text can be sent where a text is needed", () => {
  const schema: Schema = { required: ["text"], properties: { text: { type: "string" } } };
  assert.deepEqual(fill(schema, { text: "" }).values, { text: "" });
  assert.equal(fill(schema, {}).problems.size, 1);
});

test("optional values, and references, are what they stand for", () => {
  const schema: Schema = {
    $defs: { colour: { enum: ["red"] }, loop: { $ref: "#/$defs/loop" } },
    properties: {
      maybe: { anyOf: [{ type: "integer" }, { type: "null" }], description: "Or none." },
      colour: { $ref: "#/$defs/colour" },
      loop: { $ref: "#/$defs/loop" },
      lost: { $ref: "#/$defs/none" },
    },
  };
  const kinds = buildFields(schema).map(({ kind, hint }) => [kind, hint]);
  assert.deepEqual(kinds, [
    ["number", "Or none."],
    ["choice", ""],
    ["json", "JSON"],
    ["json", "JSON"],
  ]);
});

test("no arguments need no field, and alternatives are one field", () => {
  assert.deepEqual(buildFields({}), []);
  assert.deepEqual(buildFields({ type: "object", properties: {} }), []);
  const either: Schema = { oneOf: [{ required: ["a"] }, { required: ["b"] }] };
  assert.deepEqual(fill(either, { "": '{"a": 1}' }).values, { a: 1 });
});

test("hostile schemas do no harm", () => {
  const schema = JSON.parse(
    '{"properties": {"__proto__": {"type": "string"}, "x": null, "y": "text", "z": {"type": 7, "enum": "no"}}, "required": 5}',
  ) as Schema;
  const { values } = fill(schema, { ["x"]: "1" });
  assert.equal(JSON.stringify(values), '{"x":1}');
  const filled = readForm(buildFields(schema), new Map([["__proto__", "p"]]));
  assert.equal(JSON.stringify(filled.values), '{"__proto__":"p"}');
  assert.equal(Object.getPrototypeOf({}), Object.prototype);
  assert.equal(findProblem({ type: "object" }, [], ""), "this must be an object.");
});

test("names that a header cannot carry are encoded", () => {
  assert.equal(encodeHeader("read_file"), "read_file");
  assert.equal(encodeHeader("wörter"), "=?base64?d8O2cnRlcg==?=");
  assert.equal(encodeHeader(" a"), "=?base64?IGE=?=");
  assert.equal(encodeHeader("=?base64?x?="), "=?base64?PT9iYXNlNjQ/eD89?=");
});

test("arguments that the schema marks are repeated in headers", () => {
  const schema: Schema = {
    properties: {
      region: { type: "string", "x-mcp-header": "Region" },
      inner: { properties: { on: { type: "boolean", "x-mcp-header": "On" } } },
      text: { type: "string" },
      none: { type: "string", "x-mcp-header": "None" },
    },
  };
  const headers = buildArgumentHeaders(schema, { region: "eu", inner: { on: true }, text: "x" });
  assert.deepEqual(headers, { "mcp-param-Region": "eu", "mcp-param-On": "true" });
});

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

test("values are chosen by their titles, however a schema writes them", () => {
  const titled = [
    { const: "r", title: "Red" },
    { const: "b", title: "Blue" },
  ];
  const schema: Schema = {
    $defs: { colour: { type: "string", oneOf: titled } },
    properties: {
      named: { type: "string", title: "Colour", enum: ["r", "b"], enumNames: ["Red", "Blue"] },
      one: { type: "string", oneOf: titled, default: "b" },
      any: { anyOf: [...titled, { type: "null" }] },
      referred: { $ref: "#/$defs/colour", default: "none of them" },
      fixed: { const: "v1" },
      single: { anyOf: [{ const: 1, title: "First" }, { type: "null" }], title: "Place" },
      alike: {
        oneOf: [
          { const: 1, title: "Same" },
          { const: 2, title: "Same" },
        ],
      },
      halfNamed: { enum: ["x", "y"], enumNames: ["X", 5] },
      mixed: { oneOf: [{ const: "r" }, { type: "number" }] },
    },
  };
  const fields = buildFields(schema);
  assert.deepEqual(
    fields.map(({ name, title, kind, choices }) => [name, title, kind, choices.map(({ label }) => label)]),
    [
      ["named", "Colour", "choice", ["Red", "Blue"]],
      ["one", "", "choice", ["Red", "Blue"]],
      ["any", "", "choice", ["Red", "Blue"]],
      ["referred", "", "choice", ["Red", "Blue"]],
      ["fixed", "", "choice", ["v1"]],
      ["single", "Place", "choice", ["First"]],
      ["alike", "", "choice", ["Same (1)", "Same (2)"]],
      ["halfNamed", "", "choice", ["X", "y"]],
      ["mixed", "", "json", []],
    ],
  );
  assert.deepEqual(fill(schema, { named: '"r"', single: "1", alike: "2" }).values, {
    named: "r",
    one: "b",
    single: 1,
    alike: 2,
  });
  const inner: Schema = { properties: { one: { oneOf: titled }, any: { anyOf: [...titled, { type: "null" }] } } };
  assert.equal(findProblem(inner, { one: "x" }, ""), 'one: this must be one of "r", "b".');
  assert.equal(findProblem(inner, { any: null }, ""), "");
  assert.equal(findProblem({ const: 1 }, 2, ""), "this must be one of 1.");
});

test("a list of known values is ticked, and any other list is JSON", () => {
  const schema: Schema = {
    required: ["needed"],
    $defs: { colour: { enum: ["r", "b"] } },
    properties: {
      tags: { type: "array", items: { enum: ["a", "b"] }, minItems: 1, maxItems: 2, default: ["a"] },
      titled: { type: "array", items: { anyOf: [{ const: 1, title: "One" }] } },
      referred: { type: "array", items: { $ref: "#/$defs/colour" } },
      optional: { anyOf: [{ type: "array", items: { enum: ["a"] } }, { type: "null" }], default: null },
      needed: { type: "array", items: { enum: ["a"] } },
      other: { type: "array", items: { enum: ["a"] }, default: ["z"] },
      free: { type: "array", items: { type: "string" } },
    },
  };
  assert.deepEqual(
    buildFields(schema).map(({ kind, choices, initial }) => [kind, choices.map(({ label }) => label), initial]),
    [
      ["choices", ["a", "b"], '["a"]'],
      ["choices", ["One"], ""],
      ["choices", ["r", "b"], ""],
      ["choices", ["a"], ""],
      ["choices", ["a"], ""],
      ["json", [], '["z"]'],
      ["json", [], ""],
    ],
  );
  assert.equal(buildFields(schema)[0]?.hint, "at least 1 of them · at most 2 of them");
  assert.equal(fill(schema, { other: "[]" }).problems.get("needed"), "This is needed.");
  assert.deepEqual(fill(schema, { other: "[]", titled: "[1]", needed: "[]" }).values, {
    tags: ["a"],
    titled: [1],
    needed: [],
    other: [],
  });
  assert.equal(fill(schema, { tags: "[]" }).problems.get("tags"), "at least 1 of them.");
  assert.equal(fill(schema, { tags: '["a","b","a"]' }).problems.get("tags"), "at most 2 of them.");
});

test("a text has the input of its format, unless its default has another form", () => {
  const schema: Schema = {
    properties: {
      mail: { type: "string", format: "email", minLength: 3, maxLength: 20 },
      page: { type: "string", format: "uri", default: "https://example.com" },
      day: { type: "string", format: "date", default: "2026-01-31" },
      moment: { type: "string", format: "date-time", default: "2026-01-31T12:00:00+02:00" },
      soon: { type: "string", format: "date", default: "tomorrow" },
      fraction: { type: "string", format: "date-time", default: "2026-01-31T12:00:00.123Z" },
      lines: { type: "string", format: "email", default: "a\nb" },
      number: { type: "string", format: "date", default: 5 },
      other: { type: "string", format: "constructor" },
    },
  };
  const fields = buildFields(schema);
  assert.deepEqual(
    fields.map(({ inputType }) => inputType),
    ["email", "url", "date", "datetime-local", "area", "area", "area", "area", "area"],
  );
  assert.equal(fields[0]?.hint, "at least 3 characters · at most 20 characters");
  const { values } = readForm(fields.slice(0, 4), new Map());
  assert.deepEqual(values, { page: "https://example.com", day: "2026-01-31", moment: "2026-01-31T10:00:00Z" });
});

test("no arguments need no field, and alternatives are one field", () => {
  assert.deepEqual(buildFields({}), []);
  assert.deepEqual(buildFields({ type: "object", properties: {} }), []);
  const either: Schema = { oneOf: [{ required: ["a"] }, { required: ["b"] }] };
  assert.deepEqual(fill(either, { "": '{"a": 1}' }).values, { a: 1 });
});

test("hostile schemas do no harm", () => {
  const schema = JSON.parse(
    '{"properties": {"__proto__": {"type": "string"}, "x": null, "y": "text", "z": {"type": 7, "enum": "no", "anyOf": "no", "oneOf": {"const": 1}, "title": 5}, "list": {"type": "array", "items": "no"}, "ticks": {"type": "array", "items": {"enum": ["a"], "enumNames": "no", "anyOf": [null, 1]}}}, "required": 5}',
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

/**
 * Forms from JSON Schema: which fields the arguments of a tool need, and the arguments that a filled form means.
 * Schemas come from servers, so nothing in them is relied on: what a form cannot hold is a field for JSON.
 */

export interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  definitions?: Record<string, Schema>;
  title?: string;
  description?: string;
  default?: unknown;
  format?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  "x-mcp-header"?: unknown;
}

export type FieldKind = "text" | "number" | "boolean" | "choice" | "json";

export interface Field {
  /** The argument; empty for the field that holds all arguments. */
  name: string;
  kind: FieldKind;
  schema: Schema;
  isRequired: boolean;
  hint: string;
  /** What the field has at first. */
  initial: string;
}

// References that lead to references; a schema may refer to itself.
const MAX_REFERENCES = 10;
// Levels of a JSON value that are checked here. The server checks all of them.
const MAX_DEPTH = 8;

/** The fields of a form, in the order of the schema. None: the tool takes no arguments. */
export function buildFields(root: Schema): Field[] {
  const schema = resolve(root, root);
  const properties = isObject(schema.properties) ? Object.entries(schema.properties) : [];
  if (properties.length === 0) {
    const isOpen = Boolean(schema.anyOf ?? schema.oneOf ?? schema.allOf) || (schema.type ?? "object") !== "object";
    return isOpen ? [buildField("", schema, true)] : [];
  }
  const required = new Set(Array.isArray(schema.required) ? schema.required : []);
  return properties.map(([name, inner]) => buildField(name, resolve(inner, root), required.has(name)));
}

function buildField(name: string, schema: Schema, isRequired: boolean): Field {
  const kind = name ? kindOf(schema) : "json";
  return { name, kind, schema, isRequired, hint: describe(schema, kind), initial: textOf(schema.default, kind) };
}

/** A field for a text, as prompts and templates of resources have them. */
export function buildTextField(
  name: string,
  { isRequired, hint = "", initial = "" }: { isRequired: boolean; hint?: string; initial?: string },
): Field {
  return { name, kind: "text", schema: {}, isRequired, hint, initial };
}

function kindOf(schema: Schema): FieldKind {
  if (Array.isArray(schema.enum) && schema.enum.length > 0) return "choice";
  const types = typesOf(schema).filter((type) => type !== "null");
  const [type] = types;
  if (types.length !== 1) return "json";
  if (type === "string") return "text";
  if (type === "number" || type === "integer") return "number";
  return type === "boolean" ? "boolean" : "json";
}

/** A schema without references, and without the alternative `null`, which an empty field stands for. */
function resolve(schema: unknown, root: Schema): Schema {
  let found = isObject(schema) ? (schema as Schema) : {};
  for (let step = 0; step < MAX_REFERENCES; step += 1) {
    const alternatives = (found.anyOf ?? found.oneOf ?? []).filter((each) => isObject(each) && each.type !== "null");
    const [only] = alternatives;
    let next: Schema | undefined;
    if (typeof found.$ref === "string") next = findReference(found.$ref, root);
    else if (Array.isArray(found.anyOf ?? found.oneOf) && alternatives.length === 1 && only) next = only;
    if (!next) break;
    const own = Object.entries(found).filter(([keyword]) => !["$ref", "anyOf", "oneOf"].includes(keyword));
    found = { ...next, ...Object.fromEntries(own) };
  }
  return found;
}

function findReference(reference: string, root: Schema): Schema | undefined {
  const match = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(reference);
  if (!match?.[2]) return undefined;
  const found = (match[1] === "$defs" ? root.$defs : root.definitions)?.[match[2]];
  return isObject(found) ? found : undefined;
}

function describe(schema: Schema, kind: FieldKind): string {
  const parts: string[] = [];
  if (typeof schema.description === "string") parts.push(schema.description);
  if (kind === "json") parts.push(`JSON${typesOf(schema).length > 0 ? ` (${typesOf(schema).join(" or ")})` : ""}`);
  if (typeof schema.minimum === "number") parts.push(`at least ${schema.minimum}`);
  if (typeof schema.maximum === "number") parts.push(`at most ${schema.maximum}`);
  return parts.join(" · ");
}

function textOf(value: unknown, kind: FieldKind): string {
  if (value === undefined || value === null) return "";
  return kind === "text" && typeof value === "string" ? value : JSON.stringify(value);
}

/** What the choices of an `enum` are called; their values are the JSON of each. */
export function listChoices(schema: Schema): { value: string; label: string }[] {
  return (schema.enum ?? []).map((each) => ({
    value: JSON.stringify(each),
    label: typeof each === "string" ? each : JSON.stringify(each),
  }));
}

export interface FilledForm {
  values: Record<string, unknown>;
  /** What is wrong, by the name of the field. */
  problems: Map<string, string>;
}

/** Focus the first field of a form that is wrong, once it is marked. */
export function focusProblem(event: SubmitEvent): void {
  const form = event.currentTarget as HTMLFormElement;
  requestAnimationFrame(() => form.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus());
}

/** The arguments of a filled form. A field that is left empty is left out. */
export function readForm(fields: readonly Field[], texts: ReadonlyMap<string, string>): FilledForm {
  const entries: [string, unknown][] = [];
  const problems = new Map<string, string>();
  for (const field of fields) {
    const text = texts.get(field.name) ?? field.initial;
    if (text === "" && !(field.kind === "text" && texts.has(field.name) && field.isRequired)) {
      if (field.isRequired) problems.set(field.name, "This is needed.");
      continue;
    }
    try {
      entries.push([field.name, readField(field, text)]);
    } catch (error) {
      problems.set(field.name, error instanceof Error ? error.message : String(error));
    }
  }
  const [first] = fields;
  if (first?.name === "") return { values: (entries[0]?.[1] ?? {}) as Record<string, unknown>, problems };
  return { values: Object.fromEntries(entries), problems };
}

function readField(field: Field, text: string): unknown {
  let value: unknown = text;
  if (field.kind === "number") {
    value = Number(text);
    if (!Number.isFinite(value)) throw new Error("This is no number.");
  } else if (field.kind !== "text") {
    try {
      value = JSON.parse(text) as unknown;
    } catch (error) {
      throw new Error(`This is no JSON: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
    }
  }
  const problem = findProblem(field.schema, value, "");
  if (problem) throw new Error(problem);
  return value;
}

/** The first thing by which a value differs from its schema, or an empty text. */
export function findProblem(schema: Schema, value: unknown, path: string, depth = 0): string {
  if (depth > MAX_DEPTH || !isObject(schema)) return "";
  const at = path ? `${path}: ` : "";
  const types = typesOf(schema);
  if (types.length > 0 && !types.some((type) => isOfType(value, type))) {
    return `${at}this must be ${types.map((type) => TYPE_WORDS[type] ?? type).join(" or ")}.`;
  }
  if (Array.isArray(schema.enum) && !schema.enum.some((each) => JSON.stringify(each) === JSON.stringify(value))) {
    return `${at}this must be one of ${schema.enum.map((each) => JSON.stringify(each)).join(", ")}.`;
  }
  if (typeof value === "number") {
    if (typeof schema.minimum === "number" && value < schema.minimum) return `${at}at least ${schema.minimum}.`;
    if (typeof schema.maximum === "number" && value > schema.maximum) return `${at}at most ${schema.maximum}.`;
  }
  if (typeof value === "string") {
    if (typeof schema.minLength === "number" && value.length < schema.minLength)
      return `${at}at least ${schema.minLength} characters.`;
    if (typeof schema.maxLength === "number" && value.length > schema.maxLength)
      return `${at}at most ${schema.maxLength} characters.`;
  }
  return findInnerProblem(schema, value, path, depth);
}

function findInnerProblem(schema: Schema, value: unknown, path: string, depth: number): string {
  if (Array.isArray(value)) {
    const { items } = schema;
    if (!items) return "";
    const problems = value.map((each, index) => findProblem(items, each, `${path}[${index}]`, depth + 1));
    return problems.find(Boolean) ?? "";
  }
  if (!isObject(value)) return "";
  const missing = (Array.isArray(schema.required) ? schema.required : []).find((name) => !Object.hasOwn(value, name));
  if (missing !== undefined) return `${path ? `${path}: ` : ""}'${missing}' is missing.`;
  for (const [name, inner] of Object.entries(isObject(schema.properties) ? schema.properties : {})) {
    if (!Object.hasOwn(value, name)) continue;
    const problem = findProblem(inner, value[name], path ? `${path}.${name}` : name, depth + 1);
    if (problem) return problem;
  }
  return "";
}

const TYPE_WORDS: Record<string, string> = {
  string: "a text",
  number: "a number",
  integer: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  null: "null",
};

function isOfType(value: unknown, type: string): boolean {
  if (type === "array") return Array.isArray(value);
  if (type === "null") return value === null;
  if (type === "integer") return Number.isInteger(value);
  if (type === "object") return isObject(value);
  return !["string", "number", "boolean"].includes(type) || typeof value === type;
}

function typesOf(schema: Schema): string[] {
  const types: unknown[] = Array.isArray(schema.type) ? schema.type : [schema.type];
  return types.filter((type) => typeof type === "string");
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

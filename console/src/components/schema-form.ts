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
  enumNames?: unknown[];
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
  minItems?: number;
  maxItems?: number;
  "x-mcp-header"?: unknown;
}

/** `choice` is one of some values, `choices` a list of any of them. */
export type FieldKind = "text" | "number" | "boolean" | "choice" | "choices" | "json";

/** The input for a text. An `area` holds any text; the others what their format allows. */
export type InputType = "area" | "email" | "url" | "date" | "datetime-local";

export interface Choice {
  /** JSON. */
  value: string;
  label: string;
}

export interface Field {
  /** The argument; empty for the field that holds all arguments. */
  name: string;
  /** What the schema calls the argument, or empty. */
  title: string;
  kind: FieldKind;
  inputType: InputType;
  choices: Choice[];
  schema: Schema;
  isRequired: boolean;
  hint: string;
  /** What the field has at first: a text, or JSON. */
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
  return properties.map(([name, inner]) => {
    const found = resolve(inner, root);
    const items = isObject(found.items) ? { items: resolve(found.items, root) } : {};
    return buildField(name, { ...found, ...items }, required.has(name));
  });
}

function buildField(name: string, schema: Schema, isRequired: boolean): Field {
  const kind = name ? kindOf(schema) : "json";
  const inputType = kind === "text" ? inputTypeOf(schema) : "area";
  const choices = choicesOf(schema, kind);
  const title = name && typeof schema.title === "string" ? schema.title.trim() : "";
  const hint = describe(schema, kind, inputType);
  const initial = inputType === "datetime-local" ? toLocalTime(schema.default) : textOf(schema.default, kind);
  // A default that cannot be chosen is none.
  const isHeld = kind !== "choice" || choices.some(({ value }) => value === initial);
  return { name, title, kind, inputType, choices, schema, isRequired, hint, initial: isHeld ? initial : "" };
}

/** A field for a text, as prompts and templates of resources have them. */
export function buildTextField(
  name: string,
  { isRequired, hint = "", initial = "" }: { isRequired: boolean; hint?: string; initial?: string },
): Field {
  return { name, title: "", kind: "text", inputType: "area", choices: [], schema: {}, isRequired, hint, initial };
}

function kindOf(schema: Schema): FieldKind {
  if (listChoices(schema).length > 0) return "choice";
  const types = typesOf(schema).filter((type) => type !== "null");
  const [type] = types;
  if (types.length !== 1) return "json";
  if (type === "array") return canTick(schema) ? "choices" : "json";
  if (type === "string") return "text";
  if (type === "number" || type === "integer") return "number";
  return type === "boolean" ? "boolean" : "json";
}

/** Whether a list is some of known values, its default too. */
function canTick({ items, default: initial }: Schema): boolean {
  const values = new Set(items ? listChoices(items).map(({ value }) => value) : []);
  const isHeld = (each: unknown) => values.has(JSON.stringify(each));
  return values.size > 0 && (textOf(initial, "choices") === "" || (Array.isArray(initial) && initial.every(isHeld)));
}

const INPUT_TYPES: ReadonlyMap<unknown, InputType> = new Map([
  ["email", "email"],
  ["uri", "url"],
  ["date", "date"],
  ["date-time", "datetime-local"],
]);

/** The input for the format of a text. Browsers empty an input whose text has another form, so the default decides. */
function inputTypeOf({ format, default: initial }: Schema): InputType {
  const type = INPUT_TYPES.get(format) ?? "area";
  if (type === "area" || textOf(initial, "text") === "") return type;
  if (typeof initial !== "string") return "area";
  if (type === "date") return /^\d{4}-\d\d-\d\d$/.test(initial) ? type : "area";
  if (type === "datetime-local") return Date.parse(toLocalTime(initial)) === Date.parse(initial) ? type : "area";
  return /\s/.test(initial) ? "area" : type;
}

/** A moment as an input of the browser has it: in the time zone of the person, and without one. */
function toLocalTime(value: unknown): string {
  const at = new Date(typeof value === "string" ? value : NaN);
  if (Number.isNaN(at.getTime())) return "";
  const shifted = new Date(at.getTime() - at.getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, "2026-01-31T12:00:00".length);
}

/** A schema without references, and without the alternative `null`, which an empty field stands for. */
function resolve(schema: unknown, root: Schema): Schema {
  let found = isObject(schema) ? (schema as Schema) : {};
  for (let step = 0; step < MAX_REFERENCES; step += 1) {
    const [only, ...others] = alternativesOf(found).filter((each) => isObject(each) && each.type !== "null");
    let next: Schema | undefined;
    if (typeof found.$ref === "string") next = findReference(found.$ref, root);
    // A value with a title is a choice; its title is not that of the field.
    else if (only && others.length === 0 && !Object.hasOwn(only, "const")) next = only;
    if (!next) break;
    const own = Object.entries(found).filter(([keyword]) => !["$ref", "anyOf", "oneOf"].includes(keyword));
    found = { ...next, ...Object.fromEntries(own) };
  }
  return found;
}

function alternativesOf({ anyOf, oneOf }: Schema): Schema[] {
  if (Array.isArray(anyOf)) return anyOf;
  return Array.isArray(oneOf) ? oneOf : [];
}

function findReference(reference: string, root: Schema): Schema | undefined {
  const match = /^#\/(\$defs|definitions)\/([^/]+)$/.exec(reference);
  if (!match?.[2]) return undefined;
  const found = (match[1] === "$defs" ? root.$defs : root.definitions)?.[match[2]];
  return isObject(found) ? found : undefined;
}

function describe(schema: Schema, kind: FieldKind, inputType: InputType): string {
  const parts: string[] = [];
  if (typeof schema.description === "string") parts.push(schema.description);
  if (kind === "json") parts.push(`JSON${typesOf(schema).length > 0 ? ` (${typesOf(schema).join(" or ")})` : ""}`);
  if (inputType === "datetime-local") parts.push("in your time zone");
  if (kind === "number" || kind === "json") parts.push(...describeRange(schema.minimum, schema.maximum));
  if (kind === "text") parts.push(...describeRange(schema.minLength, schema.maxLength, " characters"));
  if (kind === "choices") parts.push(...describeRange(schema.minItems, schema.maxItems, " of them"));
  return parts.join(" · ");
}

function describeRange(least: unknown, most: unknown, unit = ""): string[] {
  const parts: string[] = [];
  if (typeof least === "number" && (unit === "" || least > 0)) parts.push(`at least ${least}${unit}`);
  if (typeof most === "number") parts.push(`at most ${most}${unit}`);
  return parts;
}

function textOf(value: unknown, kind: FieldKind): string {
  if (value === undefined || value === null) return "";
  return kind === "text" && typeof value === "string" ? value : JSON.stringify(value);
}

function choicesOf(schema: Schema, kind: FieldKind): Choice[] {
  if (kind === "boolean") return ["true", "false"].map((value) => ({ value, label: value }));
  if (kind === "choices") return listChoices(schema.items ?? {});
  return kind === "choice" ? listChoices(schema) : [];
}

/** The values that a schema names one by one, as `enum`, as `const` or as alternatives of `const`. Else there are none. */
export function listChoices(schema: Schema): Choice[] {
  const named = listNamedValues(schema);
  const titles = named.map(([value, title]) => (typeof title === "string" && title.trim()) || nameValue(value));
  return named.map(([value], index) => {
    const title = titles[index] ?? "";
    const isAmbiguous = titles.indexOf(title) !== titles.lastIndexOf(title);
    const label = isAmbiguous && title !== nameValue(value) ? `${title} (${nameValue(value)})` : title;
    return { value: JSON.stringify(value), label };
  });
}

/** Each value with what may be its title. */
function listNamedValues(schema: Schema): [unknown, unknown][] {
  const { enum: values, enumNames } = schema;
  if (Array.isArray(values)) {
    const names = Array.isArray(enumNames) ? enumNames : [];
    return values.map((value, index) => [value, names[index]]);
  }
  if (Object.hasOwn(schema, "const")) return [[schema.const, undefined]];
  const alternatives = alternativesOf(schema).filter((each) => !isObject(each) || each.type !== "null");
  const isNamed = alternatives.every((each) => isObject(each) && Object.hasOwn(each, "const"));
  return isNamed ? alternatives.map((each) => [each.const, each.title]) : [];
}

function nameValue(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value);
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
  // A moment needs a time zone, which an input of the browser leaves out.
  if (field.inputType === "datetime-local") value = new Date(text).toISOString().replace(".000Z", "Z");
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
  const choices = value === null && allowsNull(schema) ? [] : listChoices(schema);
  if (choices.length > 0 && !choices.some((each) => each.value === JSON.stringify(value))) {
    return `${at}this must be one of ${choices.map((each) => each.value).join(", ")}.`;
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

function allowsNull(schema: Schema): boolean {
  return alternativesOf(schema).some((each) => isObject(each) && each.type === "null");
}

function findInnerProblem(schema: Schema, value: unknown, path: string, depth: number): string {
  if (Array.isArray(value)) {
    const { items, minItems, maxItems } = schema;
    const at = path ? `${path}: ` : "";
    if (typeof minItems === "number" && value.length < minItems) return `${at}at least ${minItems} of them.`;
    if (typeof maxItems === "number" && value.length > maxItems) return `${at}at most ${maxItems} of them.`;
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

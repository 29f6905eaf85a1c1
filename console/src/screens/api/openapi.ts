/** The OpenAPI document, as far as the page shows it. */

export interface DocumentSchema {
  $ref?: string;
  type?: string | string[];
  description?: string;
  properties?: Record<string, DocumentSchema>;
  required?: string[];
  items?: DocumentSchema;
  enum?: unknown[];
  const?: unknown;
  anyOf?: DocumentSchema[];
  oneOf?: DocumentSchema[];
  minimum?: number;
  maximum?: number;
}

interface Content {
  schema?: DocumentSchema;
  example?: unknown;
}

export interface Operation {
  operationId: string;
  tags: string[];
  summary: string;
  description?: string;
  parameters?: { name: string; in: string; required?: boolean; description?: string; schema?: DocumentSchema }[];
  requestBody?: { required?: boolean; content: Record<string, Content> };
  responses: Record<string, { description?: string; content?: Record<string, Content> }>;
  security?: unknown[];
}

export interface Document {
  info: { title: string; version: string; description?: string };
  tags: { name: string; description?: string }[];
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, DocumentSchema> };
  "x-error-codes"?: { status: number; code: string; when: string; advice: string }[];
}

export interface Endpoint {
  method: string;
  path: string;
  operation: Operation;
}

/** The routes by tag, in the order of the document. */
export function groupEndpoints(document: Document): { tag: string; about: string; endpoints: Endpoint[] }[] {
  const endpoints = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );
  return document.tags.map(({ name, description }) => ({
    tag: name,
    about: description ?? "",
    endpoints: endpoints.filter(({ operation }) => operation.tags.includes(name)),
  }));
}

/** The name of the schema that a reference leads to. */
export function nameOf(schema: DocumentSchema): string {
  return schema.$ref?.split("/").at(-1) ?? "";
}

// Alternatives that are named in a line. All of them are listed below it.
const MAX_NAMED = 5;

/** What a value is, in words: `list of Item or null`. */
export function describeType(schema: DocumentSchema): string {
  if (schema.$ref) return nameOf(schema);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((each) => JSON.stringify(each)).join(", ");
  const alternatives = schema.anyOf ?? schema.oneOf;
  if (alternatives && alternatives.length > MAX_NAMED) return `one of ${alternatives.length} kinds`;
  if (alternatives) return alternatives.map(describeType).join(" or ");
  if (schema.items)
    return `list of ${describeType(schema.items)}${[schema.type].flat().includes("null") ? " or null" : ""}`;
  const types = [schema.type ?? "anything"].flat();
  return types.map((type) => WORDS[type] ?? type).join(" or ");
}

const WORDS: Record<string, string> = {
  string: "text",
  integer: "whole number",
  boolean: "true or false",
  array: "list",
};

/** The named schemas that a schema refers to, in its fields, entries and alternatives. */
export function findReferences(schema: DocumentSchema): string[] {
  const inner = [
    ...Object.values(schema.properties ?? {}),
    ...(schema.items ? [schema.items] : []),
    ...(schema.anyOf ?? []),
    ...(schema.oneOf ?? []),
  ];
  const found = inner.flatMap((each) => (each.$ref ? [nameOf(each)] : findReferences(each)));
  return [...new Set(found)];
}

/** The request as a command. The key comes from the environment of whoever runs it. */
export function buildCurl(endpoint: Endpoint, url: string): string {
  const { method, operation } = endpoint;
  const lines = [`curl ${method === "GET" || method === "POST" ? "" : `-X ${method} `}${quote(url)}`];
  if (!operation.security || operation.security.length > 0) lines.push(`-H "authorization: Bearer $HOLODECK_KEY"`);
  const body = operation.requestBody?.content["application/json"];
  if (body) {
    lines.push(`-H 'content-type: application/json'`);
    lines.push(`-d ${quote(JSON.stringify(body.example ?? {}))}`);
  } else if (method === "POST") {
    lines[0] = `curl -X POST ${quote(url)}`;
  }
  return lines.join(" \\\n  ");
}

function quote(text: string): string {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

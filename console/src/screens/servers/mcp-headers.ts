/** Headers that repeat parts of a message to an MCP endpoint, which the gateway compares with the message. */
import type { Schema } from "../../components/schema-form";

/** A header value: text that a header cannot carry is in base64. */
export function encodeHeader(text: string): string {
  const isPlain = /^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$/.test(text) && !/^=\?base64\?.*\?=$/.test(text);
  if (!text || isPlain) return text;
  const bytes = new TextEncoder().encode(text);
  return `=?base64?${btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""))}?=`;
}

/** The headers that repeat arguments which the schema marks with `x-mcp-header`. */
export function buildArgumentHeaders(schema: Schema, values: Record<string, unknown>): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, inner] of Object.entries(schema.properties ?? {})) {
    const value = values[name];
    if (typeof inner !== "object" || value === undefined || value === null) continue;
    const header = inner["x-mcp-header"];
    if (typeof value === "object") {
      if (!Array.isArray(value)) Object.assign(headers, buildArgumentHeaders(inner, value as Record<string, unknown>));
    } else if (typeof header === "string" && ["string", "number", "boolean"].includes(typeof value)) {
      // eslint-disable-next-line @typescript-eslint/no-base-to-string -- it is no object
      headers[`mcp-param-${header}`] = encodeHeader(String(value));
    }
  }
  return headers;
}

/**
 * What a tool returned that is no text: pictures, sounds and files, as the items of a trace have them. A picture or
 * sound is shown only if its type is one that browsers decode without running anything in it; SVG is none of them.
 */
import { fileNameOf } from "./save-file";

export interface ToolPart {
  kind: "picture" | "sound" | "file";
  name: string;
  type: string;
  /** Base64. */
  data: string;
}

export const PICTURE_TYPES: ReadonlySet<string> = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

const SOUND_TYPES: ReadonlySet<string> = new Set([
  "audio/aac",
  "audio/flac",
  "audio/mp3",
  "audio/mp4",
  "audio/mpeg",
  "audio/ogg",
  "audio/wav",
  "audio/webm",
  "audio/x-wav",
]);

// The lines by which the `output` of an `mcp_call`, which is text, names other parts.
const MARKER = /^\[(?:(?:image|audio): .*, \d+ bytes|resource: .*, \d+ bytes\))\]$/m;

/** Whether the output of a call names parts that only its trace has. */
export function namesParts(output: string | null): boolean {
  return output !== null && MARKER.test(output);
}

/** The part of an id that all forms of one call share: `mcp_x`, `fc_x`, and `out_x` of its output. */
export function stemOf(id: string): string {
  const end = id.indexOf("_");
  return end >= 0 && end < id.length - 1 ? id.slice(end + 1) : id;
}

/** The parts of an output, from the content of its item in a trace. Text and links are left out. */
export function readToolParts(content: unknown): ToolPart[] {
  return Array.isArray(content) ? content.flatMap((part: unknown) => readPart(part) ?? []) : [];
}

/** The picture of a data URL, if it is one that is shown. */
export function readPictureURL(url: string): ToolPart | null {
  const [, type, data] = /^data:([^;,]+);base64,(.*)$/is.exec(url) ?? [];
  if (!type || !data || kindOf(type.toLowerCase()) !== "picture") return null;
  return { kind: "picture", name: "picture", type: type.toLowerCase(), data };
}

/** The number of bytes that base64 stands for. */
export function sizeOfBase64(data: string): number {
  const padding = data.endsWith("==") ? 2 : data.endsWith("=") ? 1 : 0;
  return Math.max(0, Math.floor((data.length * 3) / 4) - padding);
}

/** The URL of a picture or sound that the page holds itself. */
export function dataURLOf(part: ToolPart): string {
  return `data:${part.type};base64,${part.data}`;
}

function readPart(part: unknown): ToolPart | null {
  if (typeof part !== "object" || part === null) return null;
  const kind = textOf(part, "type");
  const data = textOf(part, "data");
  if (!["image", "audio", "binary"].includes(kind) || !data) return null;
  const type = textOf(part, "mime_type").toLowerCase();
  return { kind: kindOf(type), name: fileNameOf(textOf(part, "name") || textOf(part, "uri"), kind), type, data };
}

function kindOf(type: string): ToolPart["kind"] {
  if (PICTURE_TYPES.has(type)) return "picture";
  return SOUND_TYPES.has(type) ? "sound" : "file";
}

function textOf(part: object, name: string): string {
  const value = (part as Record<string, unknown>)[name];
  return typeof value === "string" ? value : "";
}

/**
 * Requests to the MCP endpoint of one server, in the protocol's version without sessions. A call that asks a person
 * something ends with a question; it is sent again with the answers.
 */
import { send } from "../../api/client";
import { readEvents } from "../../api/event-stream";
import type { Answers, Question } from "../../components/question-form";
import type { Schema } from "../../components/schema-form";
import { buildArgumentHeaders, encodeHeader } from "./mcp-headers";

const VERSION = "2026-07-28";
const META = "io.modelcontextprotocol";
const MAX_PAGES = 100;

export interface ContentBlock {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  uri?: string;
  name?: string;
  resource?: { uri?: string; mimeType?: string; text?: string; blob?: string };
}

export interface CallResult {
  resultType?: string;
  content?: ContentBlock[];
  structuredContent?: unknown;
  isError?: boolean;
  inputRequests?: Record<string, Question>;
  requestState?: string;
}

interface Message {
  id?: number;
  result?: unknown;
  error?: { message: string };
}

/** Everything that a list of a server has, over all its pages. */
export async function listAll<T>(server: string, area: "tools" | "prompts" | "resources"): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const params = cursor ? { cursor } : {};
    const result = (await request(server, `${area}/list`, params)) as Record<string, unknown>;
    found.push(...((result[area] ?? []) as T[]));
    cursor = result["nextCursor"] as string | undefined;
    if (!cursor) break;
  }
  return found;
}

export interface Call {
  tool: string;
  schema: Schema;
  arguments: Record<string, unknown>;
  /** The answers to the questions of `before`. */
  answers?: Answers;
  before?: CallResult;
  signal?: AbortSignal;
}

export async function callTool(server: string, call: Call): Promise<CallResult> {
  const params: Record<string, unknown> = { name: call.tool, arguments: call.arguments };
  if (call.answers) params["inputResponses"] = call.answers;
  if (call.before?.requestState !== undefined) params["requestState"] = call.before.requestState;
  const headers = { "mcp-name": encodeHeader(call.tool), ...buildArgumentHeaders(call.schema, call.arguments) };
  return (await request(server, "tools/call", params, headers, call.signal)) as CallResult;
}

async function request(
  server: string,
  method: string,
  params: Record<string, unknown>,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
): Promise<unknown> {
  const about = {
    [`${META}/protocolVersion`]: VERSION,
    [`${META}/clientInfo`]: { name: "holodeck-console", version: "1" },
    [`${META}/clientCapabilities`]: { elicitation: { form: {} } },
  };
  const answer = await send(`mcp/${encodeURIComponent(server)}`, {
    method: "POST",
    body: { jsonrpc: "2.0", id: 1, method, params: { ...params, _meta: about } },
    headers: {
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": VERSION,
      "mcp-method": method,
      ...headers,
    },
    ...(signal ? { signal } : {}),
  });
  const message = await readAnswer(answer);
  if (message.error) throw new Error(message.error.message);
  return message.result ?? {};
}

async function readAnswer(answer: Response): Promise<Message> {
  if (!answer.headers.get("content-type")?.startsWith("text/event-stream") || !answer.body) {
    return (await answer.json()) as Message;
  }
  for await (const event of readEvents(answer.body)) {
    const message = JSON.parse(event.data) as Message;
    // Others are notifications, such as progress.
    if (message.result !== undefined || message.error) return message;
  }
  throw new Error("The connection ended before the tool had answered.");
}

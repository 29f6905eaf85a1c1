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

export interface ResourceContent {
  uri?: string;
  mimeType?: string;
  text?: string;
  blob?: string;
}

export interface ContentBlock {
  type: string;
  text?: string;
  data?: string;
  mimeType?: string;
  uri?: string;
  name?: string;
  resource?: ResourceContent;
}

/** A result that may ask a person something instead. */
export interface Asking {
  resultType?: string;
  inputRequests?: Record<string, Question>;
  requestState?: string;
}

export interface CallResult extends Asking {
  content?: ContentBlock[];
  structuredContent?: unknown;
  isError?: boolean;
}

export interface PromptResult extends Asking {
  description?: string;
  messages?: { role?: string; content?: ContentBlock | ContentBlock[] | null }[];
}

export interface ReadResult extends Asking {
  contents?: ResourceContent[];
}

interface Message {
  id?: number;
  result?: unknown;
  error?: { message: string };
}

/** The answers to the questions of the result before. None: the request is a new one. */
export interface Answered {
  answers?: Answers;
  before?: Asking;
}

// The lists of a server, and the method of each.
const LISTS = {
  tools: "tools/list",
  prompts: "prompts/list",
  resources: "resources/list",
  resourceTemplates: "resources/templates/list",
} as const;

/** Everything that a list of a server has, over all its pages. */
export async function listAll<T>(server: string, area: keyof typeof LISTS): Promise<T[]> {
  const found: T[] = [];
  let cursor: string | undefined;
  for (let page = 0; page < MAX_PAGES; page += 1) {
    const params = cursor ? { cursor } : {};
    const result = (await request(server, LISTS[area], params)) as Record<string, unknown>;
    found.push(...((result[area] ?? []) as T[]));
    cursor = result["nextCursor"] as string | undefined;
    if (!cursor) break;
  }
  return found;
}

interface RequestOptions extends Answered {
  signal?: AbortSignal;
}

export interface Call {
  tool: string;
  schema: Schema;
  arguments: Record<string, unknown>;
}

export async function callTool(server: string, call: Call, options: RequestOptions): Promise<CallResult> {
  const params = { name: call.tool, arguments: call.arguments, ...writeAnswers(options) };
  const headers = { "mcp-name": encodeHeader(call.tool), ...buildArgumentHeaders(call.schema, call.arguments) };
  return (await request(server, "tools/call", params, headers, options.signal)) as CallResult;
}

export async function getPrompt(
  server: string,
  name: string,
  values: Record<string, unknown>,
  options: RequestOptions,
): Promise<PromptResult> {
  const params = { name, arguments: values, ...writeAnswers(options) };
  const headers = { "mcp-name": encodeHeader(name) };
  return (await request(server, "prompts/get", params, headers, options.signal)) as PromptResult;
}

export async function readResource(server: string, uri: string, options: RequestOptions): Promise<ReadResult> {
  const params = { uri, ...writeAnswers(options) };
  const headers = { "mcp-name": encodeHeader(uri) };
  return (await request(server, "resources/read", params, headers, options.signal)) as ReadResult;
}

function writeAnswers({ answers, before }: Answered): Record<string, unknown> {
  return {
    ...(answers ? { inputResponses: answers } : {}),
    ...(before?.requestState === undefined ? {} : { requestState: before.requestState }),
  };
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
  throw new Error("The connection ended before the server had answered.");
}

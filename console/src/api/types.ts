/** Objects of the gateway's API, as far as the console reads them. */
import type { FunctionCall, MCPApprovalRequest, MCPCall, MCPListTools, Run, Usage } from "./schema";

export interface List<T> {
  object: "list";
  data: T[];
  has_more?: boolean;
  first_id?: string | null;
  last_id?: string | null;
}

export type { Elicitation, Model, Usage } from "./schema";
export type MCPCallItem = MCPCall;
export type MCPListToolsItem = MCPListTools;
export type ApprovalRequestItem = MCPApprovalRequest;
export type FunctionCallItem = FunctionCall;
export type Status = Run["status"];

export interface TextPart {
  type: "input_text" | "output_text" | "text" | "reasoning_text" | "summary_text";
  text: string;
}

export interface RefusalPart {
  type: "refusal";
  refusal: string;
}

export interface ImagePart {
  type: "input_image";
  image_url?: string | null;
}

export interface FilePart {
  type: "input_file";
  filename?: string | null;
  file_data?: string | null;
}

export type Part = TextPart | RefusalPart | ImagePart | FilePart;

export interface MessageItem {
  type: "message";
  id?: string;
  status?: string;
  role: "user" | "assistant" | "system" | "developer";
  content: Part[];
}

export interface ReasoningItem {
  type: "reasoning";
  id: string;
  summary?: TextPart[];
  content?: TextPart[];
}

export interface ApprovalResponseItem {
  type: "mcp_approval_response";
  id?: string;
  approval_request_id: string;
  approve: boolean;
  reason?: string | null;
}

export interface FunctionCallOutputItem {
  type: "function_call_output";
  id?: string;
  call_id: string;
  output: string | Part[];
}

/** An item of a type that the console shows as JSON. */
export interface OtherItem {
  type: "other";
  id: string;
  wire: unknown;
}

export type Item =
  | MessageItem
  | ReasoningItem
  | MCPCallItem
  | MCPListToolsItem
  | ApprovalRequestItem
  | ApprovalResponseItem
  | FunctionCallItem
  | FunctionCallOutputItem
  | OtherItem;

export type InputItem = MessageItem | ApprovalResponseItem;

export interface WireError {
  code?: string | null;
  message: string;
}

export interface ResponseResource {
  id: string;
  model: string;
  status: Status;
  created_at: number;
  completed_at: number | null;
  previous_response_id: string | null;
  instructions: string | null;
  incomplete_details: { reason: string } | null;
  error: WireError | null;
  usage: Usage | null;
  output: Item[];
  background: boolean;
}

/** An event of a response's stream. Fields beyond the first two depend on the type. */
export interface ResponseEvent {
  type: string;
  sequence_number: number;
  response?: ResponseResource;
  item?: Item;
  item_id?: string;
  output_index?: number;
  content_index?: number;
  summary_index?: number;
  delta?: string;
  arguments?: string;
  part?: Part;
  code?: string | null;
  message?: string;
}

const ITEM_TYPES: ReadonlySet<string> = new Set([
  "message",
  "reasoning",
  "mcp_call",
  "mcp_list_tools",
  "mcp_approval_request",
  "mcp_approval_response",
  "function_call",
  "function_call_output",
]);

/** An item as the console knows it: one of an unknown type becomes an `OtherItem`. */
export function readItem(item: Item): Item {
  if (ITEM_TYPES.has(item.type)) return item;
  return { type: "other", id: item.id ?? "", wire: item };
}

export function isFinished(status: Status): boolean {
  return status !== "queued" && status !== "in_progress";
}

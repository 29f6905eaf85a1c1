/** A response as its events tell it so far. `applyEvent` returns a new state and changes none. */
import {
  readItem,
  type Item,
  type MessageItem,
  type Part,
  type ReasoningItem,
  type ResponseEvent,
  type ResponseResource,
  type Status,
  type TextPart,
  type Usage,
  type WireError,
} from "../../api/types";

/** When an item began and ended, in milliseconds of this page's clock; only for what happened while it was watched. */
export interface ItemTimes {
  start: number;
  end: number | null;
}

export interface ResponseState {
  id: string;
  status: Status;
  model: string;
  items: readonly Item[];
  times: ReadonlyMap<number, ItemTimes>;
  usage: Usage | null;
  error: WireError | null;
  incompleteReason: string | null;
  /** Seconds from its creation to its end, as the gateway has them. */
  seconds: number | null;
}

export const EMPTY_STATE: ResponseState = {
  id: "",
  status: "queued",
  model: "",
  items: [],
  times: new Map(),
  usage: null,
  error: null,
  incompleteReason: null,
  seconds: null,
};

export const TERMINAL_EVENTS: ReadonlySet<string> = new Set([
  "response.completed",
  "response.failed",
  "response.incomplete",
  "response.cancelled",
]);

/** The state of a response that is read whole. */
export function readState(resource: ResponseResource): ResponseState {
  return withResource({ ...EMPTY_STATE, items: resource.output.map(readItem) }, resource);
}

export function applyEvent(state: ResponseState, event: ResponseEvent, now: number): ResponseState {
  if (event.response) {
    const next = withResource(state, event.response);
    return TERMINAL_EVENTS.has(event.type) ? { ...next, items: event.response.output.map(readItem) } : next;
  }
  if (event.type === "error") {
    return { ...state, error: { code: event.code ?? null, message: event.message ?? "The response failed." } };
  }
  const index = event.output_index;
  if (index === undefined) return state;
  if (event.item && event.type === "response.output_item.added") {
    return setTimes(setItem(state, index, readItem(event.item)), index, { start: now, end: null });
  }
  if (event.item && event.type === "response.output_item.done") {
    const start = state.times.get(index)?.start ?? now;
    return setTimes(setItem(state, index, readItem(event.item)), index, { start, end: now });
  }
  const item = state.items[index];
  const changed = item && changeItem(item, event);
  return changed ? setItem(state, index, changed) : state;
}

/** The text of all messages of a response. */
export function textOf(state: ResponseState): string {
  return state.items
    .filter((item) => item.type === "message")
    .map((item) => textOfParts(item.content))
    .join("\n\n");
}

export function textOfParts(parts: readonly Part[]): string {
  return parts
    .map((part) => ("text" in part ? part.text : part.type === "refusal" ? part.refusal : ""))
    .filter(Boolean)
    .join("\n");
}

function withResource(state: ResponseState, resource: ResponseResource): ResponseState {
  const { completed_at: end, created_at: start } = resource;
  return {
    ...state,
    id: resource.id,
    status: resource.status,
    model: resource.model,
    usage: resource.usage ?? state.usage,
    error: resource.error ?? state.error,
    incompleteReason: resource.incomplete_details?.reason ?? null,
    seconds: end === null ? null : end - start,
  };
}

function setItem(state: ResponseState, index: number, item: Item): ResponseState {
  const items = [...state.items];
  items[index] = item;
  return { ...state, items };
}

function setTimes(state: ResponseState, index: number, times: ItemTimes): ResponseState {
  return { ...state, times: new Map(state.times).set(index, times) };
}

function changeItem(item: Item, event: ResponseEvent): Item | null {
  const delta = event.delta ?? "";
  switch (event.type) {
    case "response.content_part.added":
    case "response.content_part.done":
      return item.type === "message" && event.part ? setPart(item, event.content_index ?? 0, event.part) : null;
    case "response.output_text.delta":
      return item.type === "message" ? appendText(item, event.content_index ?? 0, delta, "output_text") : null;
    case "response.refusal.delta":
      return item.type === "message" ? appendText(item, event.content_index ?? 0, delta, "refusal") : null;
    case "response.reasoning.delta":
    case "response.reasoning_text.delta":
      return item.type === "reasoning" ? appendReasoning(item, "content", event.content_index ?? 0, delta) : null;
    case "response.reasoning_summary_text.delta":
      return item.type === "reasoning" ? appendReasoning(item, "summary", event.summary_index ?? 0, delta) : null;
    case "response.mcp_call_arguments.delta":
    case "response.function_call_arguments.delta":
      return "arguments" in item ? { ...item, arguments: item.arguments + delta } : null;
    case "response.mcp_call_arguments.done":
    case "response.function_call_arguments.done":
      return "arguments" in item ? { ...item, arguments: event.arguments ?? item.arguments } : null;
    default:
      return null;
  }
}

function setPart(item: MessageItem, index: number, part: Part): MessageItem {
  const content = [...item.content];
  content[index] = part;
  return { ...item, content };
}

function appendText(item: MessageItem, index: number, delta: string, type: "output_text" | "refusal"): MessageItem {
  const before = item.content[index];
  const text = before ? textOfParts([before]) : "";
  return setPart(
    item,
    index,
    type === "refusal" ? { type, refusal: text + delta } : { type: "output_text", text: text + delta },
  );
}

function appendReasoning(item: ReasoningItem, field: "content" | "summary", index: number, delta: string) {
  const parts: TextPart[] = [...(item[field] ?? [])];
  const type = field === "content" ? "reasoning_text" : "summary_text";
  parts[index] = { type, text: (parts[index]?.text ?? "") + delta };
  return { ...item, [field]: parts };
}

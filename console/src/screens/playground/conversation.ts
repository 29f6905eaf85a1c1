/**
 * A conversation as a tree of exchanges: what a person sent, and the response to it. A question that is edited or asked
 * again is another child of the same response. `path` is the branch that is shown.
 */
import { computed, signal, type Signal } from "@preact/signals";
import { APIError, fetchJSON } from "../../api/client";
import {
  readItem,
  type InputItem,
  type Item,
  type List,
  type ResponseEvent,
  type ResponseResource,
} from "../../api/types";
import { isFinished, type Model } from "../../api/types";
import { applyEvent, EMPTY_STATE, readState, textOfParts, type ResponseState } from "./response-state";
import { createResponse, followResponse, type StreamHandlers } from "./response-stream";
import { titleOf, type StoredConversation } from "./conversation-metadata";
import { readStored, storeNew, storeResponse } from "./stored-conversations";

export interface Exchange {
  key: string;
  /** The response that it continues. */
  previous: string | null;
  model: string;
  instructions: string;
  input: readonly InputItem[];
  state: Signal<ResponseState>;
  /** Grows while the response is streamed; `eventCount` says when. */
  events: ResponseEvent[];
  eventCount: Signal<number>;
  isConnected: Signal<boolean>;
  /** Why there is no response, in the words of the gateway. */
  failure: Signal<string>;
  /** Whether it was seen from its beginning; not what was read from storage. */
  isLive: boolean;
}

// How often the page is drawn anew while events arrive: less often for a long answer, whose Markdown takes longer.
const DRAW_MS = 40;
const CHARS_PER_MS = 200;

export class Conversation {
  readonly exchanges = signal<readonly Exchange[]>([]);
  readonly head = signal<Exchange | null>(null);
  readonly stored = signal<StoredConversation | null>(null);
  readonly path = computed(() => this.pathTo(this.head.value));
  readonly isRunning = computed(() => {
    const head = this.head.value;
    return head !== null && !head.failure.value && !isFinished(head.state.value.status);
  });
  /** The response that a new message goes on from. An exchange that got none, because its request failed, is passed by. */
  get lastResponse(): string | null {
    const head = this.head.value;
    return head ? head.state.value.id || head.previous : null;
  }
  private readonly closing = new AbortController();
  private storing: Promise<void> = Promise.resolve();
  private lastKey = 0;

  /** Stop following; background responses go on at the gateway. */
  close(): void {
    this.closing.abort();
  }

  /** Read a conversation from the gateway: the latest branch, then the others. A response that runs is followed. */
  async load(id: string): Promise<void> {
    const stored = await readStored(id);
    this.stored.value = stored;
    for (const branch of [...stored.branches].reverse()) {
      const added = await this.loadBranch(branch);
      this.head.value ??= added;
    }
    if (!this.head.value) throw new Error("The responses of this conversation are not stored any more.");
  }

  /** Send input after a response, or as a beginning. */
  ask(model: Model, input: readonly InputItem[], previous: string | null, instructions = ""): Exchange {
    const exchange = this.add({
      previous,
      model: model.id,
      instructions,
      input,
      state: signal(EMPTY_STATE),
      isLive: true,
    });
    this.head.value = exchange;
    void this.run(exchange, (handlers) => createResponse(buildBody(model, exchange), handlers));
    return exchange;
  }

  async cancel(exchange: Exchange): Promise<void> {
    const { id } = exchange.state.value;
    if (id) await fetchJSON(`v1/responses/${id}/cancel`, { method: "POST", body: {} });
  }

  /** The exchanges that begin at the same place: edits and repetitions of one question. */
  siblingsOf(exchange: Exchange): readonly Exchange[] {
    return this.exchanges.value.filter((each) => each.previous === exchange.previous);
  }

  /** Show the branch of an exchange, to its newest end. */
  show(exchange: Exchange): void {
    let last = exchange;
    for (;;) {
      const next = this.exchanges.value.findLast((each) => each.previous && each.previous === last.state.value.id);
      if (!next) break;
      last = next;
    }
    this.head.value = last;
  }

  private pathTo(head: Exchange | null): Exchange[] {
    const path: Exchange[] = [];
    for (let each = head; each; each = this.find(each.previous)) path.unshift(each);
    return path;
  }

  private find(responseId: string | null): Exchange | null {
    if (!responseId) return null;
    return this.exchanges.value.find((each) => each.state.value.id === responseId) ?? null;
  }

  private add(parts: Omit<Exchange, "key" | "events" | "eventCount" | "isConnected" | "failure">): Exchange {
    const exchange: Exchange = {
      ...parts,
      key: String(++this.lastKey),
      events: [],
      eventCount: signal(0),
      isConnected: signal(true),
      failure: signal(""),
    };
    // Stored branches are read from the newest to the oldest.
    const others = this.exchanges.value;
    this.exchanges.value = parts.isLive ? [...others, exchange] : [exchange, ...others];
    return exchange;
  }

  private async run(exchange: Exchange, start: (handlers: StreamHandlers) => Promise<void>): Promise<void> {
    const startedAt = performance.now();
    let state = exchange.state.value;
    let chars = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const draw = () => {
      timer = undefined;
      exchange.state.value = state;
      exchange.eventCount.value = exchange.events.length;
    };
    const onEvent = (event: ResponseEvent) => {
      exchange.events.push(event);
      state = applyEvent(state, event, performance.now());
      if (event.type === "response.created" && exchange.isLive) this.store(exchange, state.id);
      chars += event.delta?.length ?? 0;
      timer ??= setTimeout(draw, DRAW_MS + chars / CHARS_PER_MS);
    };
    const onConnection = (isConnected: boolean) => (exchange.isConnected.value = isConnected);
    try {
      await start({ onEvent, onConnection, signal: this.closing.signal });
    } catch (error) {
      exchange.failure.value = error instanceof Error ? error.message : String(error);
    }
    clearTimeout(timer);
    // The gateway has whole seconds only, and none for what was stopped.
    if (exchange.isLive && isFinished(state.status)) {
      state = { ...state, seconds: (performance.now() - startedAt) / 1000 };
    }
    draw();
  }

  /** Store the end of this branch, one after the other: the first makes the conversation. */
  private store(exchange: Exchange, responseId: string): void {
    this.storing = this.storing.then(async () => {
      const stored = this.stored.value;
      // The answer is there in any case; what is lost is the place of the conversation in the list.
      try {
        this.stored.value = stored
          ? await storeResponse(stored, exchange.model, responseId, exchange.previous)
          : await storeNew(titleOf(textOfInput(exchange.input)), exchange.model, responseId);
      } catch {
        return;
      }
    });
  }

  /** Read a response and those before it, as far as they are not there yet and still stored. */
  private async loadBranch(responseId: string): Promise<Exchange | null> {
    const found: Exchange[] = [];
    let id: string | null = responseId;
    while (id && !this.find(id)) {
      const read: [ResponseResource, List<Item>] | null = await readResponse(id);
      if (!read) break;
      const [resource, input] = read;
      const exchange = this.add({
        previous: resource.previous_response_id,
        model: resource.model,
        instructions: resource.instructions ?? "",
        input: input.data.map(readItem).filter((item) => isInput(item)),
        state: signal(readState(resource)),
        isLive: false,
      });
      found.push(exchange);
      if (!isFinished(resource.status)) {
        exchange.state.value = { ...EMPTY_STATE, id: resource.id, status: resource.status, model: resource.model };
        void this.run(exchange, (handlers) => followResponse(resource.id, handlers));
      }
      id = resource.previous_response_id;
    }
    return found[0] ?? this.find(responseId);
  }
}

/** A response and its input. Null: it is not stored any more. */
async function readResponse(id: string): Promise<[ResponseResource, List<Item>] | null> {
  const path = `v1/responses/${encodeURIComponent(id)}`;
  try {
    return await Promise.all([
      fetchJSON<ResponseResource>(path),
      fetchJSON<List<Item>>(`${path}/input_items?order=asc&limit=100`),
    ]);
  } catch (error) {
    if (error instanceof APIError && error.status === 404) return null;
    throw error;
  }
}

/** The body of the request for an exchange. Servers are declared, so that the gateway can ask for approvals. */
export function buildBody(model: Model, exchange: Exchange): Record<string, unknown> {
  return {
    model: model.id,
    input: exchange.input,
    ...(exchange.previous ? { previous_response_id: exchange.previous } : {}),
    ...(exchange.instructions ? { instructions: exchange.instructions } : {}),
    ...(model.mcp_servers.length > 0
      ? { tools: model.mcp_servers.map((name) => ({ type: "mcp", server_label: name, require_approval: "never" })) }
      : {}),
  };
}

/** Whether a person asked something. An answer to an approval is used once, and cannot be sent again. */
export function hasQuestion(exchange: Exchange): boolean {
  return exchange.input.some((item) => item.type === "message");
}

export function textOfInput(input: readonly InputItem[]): string {
  return input
    .filter((item) => item.type === "message")
    .map((item) => textOfParts(item.content))
    .join("\n");
}

function isInput(item: Item): item is InputItem {
  return item.type === "message" || item.type === "mcp_approval_response";
}

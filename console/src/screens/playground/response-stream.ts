/**
 * The events of one response, from its creation or from an event on, to its end. When the connection is lost, or the
 * gateway dies and comes back, it continues after the last event that it has seen: none is missed or given twice.
 */
import { APIError, send } from "../../api/client";
import { readEvents } from "../../api/event-stream";
import type { ResponseEvent } from "../../api/types";
import { TERMINAL_EVENTS } from "./response-state";

export interface StreamHandlers {
  onEvent: (event: ResponseEvent) => void;
  /** Called with false when the connection is lost, and with true when it is there again. */
  onConnection: (isConnected: boolean) => void;
  signal: AbortSignal;
}

// Waits between two attempts to connect again: soon at first, gently later.
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5_000;
// Statuses of a gateway that starts or stops, or of a proxy before it.
const PASSING_STATUSES: ReadonlySet<number> = new Set([429, 502, 503, 504]);

/** Create a background response and follow it. Throws where the gateway refuses it, or is gone before it has an id. */
export function createResponse(body: object, handlers: StreamHandlers): Promise<void> {
  // The page asks the person what servers want to know: see elicitations.ts.
  return follow("", { ...body, background: true, stream: true, elicitation: "ask" }, handlers);
}

/** Follow a stored response from its first event. */
export function followResponse(id: string, handlers: StreamHandlers): Promise<void> {
  return follow(id, null, handlers);
}

async function follow(knownId: string, body: object | null, handlers: StreamHandlers): Promise<void> {
  let id = knownId;
  let last = -1;
  let wait = FIRST_WAIT_MS;
  for (;;) {
    try {
      const answer = id
        ? await send(`v1/responses/${id}?stream=true&starting_after=${last}`, { signal: handlers.signal })
        : await send("v1/responses", { method: "POST", body, signal: handlers.signal });
      handlers.onConnection(true);
      for await (const event of readResponseEvents(answer)) {
        if (event.sequence_number <= last) continue;
        id ||= event.response?.id ?? "";
        last = event.sequence_number;
        wait = FIRST_WAIT_MS;
        handlers.onEvent(event);
        if (TERMINAL_EVENTS.has(event.type)) return;
      }
    } catch (error) {
      if (handlers.signal.aborted) return;
      const isRefused = error instanceof APIError && !PASSING_STATUSES.has(error.status);
      if (isRefused || !id) throw error;
    }
    handlers.onConnection(false);
    await pause(wait, handlers.signal);
    if (handlers.signal.aborted) return;
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }
}

async function* readResponseEvents(answer: Response): AsyncGenerator<ResponseEvent> {
  if (!answer.body) return;
  for await (const { data } of readEvents(answer.body)) {
    if (data === "[DONE]") return;
    yield JSON.parse(data) as ResponseEvent;
  }
}

function pause(milliseconds: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

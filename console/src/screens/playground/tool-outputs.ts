/**
 * What tools returned to the calls of an exchange that is no text. Responses only name it; the trace of the run has it.
 * A trace may be large, so it is read once, after the response has ended, and only if a call names such a part.
 */
import { useEffect, useState } from "preact/hooks";
import { APIError, fetchJSON } from "../../api/client";
import { isFinished } from "../../api/types";
import { namesParts, readToolParts, stemOf, type ToolPart } from "../../components/tool-parts";
import type { Trace } from "../runs/run-types";
import type { Exchange } from "./conversation";
import type { ResponseState } from "./response-state";

/** The parts of each output, by the stem of the ids of its call. */
export type ToolOutputs = ReadonlyMap<string, readonly ToolPart[]>;

const NONE: ToolOutputs = new Map();
const reads = new WeakMap<Exchange, Promise<ToolOutputs>>();

export function useToolOutputs(exchange: Exchange): ToolOutputs {
  const [outputs, setOutputs] = useState(NONE);
  const state = exchange.state.value;
  const isNeeded = isFinished(state.status) && hasMarkers(state);
  useEffect(() => {
    if (!isNeeded) return undefined;
    let isShown = true;
    readOnce(exchange, state.id).then(
      (found) => isShown && setOutputs(found),
      // The call still names its parts, and the next view of the exchange tries again.
      () => undefined,
    );
    return () => void (isShown = false);
  }, [exchange, state.id, isNeeded]);
  return outputs;
}

function hasMarkers(state: ResponseState): boolean {
  return state.id !== "" && state.items.some((item) => item.type === "mcp_call" && namesParts(item.output));
}

function readOnce(exchange: Exchange, id: string): Promise<ToolOutputs> {
  const begun = reads.get(exchange) ?? readOutputs(id);
  reads.set(exchange, begun);
  begun.catch(() => reads.delete(exchange));
  return begun;
}

async function readOutputs(id: string): Promise<ToolOutputs> {
  try {
    const { items } = await fetchJSON<Trace>(`v1/runs/${encodeURIComponent(id)}/trace`);
    const outputs = items.filter((item) => item.type === "function_call_output");
    return new Map(outputs.map((item) => [stemOf(item.id ?? ""), readToolParts(item.content)]));
  } catch (error) {
    // It is not stored any more, or was stored by a version without traces.
    if (error instanceof APIError && error.status === 404) return NONE;
    throw error;
  }
}

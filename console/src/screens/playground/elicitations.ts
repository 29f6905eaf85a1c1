/** The questions of MCP servers that wait for the person while a response runs. */
import { useCallback, useMemo, useState } from "preact/hooks";
import { APIError, fetchJSON } from "../../api/client";
import type { Elicitation, List } from "../../api/types";
import { isFinished } from "../../api/types";
import { usePolling } from "../../components/polling";
import type { Action } from "../../components/question-form";
import type { ResponseState } from "./response-state";

const POLL_MS = 1_000;

export interface Answer {
  action: Action;
  content?: Record<string, unknown>;
}

export interface OpenElicitations {
  questions: readonly Elicitation[];
  /** Answer one. Throws where the gateway refuses the answer, and the question stays open. */
  answer: (question: Elicitation, answer: Answer) => Promise<void>;
}

const NONE: readonly Elicitation[] = [];

/** The open questions of a response, which are read again and again while one of its calls runs. */
export function useElicitations(state: ResponseState): OpenElicitations {
  const { id } = state;
  const [found, setFound] = useState<readonly Elicitation[]>(NONE);
  const [answered, setAnswered] = useState<ReadonlySet<string>>(new Set());
  const isLive = id !== "" && hasRunningCall(state);
  const path = `v1/responses/${encodeURIComponent(id)}/elicitations`;

  const read = useCallback(async () => {
    try {
      const listed = await fetchJSON<List<Elicitation>>(path);
      // The same objects while nothing has changed: forms are not built anew.
      setFound((before) => (isSame(before, listed.data) ? before : listed.data));
    } catch (error) {
      // It is asked again in a moment; a response that is not there has no questions.
      if (error instanceof APIError) setFound(NONE);
    }
  }, [path]);
  usePolling(read, isLive, POLL_MS);

  const answer = useCallback(
    async (question: Elicitation, given: Answer) => {
      try {
        await fetchJSON(`${path}/${encodeURIComponent(question.id)}`, { method: "POST", body: given });
      } catch (error) {
        // Answered elsewhere, or its call waits no longer: there is nothing left to answer.
        if (!(error instanceof APIError) || ![404, 409].includes(error.status)) throw error;
      }
      setAnswered((before) => new Set(before).add(question.id));
    },
    [path],
  );
  const questions = useMemo(
    () => (isLive ? found.filter((each) => !answered.has(each.id)) : NONE),
    [isLive, found, answered],
  );
  return { questions, answer };
}

/** Whether a server may be working on a call of the response. */
export function hasRunningCall(state: ResponseState): boolean {
  if (isFinished(state.status)) return false;
  const outputs = new Set(state.items.map((item) => (item.type === "function_call_output" ? item.call_id : "")));
  return state.items.some((item) => {
    if (item.type === "mcp_call") return item.status === "in_progress";
    return item.type === "function_call" && !outputs.has(item.call_id);
  });
}

function isSame(before: readonly Elicitation[], now: readonly Elicitation[]): boolean {
  return before.length === now.length && before.every((each, index) => each.id === now[index]?.id);
}

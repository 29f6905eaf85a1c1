/** Calls that wait for a person: their whole arguments, as a difference where they edit, and two answers. */
import { useState } from "preact/hooks";
import type { ApprovalRequestItem, ApprovalResponseItem } from "../../api/types";
import { findEdits } from "../../components/compare-lines";
import { Difference } from "../../components/difference";
import { indentJSON } from "../../components/format";

interface ApprovalsProps {
  requests: readonly ApprovalRequestItem[];
  /** Called once all of them are decided. None: they were answered, or the conversation went on without them. */
  onDecide: ((answers: ApprovalResponseItem[]) => void) | null;
  answers: readonly ApprovalResponseItem[];
}

export function Approvals({ requests, onDecide, answers }: ApprovalsProps) {
  const [decided, setDecided] = useState<readonly ApprovalResponseItem[]>([]);
  const decide = (request: ApprovalRequestItem, approve: boolean) => {
    const answer: ApprovalResponseItem = {
      type: "mcp_approval_response",
      approval_request_id: request.id,
      approve,
    };
    const all = [...decided.filter((each) => each.approval_request_id !== request.id), answer];
    setDecided(all);
    if (all.length === requests.length) onDecide?.(all);
  };
  return (
    <>
      {requests.map((request) => {
        const answer = [...answers, ...decided].find((each) => each.approval_request_id === request.id);
        return (
          <ApprovalView
            key={request.id}
            request={request}
            answer={answer?.approve}
            onDecide={onDecide && !answer ? (approve) => decide(request, approve) : null}
          />
        );
      })}
    </>
  );
}

interface ApprovalViewProps {
  request: ApprovalRequestItem;
  answer: boolean | undefined;
  onDecide: ((approve: boolean) => void) | null;
}

function ApprovalView({ request, answer, onDecide }: ApprovalViewProps) {
  const { edits, rest } = findEdits(request.arguments);
  const said = answer === undefined ? (onDecide ? "" : "Not answered") : answer ? "Approved" : "Denied";
  return (
    <section
      class={`approval ${onDecide ? "open" : ""}`}
      aria-label={`Approval of ${request.server_label}.${request.name}`}
    >
      <p class="approval-title">
        {onDecide ? "May this call run? " : ""}
        <span class="call-server">{request.server_label}</span> <code>{request.name}</code>
        {said && <span class={`badge ${answer ? "good" : "neutral"}`}>{said}</span>}
      </p>
      {edits.length === 0 ? (
        <pre>{indentJSON(request.arguments)}</pre>
      ) : (
        <>
          {Object.entries(rest).map(([name, value]) => (
            <p key={name} class="argument">
              {name}: <code>{typeof value === "string" ? value : JSON.stringify(value)}</code>
            </p>
          ))}
          {edits.map((edit, index) => (
            <Difference key={index} before={edit.before} after={edit.after} />
          ))}
          <details>
            <summary>As JSON</summary>
            <pre>{indentJSON(request.arguments)}</pre>
          </details>
        </>
      )}
      {onDecide && (
        <p class="approval-buttons">
          <button type="button" class="primary" onClick={() => onDecide(true)}>
            Approve
          </button>
          <button type="button" onClick={() => onDecide(false)}>
            Deny
          </button>
          <span class="hint">For this call, once.</span>
        </p>
      )}
    </section>
  );
}

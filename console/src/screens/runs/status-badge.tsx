import type { Status } from "../../api/types";

const TONES: Record<Status, string> = {
  queued: "neutral",
  in_progress: "neutral",
  completed: "good",
  requires_action: "warn",
  incomplete: "warn",
  failed: "bad",
  cancelled: "neutral",
};

/** `in_progress` as people say it. */
export function nameStatus(status: Status): string {
  return status.replace("_", " ");
}

export function StatusBadge({ status }: { status: Status }) {
  return <span class={`badge ${TONES[status]}`}>{nameStatus(status)}</span>;
}

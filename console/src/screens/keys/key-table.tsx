/** The callers that have a key. */
import type { KeyAction } from "./key-dialogs";
import { describeLimits, describeScope, type CallerKey, type KeyPage } from "./key-types";

/** What can be done with a key of the store. */
export interface KeyTableActions {
  onAction: (action: KeyAction) => void;
  onEdit: (key: CallerKey) => void;
  onPause: (key: CallerKey) => void;
}

interface KeyTableProps extends KeyTableActions {
  keys: readonly CallerKey[];
  manages: KeyPage["manages"];
  /** Whether only some of the keys were asked for. */
  hasSearch: boolean;
}

export function KeyTable({ keys, manages, hasSearch, onAction, onEdit, onPause }: KeyTableProps) {
  if (keys.length === 0 && hasSearch) return <p class="hint">No key has this in its name.</p>;
  if (keys.length === 0 && manages === "own") {
    return (
      <div class="empty">
        <h2>You have no keys yet</h2>
        <p>A key is for your own programs. It may use what your group may, and counts for your budget.</p>
      </div>
    );
  }
  if (keys.length === 0) {
    return (
      <div class="empty">
        <h2>This gateway has no keys</h2>
        <p>
          Everything on its machine may use it, and nothing elsewhere. Make the first key at its terminal:{" "}
          <code>holodeck keys create ops --role operator -f gateway.yaml</code>
        </p>
      </div>
    );
  }
  return (
    <table class="plain-table stacked key-table">
      <thead>
        <tr>
          <th>Caller</th>
          <th>May use</th>
          <th>Limits</th>
          <th>Last used</th>
          <th>
            <span class="visually-hidden">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.name}>
            <td>
              {key.name} {key.role && <span class="badge warn">{key.role}</span>}{" "}
              {key.group && <span class="badge">{key.group}</span>}{" "}
              {key.paused && <span class="badge error">paused</span>}
              {listNotes(key).map((note) => (
                <span key={note} class="hint line expiry">
                  {note}
                </span>
              ))}
            </td>
            <td data-label="may use">{describeScope(key.allow)}</td>
            <td data-label="limits">{describeLimits(key)}</td>
            <td data-label="last used">{key.last_used_at ? formatTime(key.last_used_at * 1000) : "never"}</td>
            <td>
              {key.source === "file" ? (
                <span class="hint">in the file of the gateway</span>
              ) : manages === null || (manages === "group" && key.role) ? null : (
                <KeyActions keyOfRow={key} onAction={onAction} onEdit={onEdit} onPause={onPause} />
              )}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function KeyActions({ keyOfRow: key, onAction, onEdit, onPause }: KeyTableActions & { keyOfRow: CallerKey }) {
  const pause = key.paused ? "Resume" : "Pause";
  return (
    <div class="row-actions">
      <button type="button" aria-label={`Edit ${key.name}`} onClick={() => onEdit(key)}>
        Edit
      </button>
      <button type="button" aria-label={`${pause} ${key.name}`} onClick={() => onPause(key)}>
        {pause}
      </button>
      <button type="button" aria-label={`Rotate ${key.name}`} onClick={() => onAction({ kind: "rotate", key })}>
        Rotate
      </button>
      <button type="button" aria-label={`Revoke ${key.name}`} onClick={() => onAction({ kind: "revoke", key })}>
        Revoke
      </button>
    </div>
  );
}

/** What is to be known of a key beside its settings, in short lines. */
function listNotes(key: CallerKey): string[] {
  const notes: string[] = [];
  if (key.expires) {
    const hasExpired = new Date(key.expires).getTime() <= Date.now();
    notes.push(`${hasExpired ? "expired" : "expires"} ${formatText(key.expires)}`);
  }
  if (key.old_hash_expires) notes.push(`the key before is accepted until ${formatText(key.old_hash_expires)}`);
  if (key.made_at) notes.push(`made ${formatTime(key.made_at * 1000)} by ${key.made_by?.replace(/#.*/, "") ?? ""}`);
  return notes;
}

function formatText(text: string): string {
  const at = new Date(text).getTime();
  return Number.isNaN(at) ? text : formatTime(at);
}

function formatTime(at: number): string {
  return new Date(at).toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

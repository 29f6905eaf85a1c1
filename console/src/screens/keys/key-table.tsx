/** The callers that have a key. */
import type { KeyAction } from "./key-dialogs";
import { describeLimits, describeScope, type CallerKey } from "./key-types";

interface KeyTableProps {
  keys: readonly CallerKey[];
  onAction: (action: KeyAction) => void;
  onEdit: (key: CallerKey) => void;
}

export function KeyTable({ keys, onAction, onEdit }: KeyTableProps) {
  if (keys.length === 0) {
    return (
      <div class="empty">
        <h2>This gateway has no keys</h2>
        <p>
          Everything on its machine may use it, and nothing elsewhere. Make the first key at its terminal:{" "}
          <code>holodeck keys create ops --admin -f gateway.yaml</code>
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
          <th>
            <span class="visually-hidden">Actions</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {keys.map((key) => (
          <tr key={key.name}>
            <td>
              {key.name} {key.admin && <span class="badge warn">operator</span>}
              {key.old_hash_expires && (
                <span class="hint line expiry">
                  the key before is accepted until {formatExpiry(key.old_hash_expires)}
                </span>
              )}
            </td>
            <td data-label="may use">{describeScope(key.allow)}</td>
            <td data-label="limits">{describeLimits(key)}</td>
            <td>
              <div class="row-actions">
                <button type="button" aria-label={`Edit ${key.name}`} onClick={() => onEdit(key)}>
                  Edit
                </button>
                <button
                  type="button"
                  aria-label={`Rotate ${key.name}`}
                  onClick={() => onAction({ kind: "rotate", key })}
                >
                  Rotate
                </button>
                <button
                  type="button"
                  aria-label={`Revoke ${key.name}`}
                  onClick={() => onAction({ kind: "revoke", key })}
                >
                  Revoke
                </button>
              </div>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function formatExpiry(text: string): string {
  const at = new Date(text);
  return Number.isNaN(at.getTime()) ? text : at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" });
}

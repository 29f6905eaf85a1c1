/** Asks before a key is replaced or revoked. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { CallerKey } from "./key-types";

export interface KeyAction {
  kind: "rotate" | "revoke";
  key: CallerKey;
}

const GRACES: readonly [number, string][] = [
  [0, "is refused at once"],
  [3_600, "is accepted for 1 hour"],
  [86_400, "is accepted for 1 day"],
  [604_800, "is accepted for 7 days"],
];

interface KeyDialogsProps {
  action: KeyAction | null;
  onConfirm: (action: KeyAction, graceSeconds: number) => void;
  onCancel: () => void;
}

export function KeyDialogs({ action, onConfirm, onCancel }: KeyDialogsProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const cancel = useRef<HTMLButtonElement>(null);
  const [grace, setGrace] = useState(86_400);
  useEffect(() => {
    if (action) dialog.current?.showModal();
    else dialog.current?.close();
    // A revoked key does not come back: Enter alone, pressed once too often, must not do it.
    if (action?.kind === "revoke") cancel.current?.focus();
  }, [action]);
  const name = action?.key.name ?? "";
  const isRevoke = action?.kind === "revoke";
  return (
    <dialog ref={dialog} aria-labelledby="key-action-title" onClose={onCancel}>
      <h2 id="key-action-title">{isRevoke ? `Revoke the key of ${name}?` : `Give ${name} a new key?`}</h2>
      {isRevoke ? (
        <p>Requests with it are refused from now on. What the caller has stored stays.</p>
      ) : (
        <label class="grace">
          The key before{" "}
          <select value={grace} onChange={(event) => setGrace(Number(event.currentTarget.value))}>
            {GRACES.map(([seconds, label]) => (
              <option key={seconds} value={seconds}>
                {label}
              </option>
            ))}
          </select>
        </label>
      )}
      <p class="actions">
        <button type="button" class="primary" onClick={() => action && onConfirm(action, grace)}>
          {isRevoke ? "Revoke" : "Rotate"}
        </button>
        <button ref={cancel} type="button" onClick={onCancel}>
          Cancel
        </button>
      </p>
    </dialog>
  );
}

/** The keys of callers, for operators: made, replaced and revoked in the gateway's file. */
import { useState } from "preact/hooks";
import { fetchJSON } from "../../api/client";
import type { List } from "../../api/types";
import { CopyButton } from "../../components/copy-button";
import { Failure } from "../../components/failure";
import { asError, useResource } from "../../components/resource";
import { KeyDialogs, type KeyAction } from "./key-dialogs";
import { KeyForm } from "./key-form";
import { KeyTable } from "./key-table";
import type { CallerKey, NewKey } from "./key-types";

export function KeysScreen() {
  const keys = useResource<List<CallerKey>>("v1/keys");
  const [isCreating, setIsCreating] = useState(false);
  const [made, setMade] = useState<NewKey | null>(null);
  const [action, setAction] = useState<KeyAction | null>(null);
  const [failure, setFailure] = useState("");

  /** Send a change. True: it was done. The reply with a key in it is shown. */
  const change = async (path: string, method: "POST" | "DELETE", body?: unknown): Promise<boolean> => {
    setFailure("");
    setMade(null);
    try {
      const reply = await fetchJSON<NewKey | { key?: undefined }>(path, { method, ...(body ? { body } : {}) });
      if (reply.key) setMade(reply);
      return true;
    } catch (error) {
      setFailure(asError(error).message);
      return false;
    } finally {
      await keys.read();
    }
  };
  const create = async (body: Record<string, unknown>) => {
    if (await change("v1/keys", "POST", body)) setIsCreating(false);
  };
  const confirm = async (confirmed: KeyAction, graceSeconds: number) => {
    setAction(null);
    const { name } = confirmed.key;
    if (confirmed.kind === "revoke") await change(`v1/keys/${encodeURIComponent(name)}`, "DELETE");
    else await change("v1/keys/rotate", "POST", { name, grace_seconds: graceSeconds });
  };
  return (
    <div class="screen-padding keys-screen">
      <header class="server-head">
        <h1>Keys</h1>
        {keys.value && !isCreating && (
          <button type="button" class="primary" onClick={() => setIsCreating(true)}>
            Create a key
          </button>
        )}
      </header>
      {keys.error && <Failure error={keys.error} />}
      {!keys.value && !keys.error && <p class="hint">Loading…</p>}
      <div aria-live="polite">
        {failure && <p class="alert">{failure}</p>}
        {made && <MadeKey made={made} onClose={() => setMade(null)} />}
      </div>
      {isCreating && <KeyForm onCreate={create} onCancel={() => setIsCreating(false)} />}
      {keys.value && <KeyTable keys={keys.value.data} onAction={setAction} />}
      <KeyDialogs
        action={action}
        onConfirm={(confirmed, grace) => void confirm(confirmed, grace)}
        onCancel={() => setAction(null)}
      />
    </div>
  );
}

function MadeKey({ made, onClose }: { made: NewKey; onClose: () => void }) {
  return (
    <section class="made-key" aria-label="New key">
      <p>
        The key of <strong>{made.name}</strong>. It is shown now and never again: the gateway has only its hash.
      </p>
      <p class="made-key-line">
        <code>{made.key}</code> <CopyButton text={made.key} label="Copy key" />
        <button type="button" class="quiet" onClick={onClose}>
          Done
        </button>
      </p>
    </section>
  );
}

/** The keys of callers, for operators, leads of groups and people who have their own: made, changed, paused, replaced and revoked in the store of the gateways. */
import { useEffect, useRef, useState } from "preact/hooks";
import { APIError, fetchJSON } from "../../api/client";
import { CopyButton } from "../../components/copy-button";
import { Failure } from "../../components/failure";
import { asError, useResource } from "../../components/resource";
import { CallersPanel } from "./callers-panel";
import { KeyDialogs, type KeyAction } from "./key-dialogs";
import { KeyForm } from "./key-form";
import { buildPath, FIRST_PAGE, KeyPages } from "./key-pages";
import {
  findPlace,
  hasChanges,
  type CallerKey,
  type KeyBody,
  type KeyPage,
  type KeyProblem,
  type NewKey,
} from "./key-types";

/** What the form is open for: a new key, or the key of this name. */
type Editing = { kind: "new" } | { kind: "key"; key: CallerKey };

export function KeysScreen() {
  const [place, setPlace] = useState(FIRST_PAGE);
  const keys = useResource<KeyPage>(buildPath(place), place.text);
  const [editing, setEditing] = useState<Editing | null>(null);
  const [made, setMade] = useState<NewKey | null>(null);
  const [action, setAction] = useState<KeyAction | null>(null);
  const [failure, setFailure] = useState("");
  const [problem, setProblem] = useState<KeyProblem | null>(null);
  const [done, setDone] = useState("");
  const create = useRef<HTMLButtonElement>(null);

  const clear = () => {
    setFailure("");
    setProblem(null);
    setDone("");
    setMade(null);
  };
  const open = (opened: Editing | null) => {
    clear();
    setEditing(opened);
  };

  /** Send a change, which may be that of the form. True: it was done. The reply with a key in it is shown. */
  const change = async (
    path: string,
    { method = "POST", body, form }: { method?: "POST" | "DELETE"; body?: unknown; form?: Editing | null },
  ): Promise<boolean> => {
    clear();
    try {
      const reply = await fetchJSON<NewKey | { key?: undefined }>(path, { method, ...(body ? { body } : {}) });
      if (reply.key) setMade(reply);
      return true;
    } catch (error) {
      const { message } = asError(error);
      const param = error instanceof APIError ? error.param : "";
      if (form && hasPlace(form, param)) setProblem({ param, message });
      else setFailure(message);
      return false;
    } finally {
      await keys.read();
    }
  };
  const save = async (body: KeyBody) => {
    if (editing?.kind === "new") {
      if (await change("v1/keys", { body, form: editing })) setEditing(null);
    } else if (!hasChanges(body)) {
      open(null);
    } else if (await change("v1/keys/update", { body, form: editing })) {
      setEditing(null);
      setDone(`${body.name} is changed, from its next request on.`);
    }
  };
  const pause = async (key: CallerKey) => {
    const body = { name: key.name, paused: !key.paused };
    if (await change("v1/keys/update", { body }))
      setDone(`${key.name} is ${body.paused ? "paused" : "accepted again"}.`);
  };
  const confirm = async (confirmed: KeyAction, graceSeconds: number) => {
    setAction(null);
    const { name } = confirmed.key;
    if (confirmed.kind === "revoke") await change(`v1/keys/${encodeURIComponent(name)}`, { method: "DELETE" });
    else await change("v1/keys/rotate", { body: { name, grace_seconds: graceSeconds } });
  };
  return (
    <div class="screen-padding keys-screen">
      <header class="server-head">
        <h1>Keys</h1>
        {keys.value?.manages && editing?.kind !== "new" && (
          <button ref={create} type="button" class="primary" onClick={() => open({ kind: "new" })}>
            Create a key
          </button>
        )}
      </header>
      {keys.error && <Failure error={keys.error} />}
      {!keys.value && !keys.error && <p class="hint">Loading…</p>}
      <div aria-live="polite">
        {failure && <p class="alert">{failure}</p>}
        {done && <p class="hint">{done}</p>}
        {made && <MadeKey key={made.key} made={made} onClose={() => (setMade(null), create.current?.focus())} />}
      </div>
      {editing && (
        <KeyForm
          key={editing.kind === "key" ? `key ${editing.key.name}` : "new"}
          edited={editing.kind === "key" ? editing.key : null}
          hasRoles={keys.value?.manages === "all"}
          problem={problem}
          onSubmit={save}
          onCancel={() => open(null)}
        />
      )}
      {keys.value && (
        <KeyPages
          page={keys.value}
          place={place}
          onTurn={setPlace}
          onAction={setAction}
          onEdit={(key) => open({ kind: "key", key })}
          onPause={(key) => void pause(key)}
        />
      )}
      {keys.value?.manages === "all" && <CallersPanel />}
      <KeyDialogs
        action={action}
        onConfirm={(confirmed, grace) => void confirm(confirmed, grace)}
        onCancel={() => setAction(null)}
      />
    </div>
  );
}

/** Whether a form has a field for what was refused. That of an existing key has no name to enter. */
function hasPlace(form: Editing, param: string): boolean {
  const place = findPlace(param);
  return place !== "" && !(form.kind === "key" && place === "name");
}

/** A key that was made just now. It takes the focus, since the form or the dialog that had it is gone. */
function MadeKey({ made, onClose }: { made: NewKey; onClose: () => void }) {
  const box = useRef<HTMLElement>(null);
  useEffect(() => box.current?.focus(), []);
  return (
    <section ref={box} class="made-key" aria-label="New key" tabIndex={-1}>
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

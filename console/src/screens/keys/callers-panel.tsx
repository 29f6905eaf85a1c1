/** Callers of every kind, for operators: paused and accepted again, exported, erased after a question. */
import { useEffect, useRef, useState } from "preact/hooks";
import { fetchJSON, send } from "../../api/client";
import type { Caller } from "../../api/schema";
import type { List } from "../../api/types";
import { Failure } from "../../components/failure";
import { asError, useResource } from "../../components/resource";
import { fileNameOf, saveFile } from "../../components/save-file";

const PAGE_CALLERS = "50";

export function CallersPanel() {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>Callers: pause, export and erase</summary>
      {isOpen && <CallerList />}
    </details>
  );
}

function CallerList() {
  const [text, setText] = useState("");
  const query = new URLSearchParams({ limit: PAGE_CALLERS, ...(text ? { text } : {}) });
  const callers = useResource<List<Caller>>(`v1/callers?${query.toString()}`, text);
  const [message, setMessage] = useState("");
  const [erased, setErased] = useState<Caller | null>(null);

  const act = async (work: () => Promise<string>) => {
    setMessage("");
    try {
      setMessage(await work());
    } catch (error) {
      setMessage(asError(error).message);
    } finally {
      await callers.read();
    }
  };
  const pause = (caller: Caller) =>
    act(async () => {
      await fetchJSON(pathOf(caller, caller.paused ? "/resume" : "/pause"), { method: "POST", body: {} });
      return `${caller.id} is ${caller.paused ? "accepted again" : "paused"}.`;
    });
  const save = (caller: Caller) =>
    act(async () => {
      const answer = await send(pathOf(caller, "/export"));
      saveFile(await answer.blob(), `${fileNameOf(caller.id, "caller")}.jsonl`);
      return `What is stored of ${caller.id} is exported.`;
    });
  const erase = (caller: Caller) =>
    act(async () => {
      setErased(null);
      const { erasing } = await fetchJSON<Caller>(pathOf(caller), { method: "DELETE" });
      return erasing ? `${caller.id} is being erased.` : `${caller.id} is erased.`;
    });
  return (
    <>
      <label class="key-search">
        Search callers
        <input type="search" value={text} spellcheck={false} onInput={(event) => setText(event.currentTarget.value)} />
      </label>
      {callers.error && <Failure error={callers.error} />}
      <p class="hint" aria-live="polite">
        {message}
      </p>
      {callers.value?.data.length === 0 && <p class="hint">No caller has used this gateway.</p>}
      {callers.value?.has_more && <p class="hint">There are more: search for a part of an id.</p>}
      <table class="plain-table stacked">
        <tbody>
          {callers.value?.data.map((caller) => (
            <tr key={caller.id}>
              <td>
                {caller.id} {caller.paused && <span class="badge error">paused</span>}
                {caller.erasing && <span class="badge error">being erased</span>}
              </td>
              <td>
                <CallerActions caller={caller} onPause={pause} onSave={save} onErase={setErased} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <EraseDialog caller={erased} onConfirm={(caller) => void erase(caller)} onCancel={() => setErased(null)} />
    </>
  );
}

interface CallerActionsProps {
  caller: Caller;
  onPause: (caller: Caller) => Promise<void>;
  onSave: (caller: Caller) => Promise<void>;
  onErase: (caller: Caller) => void;
}

function CallerActions({ caller, onPause, onSave, onErase }: CallerActionsProps) {
  const pause = caller.paused ? "Resume" : "Pause";
  return (
    <div class="row-actions">
      <button type="button" aria-label={`${pause} the caller ${caller.id}`} onClick={() => void onPause(caller)}>
        {pause}
      </button>
      <button type="button" aria-label={`Export ${caller.id}`} onClick={() => void onSave(caller)}>
        Export
      </button>
      <button type="button" aria-label={`Erase ${caller.id}`} onClick={() => onErase(caller)}>
        Erase
      </button>
    </div>
  );
}

interface EraseDialogProps {
  caller: Caller | null;
  onConfirm: (caller: Caller) => void;
  onCancel: () => void;
}

/** The question before what a caller has stored is deleted. The focus is on the way out of it. */
function EraseDialog({ caller, onConfirm, onCancel }: EraseDialogProps) {
  const dialog = useRef<HTMLDialogElement>(null);
  const cancel = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (caller) dialog.current?.showModal();
    else dialog.current?.close();
    if (caller) cancel.current?.focus();
  }, [caller]);
  return (
    <dialog ref={dialog} aria-labelledby="erase-title" onClose={onCancel}>
      <h2 id="erase-title">Erase {caller?.id}?</h2>
      <p>
        What runs for it is cancelled, and its responses, conversations, runs, sessions and logins are deleted for good.
        Its keys stay.
      </p>
      <p class="actions">
        <button type="button" class="primary" onClick={() => caller && onConfirm(caller)}>
          Erase
        </button>
        <button ref={cancel} type="button" onClick={onCancel}>
          Cancel
        </button>
      </p>
    </dialog>
  );
}

function pathOf(caller: Caller, action = ""): string {
  return `v1/callers/${encodeURIComponent(caller.id)}${action}`;
}

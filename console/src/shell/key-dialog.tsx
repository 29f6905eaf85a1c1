/** Asks for a key when the gateway refuses to answer without one. */
import { useEffect, useRef } from "preact/hooks";
import { urlOf } from "../api/client";
import { isKeyNeeded, key, loginPath, storeKey } from "../api/key";

/** The address of the login, which comes back to the place in the console that is shown now. */
function buildLoginURL(): string {
  const url = new URL(urlOf(loginPath.value));
  if (location.hash) url.searchParams.set("next", location.hash);
  return url.href;
}

export function KeyDialog() {
  const dialog = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  const isShown = isKeyNeeded.value;

  useEffect(() => {
    // No key stays in the field for whoever is there next.
    if (input.current) input.current.value = "";
    if (isShown && !dialog.current?.open) dialog.current?.showModal();
    if (!isShown) dialog.current?.close();
  }, [isShown]);
  // A browser closes a dialog at the second Escape, whatever the page says to the first.
  const stayOpen = () => {
    if (isKeyNeeded.peek()) dialog.current?.showModal();
  };

  const submit = (event: SubmitEvent) => {
    event.preventDefault();
    const entered = input.current?.value.trim() ?? "";
    if (entered) storeKey(entered);
  };

  return (
    <dialog
      ref={dialog}
      class="key-dialog"
      aria-labelledby="key-title"
      onCancel={(event) => event.preventDefault()}
      onClose={stayOpen}
    >
      <form onSubmit={submit}>
        <h2 id="key-title">{loginPath.value ? "Log in, or use a key" : "A key, please"}</h2>
        {loginPath.value && (
          <p>
            <button type="button" class="primary" onClick={() => location.assign(buildLoginURL())}>
              Log in
            </button>
          </p>
        )}
        <p>
          {isShown && key.value
            ? "The gateway does not accept the key of this tab. Enter another one."
            : "This gateway answers to callers with a key. It stays in this tab, and is sent to this gateway only."}
        </p>
        <label>
          Key
          <input ref={input} type="password" autocomplete="off" spellcheck={false} required />
        </label>
        <p class="hint">
          An operator makes one with <code>holodeck keys create NAME</code>.
        </p>
        <button type="submit" class="primary">
          Use this key
        </button>
      </form>
    </dialog>
  );
}

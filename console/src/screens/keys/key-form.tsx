/** A form for a new key. What is wrong with it, the gateway says. */
import { useEffect, useRef, useState } from "preact/hooks";
import { buildBody, SCOPE_AREAS, type KeyDraft } from "./key-types";

const LIMITS: readonly [string, string][] = [
  ["requests_per_minute", "Requests per minute"],
  ["tokens_per_minute", "Tokens per minute"],
  ["in_flight", "Requests at once"],
  ["background", "Background responses"],
  ["sockets", "WebSockets"],
];
const EXAMPLES = { models: "small-*", agents: "helper", servers: "files", tools: "files.read_*" };
const PERIODS = ["hour", "day", "week", "month"];
const EMPTY: KeyDraft = { name: "", isOperator: false, scope: {}, limits: {}, amount: "", period: "month" };

interface KeyFormProps {
  onCreate: (body: Record<string, unknown>) => Promise<void>;
  onCancel: () => void;
}

export function KeyForm({ onCreate, onCancel }: KeyFormProps) {
  const [draft, setDraft] = useState(EMPTY);
  const name = useRef<HTMLInputElement>(null);
  useEffect(() => name.current?.focus(), []);
  const [isSending, setIsSending] = useState(false);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    setIsSending(true);
    await onCreate(buildBody(draft));
    setIsSending(false);
  };
  return (
    <form class="key-form" aria-label="Create a key" onSubmit={(event) => void submit(event)}>
      <label class="key-name">
        Name of the caller
        <input
          ref={name}
          required
          autocomplete="off"
          value={draft.name}
          onInput={(event) => setDraft({ ...draft, name: event.currentTarget.value })}
        />
      </label>
      <label class="check">
        <input
          type="checkbox"
          checked={draft.isOperator}
          onChange={(event) => setDraft({ ...draft, isOperator: event.currentTarget.checked })}
        />
        Operator: may see and change everything on these screens
      </label>
      <fieldset>
        <legend>May use (empty: everything; globs; ! in front denies)</legend>
        {SCOPE_AREAS.map((area) => (
          <label key={area}>
            {`${area.charAt(0).toUpperCase()}${area.slice(1)}`}
            <input
              placeholder={EXAMPLES[area]}
              spellcheck={false}
              value={draft.scope[area] ?? ""}
              onInput={(event) => setDraft({ ...draft, scope: { ...draft.scope, [area]: event.currentTarget.value } })}
            />
          </label>
        ))}
      </fieldset>
      <fieldset>
        <legend>Limits (empty: those for all)</legend>
        {LIMITS.map(([name, label]) => (
          <label key={name}>
            {label}
            <input
              inputMode="numeric"
              value={draft.limits[name] ?? ""}
              onInput={(event) =>
                setDraft({ ...draft, limits: { ...draft.limits, [name]: event.currentTarget.value } })
              }
            />
          </label>
        ))}
      </fieldset>
      <fieldset>
        <legend>Budget (empty: that for all)</legend>
        <label>
          Amount
          <input
            inputMode="decimal"
            value={draft.amount}
            onInput={(event) => setDraft({ ...draft, amount: event.currentTarget.value })}
          />
        </label>
        <label>
          In each
          <select value={draft.period} onChange={(event) => setDraft({ ...draft, period: event.currentTarget.value })}>
            {PERIODS.map((each) => (
              <option key={each}>{each}</option>
            ))}
          </select>
        </label>
      </fieldset>
      <p class="actions">
        <button type="submit" class="primary" disabled={isSending}>
          Create
        </button>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      </p>
    </form>
  );
}

/** A form for a new key, or for what an existing one may do. What is wrong with it, the gateway says. */
import type { ComponentChildren, RefObject } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import {
  buildBody,
  buildChanges,
  EMPTY_DRAFT,
  findPlace,
  readDraft,
  SCOPE_AREAS,
  type CallerKey,
  type KeyDraft,
  type KeyBody,
  type KeyProblem,
} from "./key-types";

const LIMITS: readonly [string, string][] = [
  ["requests_per_minute", "Requests per minute"],
  ["tokens_per_minute", "Tokens per minute"],
  ["in_flight", "Requests at once"],
  ["background", "Background responses"],
  ["sockets", "WebSockets"],
  ["mcp_streams", "Streams of MCP clients"],
];
const EXAMPLES = { models: "small-*", agents: "helper", servers: "files", tools: "files.read_*", prompts: "files.*" };
const ROLES: readonly [string, string][] = [
  ["", "None: makes its own requests"],
  ["viewer", "Viewer: sees usage, keys and metrics"],
  ["keys", "Keys: makes and changes the keys of its group"],
  ["metrics", "Metrics: reads /metrics, and nothing else"],
  ["operator", "Operator: sees and changes everything on these screens"],
];
const PERIODS = ["hour", "day", "week", "month"];

interface KeyFormProps {
  /** The key to be changed. Null: a new one is made. */
  edited: CallerKey | null;
  /** Whether roles and groups can be given, as operators do. */
  hasRoles: boolean;
  /** What the gateway has refused. */
  problem: KeyProblem | null;
  onSubmit: (body: KeyBody) => Promise<void>;
  onCancel: () => void;
}

export function KeyForm({ edited, hasRoles, problem, onSubmit, onCancel }: KeyFormProps) {
  const [draft, setDraft] = useState(() => (edited ? readDraft(edited) : EMPTY_DRAFT));
  const [isSending, setIsSending] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const first = useRef<HTMLInputElement>(null);
  const firstOfKey = useRef<HTMLSelectElement>(null);
  useEffect(() => {
    const opener = document.activeElement;
    (first.current ?? firstOfKey.current)?.focus();
    return () => {
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  useEffect(() => {
    if (problem) form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [problem]);
  const submit = async (event: SubmitEvent) => {
    event.preventDefault();
    setIsSending(true);
    await onSubmit(edited ? buildChanges(edited, draft) : buildBody(draft));
    setIsSending(false);
  };
  return (
    <form
      ref={form}
      class="key-form"
      aria-label={edited ? `Edit ${edited.name}` : "Create a key"}
      onSubmit={(event) => void submit(event)}
    >
      {edited && <h2>Edit {edited.name}</h2>}
      <div class="fields">
        {!edited && (
          <TextField
            label="Name of the caller"
            place="name"
            problem={problem}
            value={draft.name}
            onInput={(name) => setDraft({ ...draft, name })}
            inputRef={first}
            isRequired
          />
        )}
        {hasRoles && (
          <>
            <RoleField
              role={draft.role}
              onChange={(role) => setDraft({ ...draft, role })}
              problem={problem}
              inputRef={edited ? firstOfKey : null}
            />
            <TextField
              label="Group"
              place="group"
              problem={problem}
              value={draft.group}
              onInput={(group) => setDraft({ ...draft, group })}
            />
          </>
        )}
        <TextField
          label={hasRoles ? "Expires (empty: never)" : "Expires"}
          place="expires"
          problem={problem}
          value={draft.expires}
          onInput={(expires) => setDraft({ ...draft, expires })}
          type="datetime-local"
          {...(edited && !hasRoles ? { inputRef: first } : {})}
        />
      </div>
      <Group legend="May use (empty: everything; globs; ! in front denies)" place="allow" problem={problem}>
        {SCOPE_AREAS.map((area) => (
          <TextField
            key={area}
            label={`${area.charAt(0).toUpperCase()}${area.slice(1)}`}
            place={`allow.${area}`}
            problem={problem}
            value={draft.scope[area] ?? ""}
            onInput={(text) => setDraft({ ...draft, scope: { ...draft.scope, [area]: text } })}
            placeholder={EXAMPLES[area]}
          />
        ))}
      </Group>
      <Group legend="Limits (empty: those for all)" place="limits" problem={problem}>
        {LIMITS.map(([name, label]) => (
          <TextField
            key={name}
            label={label}
            place={`limits.${name}`}
            problem={problem}
            value={draft.limits[name] ?? ""}
            onInput={(text) => setDraft({ ...draft, limits: { ...draft.limits, [name]: text } })}
            inputMode="numeric"
          />
        ))}
      </Group>
      <BudgetGroup draft={draft} onChange={setDraft} problem={problem} />
      <p class="actions">
        <button type="submit" class="primary" disabled={isSending}>
          {edited ? "Save" : "Create"}
        </button>
        <button type="button" onClick={onCancel}>
          Cancel
        </button>
      </p>
    </form>
  );
}

interface PlaceProps {
  /** Where problems of this part of the form belong: the path of its field in the body. */
  place: string;
  problem: KeyProblem | null;
}

interface TextFieldProps extends PlaceProps {
  label: string;
  value: string;
  onInput: (text: string) => void;
  inputMode?: "numeric" | "decimal";
  type?: "datetime-local";
  placeholder?: string;
  inputRef?: RefObject<HTMLInputElement | null>;
  isRequired?: boolean;
}

function TextField({ label, place, problem, value, onInput, inputRef, isRequired, ...shown }: TextFieldProps) {
  const id = useId();
  const text = findText(place, problem);
  return (
    <div class="key-field">
      <label for={id}>{label}</label>
      <input
        {...shown}
        {...(inputRef ? { ref: inputRef } : {})}
        {...describe(id, text)}
        id={id}
        required={isRequired ?? false}
        autocomplete="off"
        spellcheck={false}
        value={value}
        onInput={(event) => onInput(event.currentTarget.value)}
      />
      <ProblemText id={id} text={text} />
    </div>
  );
}

interface RoleFieldProps {
  role: string;
  onChange: (role: string) => void;
  problem: KeyProblem | null;
  inputRef: RefObject<HTMLSelectElement | null> | null;
}

function RoleField({ role, onChange, problem, inputRef }: RoleFieldProps) {
  const id = useId();
  const text = findText("role", problem);
  return (
    <div class="key-field">
      <label for={id}>Role</label>
      <select
        {...(inputRef ? { ref: inputRef } : {})}
        {...describe(id, text)}
        id={id}
        value={role}
        onChange={(event) => onChange(event.currentTarget.value)}
      >
        {ROLES.map(([value, label]) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
      <ProblemText id={id} text={text} />
    </div>
  );
}

interface BudgetGroupProps {
  draft: KeyDraft;
  onChange: (draft: KeyDraft) => void;
  problem: KeyProblem | null;
}

function BudgetGroup({ draft, onChange, problem }: BudgetGroupProps) {
  return (
    <Group legend="Budget (empty: that for all)" place="budget" problem={problem}>
      <TextField
        label="Amount"
        place="budget.amount"
        problem={problem}
        value={draft.amount}
        onInput={(amount) => onChange({ ...draft, amount })}
        inputMode="decimal"
      />
      <label>
        In each
        <select value={draft.period} onChange={(event) => onChange({ ...draft, period: event.currentTarget.value })}>
          {PERIODS.map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>
      </label>
    </Group>
  );
}

interface GroupProps extends PlaceProps {
  legend: string;
  children: ComponentChildren;
}

function Group({ legend, place, problem, children }: GroupProps) {
  const text = findText(place, problem);
  return (
    <fieldset>
      <legend>{legend}</legend>
      {children}
      {text && (
        <p class="problem" role="alert">
          {text}
        </p>
      )}
    </fieldset>
  );
}

function ProblemText({ id, text }: { id: string; text: string }) {
  if (!text) return null;
  return (
    <p id={`${id}-problem`} class="problem">
      {text}
    </p>
  );
}

/** The words of a problem that belongs to a place; empty for that of another one. */
function findText(place: string, problem: KeyProblem | null): string {
  return problem && findPlace(problem.param) === place ? problem.message : "";
}

function describe(id: string, text: string) {
  return text ? { "aria-invalid": true, "aria-describedby": `${id}-problem` } : {};
}

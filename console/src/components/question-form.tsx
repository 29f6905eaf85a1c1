/** What a call asks the person in its middle: an approval, values that the server wants, or a visit to a page. */
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { SchemaFields } from "./schema-fields";
import { buildFields, readForm, type Field, type Schema } from "./schema-form";
import { isWebURL } from "./web-url";

export interface Question {
  method?: string;
  params?: { mode?: string; message?: string; requestedSchema?: Schema; url?: string };
}

export type Action = "accept" | "decline" | "cancel";
export type Answers = Record<string, { action: Action; content?: Record<string, unknown> }>;

interface QuestionFormProps {
  questions: readonly [string, Question][];
  onAnswer: (answers: Answers) => void;
  /** The server that asks, where the page does not say it already. */
  server?: string;
  /** Whether the questions can also be put aside, which is neither yes nor no. */
  canCancel?: boolean;
  /** Why the last answer was refused. */
  failure?: string;
  isSending?: boolean;
  /** Whether the first field is focused, unless the person is typing elsewhere. */
  takesFocus?: boolean;
}

export function QuestionForm(props: QuestionFormProps) {
  const { questions, onAnswer, server = "", failure = "", isSending = false, takesFocus = false } = props;
  const [texts, setTexts] = useState<ReadonlyMap<string, string>>(new Map());
  const [problems, setProblems] = useState<ReadonlyMap<string, string>>(new Map());
  const form = useRef<HTMLFormElement>(null);
  const asked = useMemo(
    () => questions.map(([id, { params }]) => ({ id, params, fields: fieldsOf(params) })),
    [questions],
  );
  useEffect(() => {
    if (takesFocus && !isTyping()) focusFirst(form.current, "input, select, textarea, a, button");
  }, [takesFocus]);
  // Two questions may ask for values of the same name.
  const prefixed = (id: string, fields: readonly Field[]) =>
    fields.map((field) => ({ field, name: `${id} ${field.name}` }));

  const accept = () => {
    const answers: Answers = {};
    const wrong = new Map<string, string>();
    for (const { id, params, fields } of asked) {
      const own = new Map(
        prefixed(id, fields).flatMap(({ field, name }) =>
          texts.has(name) ? [[field.name, texts.get(name) ?? ""] as const] : [],
        ),
      );
      const filled = readForm(fields, own);
      for (const [name, problem] of filled.problems) wrong.set(`${id} ${name}`, problem);
      answers[id] = params?.mode === "url" ? { action: "accept" } : { action: "accept", content: filled.values };
    }
    setProblems(wrong);
    if (wrong.size === 0) onAnswer(answers);
    // After the fields are marked.
    else requestAnimationFrame(() => focusFirst(form.current, '[aria-invalid="true"]'));
  };
  const answerAll = (action: Action) => onAnswer(Object.fromEntries(asked.map(({ id }) => [id, { action }])));

  return (
    <form
      ref={form}
      class="question-form"
      aria-label={server ? `Server ${server} asks` : "The call asks"}
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        accept();
      }}
    >
      {server && (
        <p class="question-title">
          Server <strong>{server}</strong> asks
        </p>
      )}
      {asked.map(({ id, params, fields }) => (
        <div key={id}>
          <pre tabIndex={0}>{params?.message ?? "The server asks something without a text."}</pre>
          {params?.mode === "url" && <PageLink url={params.url ?? ""} />}
          <SchemaFields
            fields={fields}
            texts={new Map(prefixed(id, fields).flatMap(({ field, name }) => entryOf(texts, field.name, name)))}
            problems={new Map(prefixed(id, fields).flatMap(({ field, name }) => entryOf(problems, field.name, name)))}
            onChange={(name, text) => setTexts((before) => new Map(before).set(`${id} ${name}`, text))}
          />
        </div>
      ))}
      {failure && (
        <p class="alert" role="alert">
          {failure}
        </p>
      )}
      <p class="actions">
        <button type="submit" class="primary" disabled={isSending}>
          {asked.every(({ params }) => params?.mode === "url") ? "I have done it" : "Accept"}
        </button>
        <button type="button" disabled={isSending} onClick={() => answerAll("decline")}>
          Decline
        </button>
        {props.canCancel && (
          <button type="button" disabled={isSending} onClick={() => answerAll("cancel")}>
            Cancel
          </button>
        )}
      </p>
    </form>
  );
}

/** A page that the server wants the person to visit. Its host is shown: the words around it are the server's. */
function PageLink({ url }: { url: string }) {
  if (!isWebURL(url)) return <p class="hint">It wants you to open something that is no web page: {url}</p>;
  const page = new URL(url);
  return (
    <p class="argument">
      It wants you to open a page of <strong>{page.host}</strong>:{" "}
      <a href={page.href} target="_blank" rel="noopener noreferrer">
        {page.href}
      </a>
    </p>
  );
}

function fieldsOf(params: Question["params"]): Field[] {
  return params?.mode === "url" ? [] : buildFields(params?.requestedSchema ?? {});
}

function entryOf(all: ReadonlyMap<string, string>, field: string, name: string): [string, string][] {
  const found = all.get(name);
  return found === undefined ? [] : [[field, found]];
}

function focusFirst(form: HTMLFormElement | null, selector: string): void {
  form?.querySelector<HTMLElement>(selector)?.focus();
}

/** Whether the person is in the middle of a text. */
function isTyping(): boolean {
  const active = document.activeElement;
  if (active instanceof HTMLInputElement) return active.type !== "checkbox" && active.value !== "";
  return active instanceof HTMLTextAreaElement && active.value !== "";
}

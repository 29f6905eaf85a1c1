/** What a call asks the person in its middle: an approval, or values that the server wants. */
import { useMemo, useState } from "preact/hooks";
import type { Answers, Question } from "./mcp-client";
import { SchemaFields } from "./schema-fields";
import { buildFields, readForm, type Field } from "./schema-form";

interface QuestionFormProps {
  questions: readonly [string, Question][];
  onAnswer: (answers: Answers) => void;
}

export function QuestionForm({ questions, onAnswer }: QuestionFormProps) {
  const [texts, setTexts] = useState<ReadonlyMap<string, string>>(new Map());
  const [problems, setProblems] = useState<ReadonlyMap<string, string>>(new Map());
  const asked = useMemo(
    () => questions.map(([id, { params }]) => ({ id, params, fields: buildFields(params?.requestedSchema ?? {}) })),
    [questions],
  );
  // Two questions may ask for values of the same name.
  const prefixed = (id: string, fields: readonly Field[]) =>
    fields.map((field) => ({ field, name: `${id} ${field.name}` }));

  const accept = () => {
    const answers: Answers = {};
    const wrong = new Map<string, string>();
    for (const { id, fields } of asked) {
      const own = new Map(
        prefixed(id, fields).flatMap(({ field, name }) =>
          texts.has(name) ? [[field.name, texts.get(name) ?? ""] as const] : [],
        ),
      );
      const filled = readForm(fields, own);
      for (const [name, problem] of filled.problems) wrong.set(`${id} ${name}`, problem);
      answers[id] = { action: "accept", content: filled.values };
    }
    setProblems(wrong);
    if (wrong.size === 0) onAnswer(answers);
  };
  const decline = () => onAnswer(Object.fromEntries(asked.map(({ id }) => [id, { action: "decline" }])));

  return (
    <form
      class="question"
      aria-label="The call asks"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        accept();
      }}
    >
      {asked.map(({ id, params, fields }) => (
        <div key={id}>
          <pre tabIndex={0}>{params?.message ?? "The server asks something without a text."}</pre>
          <SchemaFields
            fields={fields}
            texts={new Map(prefixed(id, fields).flatMap(({ field, name }) => entryOf(texts, field.name, name)))}
            problems={new Map(prefixed(id, fields).flatMap(({ field, name }) => entryOf(problems, field.name, name)))}
            onChange={(name, text) => setTexts((before) => new Map(before).set(`${id} ${name}`, text))}
          />
        </div>
      ))}
      <p class="actions">
        <button type="submit" class="primary">
          Accept
        </button>
        <button type="button" onClick={decline}>
          Decline
        </button>
      </p>
    </form>
  );
}

function entryOf(all: ReadonlyMap<string, string>, field: string, name: string): [string, string][] {
  const found = all.get(name);
  return found === undefined ? [] : [[field, found]];
}

/** The fields of a form from JSON Schema. All words in it come from a server, and are text. */
import { useId } from "preact/hooks";
import type { Field } from "./schema-form";

interface SchemaFieldsProps {
  fields: readonly Field[];
  texts: ReadonlyMap<string, string>;
  problems: ReadonlyMap<string, string>;
  onChange: (name: string, text: string) => void;
}

export function SchemaFields({ fields, texts, problems, onChange }: SchemaFieldsProps) {
  return (
    <>
      {fields.map((field) => (
        <SchemaField
          key={field.name}
          field={field}
          text={texts.get(field.name) ?? field.initial}
          problem={problems.get(field.name) ?? ""}
          onChange={(text) => onChange(field.name, text)}
        />
      ))}
    </>
  );
}

interface SchemaFieldProps {
  field: Field;
  text: string;
  problem: string;
  onChange: (text: string) => void;
}

function SchemaField({ field, text, problem, onChange }: SchemaFieldProps) {
  const id = useId();
  const isWrong = problem !== "";
  const notes = (
    <>
      {field.hint && (
        <p id={`${id}-hint`} class="hint">
          {field.hint}
        </p>
      )}
      {problem && (
        <p id={`${id}-problem`} class="problem">
          {problem}
        </p>
      )}
    </>
  );
  if (field.kind === "choices") {
    return (
      <fieldset class="schema-field" {...describeBy(field, id, isWrong)}>
        <legend>
          <FieldName field={field} />
        </legend>
        <Checkboxes field={field} text={text} isWrong={isWrong} onChange={onChange} />
        {notes}
      </fieldset>
    );
  }
  return (
    <div class="schema-field">
      <label for={id}>
        <FieldName field={field} />
      </label>
      <Control field={field} text={text} id={id} isWrong={isWrong} onChange={onChange} />
      {notes}
    </div>
  );
}

/** The title, if there is one, and always the name that is sent: a title may say anything. */
function FieldName({ field }: { field: Field }) {
  return (
    <>
      {field.title && field.title !== field.name && `${field.title} `}
      <code>{field.name || "Arguments"}</code>
      {field.isRequired && <span class="hint"> needed</span>}
    </>
  );
}

function describeBy(field: Field, id: string, isWrong: boolean): { "aria-describedby"?: string } {
  const described = [field.hint ? `${id}-hint` : "", isWrong ? `${id}-problem` : ""].filter(Boolean).join(" ");
  return described ? { "aria-describedby": described } : {};
}

interface CheckboxesProps {
  field: Field;
  text: string;
  isWrong: boolean;
  onChange: (text: string) => void;
}

function Checkboxes({ field, text, isWrong, onChange }: CheckboxesProps) {
  const ticked = new Set((text === "" ? [] : (JSON.parse(text) as unknown[])).map((each) => JSON.stringify(each)));
  const tick = (value: string, isTicked: boolean) => {
    const values = field.choices.map((each) => each.value);
    const left = values.filter((each) => (each === value ? isTicked : ticked.has(each)));
    // None at all is no value, as in other fields; where one is needed, it is an empty list.
    onChange(left.length === 0 && !field.isRequired ? "" : `[${left.join(",")}]`);
  };
  return (
    <>
      {field.choices.map(({ value, label }) => (
        <label key={value} class="check">
          <input
            type="checkbox"
            aria-invalid={isWrong}
            checked={ticked.has(value)}
            onChange={(event) => tick(value, event.currentTarget.checked)}
          />
          {label}
        </label>
      ))}
    </>
  );
}

interface ControlProps {
  field: Field;
  text: string;
  id: string;
  isWrong: boolean;
  onChange: (text: string) => void;
}

function Control({ field, text, id, isWrong, onChange }: ControlProps) {
  const shared = {
    id,
    "aria-invalid": isWrong,
    "aria-required": field.isRequired,
    ...describeBy(field, id, isWrong),
  };
  if (field.kind === "choice" || field.kind === "boolean") {
    return (
      <select {...shared} value={text} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">not set</option>
        {field.choices.map(({ value, label }) => (
          <option key={value} value={value}>
            {label}
          </option>
        ))}
      </select>
    );
  }
  if (field.kind === "number") {
    return (
      <input
        {...shared}
        type="text"
        inputMode="decimal"
        value={text}
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    );
  }
  const typed = {
    ...shared,
    value: text,
    onInput: (event: { currentTarget: HTMLInputElement }) => onChange(event.currentTarget.value),
  };
  if (field.inputType === "email") return <input {...typed} type="email" />;
  if (field.inputType === "url") return <input {...typed} type="url" />;
  if (field.inputType === "date") return <input {...typed} type="date" />;
  // Without a step, a browser leaves the seconds out.
  if (field.inputType === "datetime-local") return <input {...typed} type="datetime-local" step={1} />;
  return (
    <textarea
      {...shared}
      class={field.kind === "json" ? "json" : ""}
      rows={field.kind === "json" ? 4 : Math.min(8, text.split("\n").length)}
      spellcheck={false}
      value={text}
      onInput={(event) => onChange(event.currentTarget.value)}
    />
  );
}

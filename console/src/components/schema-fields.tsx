/** The fields of a form from JSON Schema. All words in it come from a server, and are text. */
import { useId } from "preact/hooks";
import { listChoices, type Field } from "./schema-form";

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
  return (
    <div class="schema-field">
      <label for={id}>
        <code>{field.name || "Arguments"}</code>
        {field.isRequired && <span class="hint"> needed</span>}
      </label>
      <Control field={field} text={text} id={id} isWrong={problem !== ""} onChange={onChange} />
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
    </div>
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
  const described = [field.hint ? `${id}-hint` : "", isWrong ? `${id}-problem` : ""].filter(Boolean).join(" ");
  const shared = {
    id,
    "aria-invalid": isWrong,
    "aria-required": field.isRequired,
    ...(described ? { "aria-describedby": described } : {}),
  };
  if (field.kind === "choice" || field.kind === "boolean") {
    const choices =
      field.kind === "choice" ? listChoices(field.schema) : ["true", "false"].map((value) => ({ value, label: value }));
    return (
      <select {...shared} value={text} onChange={(event) => onChange(event.currentTarget.value)}>
        <option value="">not set</option>
        {choices.map(({ value, label }) => (
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

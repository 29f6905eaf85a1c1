/** A schema as a list of its fields. Schemas that it refers to are drawn when they are opened: they may be recursive. */
import { useState } from "preact/hooks";
import { InlineCode } from "../../components/inline-code";
import { describeType, findReferences, nameOf, type Document, type DocumentSchema } from "./openapi";

export function SchemaView({ document, schema }: { document: Document; schema: DocumentSchema }) {
  const name = nameOf(schema);
  const found = name ? document.components.schemas[name] : schema;
  if (!found) return null;
  const fields = Object.entries(found.properties ?? {});
  const required = new Set(found.required ?? []);
  return (
    <div class="schema-view">
      {found.description && (
        <p>
          <InlineCode text={found.description} />
        </p>
      )}
      {fields.length === 0 && <p class="hint">{describeType(found)}</p>}
      {fields.length > 0 && (
        <dl class="fields">
          {fields.map(([field, inner]) => (
            <div key={field}>
              <dt>
                <code>{field}</code> <span class="hint">{describeType(inner)}</span>
                {required.has(field) && <span class="badge neutral">required</span>}
              </dt>
              {inner.description && (
                <dd>
                  <InlineCode text={inner.description} />
                </dd>
              )}
            </div>
          ))}
        </dl>
      )}
      {findReferences(found).map((each) => (
        <NamedSchema key={each} name={each} document={document} />
      ))}
    </div>
  );
}

function NamedSchema({ name, document }: { name: string; document: Document }) {
  const [isOpen, setIsOpen] = useState(false);
  return (
    <details class="named-schema" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        <code>{name}</code>
      </summary>
      {isOpen && <SchemaView document={document} schema={{ $ref: `#/components/schemas/${name}` }} />}
    </details>
  );
}

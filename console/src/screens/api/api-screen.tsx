/** The HTTP API of this gateway, from its own `/openapi.json`. */
import { useEffect, useRef, useState } from "preact/hooks";
import { urlOf } from "../../api/client";
import { CopyButton } from "../../components/copy-button";
import { Failure } from "../../components/failure";
import { InlineCode, Paragraphs } from "../../components/inline-code";
import { useResource } from "../../components/resource";
import type { ScreenProps } from "../../shell/screen";
import { buildCurl, groupEndpoints, type Document, type Endpoint } from "./openapi";
import { SchemaView } from "./schema-view";

export function APIScreen({ segments }: ScreenProps) {
  const document = useResource<Document>("openapi.json");
  const [search, setSearch] = useState("");
  return (
    <div class="screen-padding api-screen">
      <h1>API</h1>
      {document.error && <Failure error={document.error} />}
      {!document.value && !document.error && <p class="hint">Loading…</p>}
      {document.value && (
        <>
          <p class="hint">
            What this gateway answers (version {document.value.info.version}). The same as a file:{" "}
            <a href="openapi.json">openapi.json</a>
          </p>
          <label class="search">
            Search
            <input
              type="search"
              placeholder="keys, POST, responses"
              value={search}
              onInput={(event) => setSearch(event.currentTarget.value)}
            />
          </label>
          <Groups document={document.value} search={search.toLowerCase()} opened={segments[0] ?? ""} />
        </>
      )}
    </div>
  );
}

function Groups({ document, search, opened }: { document: Document; search: string; opened: string }) {
  const groups = groupEndpoints(document)
    .map((group) => ({ ...group, endpoints: group.endpoints.filter((each) => isFound(each, search)) }))
    .filter((group) => group.endpoints.length > 0);
  if (groups.length === 0) return <p class="hint">No route has this in its path or name.</p>;
  return (
    <>
      {groups.map(({ tag, about, endpoints }) => (
        <section key={tag} aria-label={tag}>
          <h2>{tag}</h2>
          {!search && <Paragraphs text={about} />}
          {endpoints.map((endpoint) => (
            <EndpointView
              key={endpoint.operation.operationId}
              endpoint={endpoint}
              document={document}
              isOpened={endpoint.operation.operationId === opened}
            />
          ))}
        </section>
      ))}
    </>
  );
}

function isFound({ method, path, operation }: Endpoint, search: string): boolean {
  return `${method} ${path} ${operation.summary} ${operation.tags.join(" ")}`.toLowerCase().includes(search);
}

interface EndpointViewProps {
  endpoint: Endpoint;
  document: Document;
  isOpened: boolean;
}

function EndpointView({ endpoint, document, isOpened }: EndpointViewProps) {
  const [isOpen, setIsOpen] = useState(isOpened);
  const element = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    if (isOpened) element.current?.scrollIntoView();
  }, [isOpened]);
  const { method, path, operation } = endpoint;
  return (
    <details class="endpoint" open={isOpened} ref={element} onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        <span class="method">{method}</span> <code>{path}</code> <span class="hint">{operation.summary}</span>
      </summary>
      {isOpen && <EndpointBody endpoint={endpoint} document={document} />}
    </details>
  );
}

function EndpointBody({ endpoint, document }: { endpoint: Endpoint; document: Document }) {
  const { path, operation } = endpoint;
  const curl = buildCurl(endpoint, decodeURI(urlOf(path.slice(1))));
  const body = operation.requestBody?.content["application/json"]?.schema;
  const replies = Object.entries(operation.responses);
  const done = replies.filter(([status]) => status.startsWith("2"));
  const errors = replies.filter(([status]) => !status.startsWith("2"));
  return (
    <div class="endpoint-body">
      {operation.description && <Paragraphs text={operation.description} />}
      <h3>Example</h3>
      <pre tabIndex={0}>{curl}</pre>
      <CopyButton text={curl} />
      {operation.parameters && operation.parameters.length > 0 && (
        <>
          <h3>Parameters</h3>
          <SchemaView
            document={document}
            schema={{
              properties: Object.fromEntries(
                operation.parameters.map((each) => [
                  each.name,
                  { ...each.schema, description: `${each.description ?? ""} (${each.in})` },
                ]),
              ),
              required: operation.parameters.filter((each) => each.required).map((each) => each.name),
            }}
          />
        </>
      )}
      {body && (
        <>
          <h3>Body</h3>
          <SchemaView document={document} schema={body} />
        </>
      )}
      {done.map(([status, { description, content }]) => (
        <div key={status}>
          <h3>Reply {status}</h3>
          {description && <Paragraphs text={description} />}
          {Object.entries(content ?? {}).map(([type, { schema, example }]) => (
            <div key={type}>
              <p class="hint">{type}</p>
              {schema && <SchemaView document={document} schema={schema} />}
              {example !== undefined && <Example example={example} />}
            </div>
          ))}
        </div>
      ))}
      <h3>Errors</h3>
      <dl class="errors">
        {errors.map(([status, { description }]) => (
          <div key={status}>
            <dt>{status === "default" ? "other" : status}</dt>
            <dd>
              <InlineCode text={description ?? ""} />
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}

function Example({ example }: { example: unknown }) {
  return (
    <details>
      <summary>Example</summary>
      <pre tabIndex={0}>{typeof example === "string" ? example : JSON.stringify(example, null, 2)}</pre>
    </details>
  );
}

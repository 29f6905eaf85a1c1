/** What a server offers: tools to try, prompts to get and resources to read. */
import { Fragment, type ComponentChildren } from "preact";
import { useEffect, useId, useState } from "preact/hooks";
import { APIError, fetchJSON } from "../../api/client";
import type { List } from "../../api/types";
import { asError } from "../../components/resource";
import { listAll } from "./mcp-client";
import { PromptView } from "./prompt-view";
import { ResourceView, TemplateView } from "./resource-view";
import type { ListedTool, MCPResource, Prompt, ResourceTemplate, Tool } from "./server-types";
import { ToolView } from "./tool-view";

// Entries above which a list has a search.
const MANY = 8;

interface Offer {
  tools: Tool[];
  prompts: Prompt[];
  resources: MCPResource[];
  templates: ResourceTemplate[];
  /** Why tools cannot be called from here; empty if they can. */
  refusal: string;
}

async function readOffer(server: string): Promise<Offer> {
  try {
    const [tools, prompts, resources, templates] = await Promise.all([
      listAll<Tool>(server, "tools"),
      listAll<Prompt>(server, "prompts"),
      listAll<MCPResource>(server, "resources"),
      listAll<ResourceTemplate>(server, "resourceTemplates"),
    ]);
    return { tools, prompts, resources, templates, refusal: "" };
  } catch (error) {
    // The MCP endpoint may be off. The tools are listed all the same.
    if (!(error instanceof APIError && error.status === 404)) throw error;
    const listed = await fetchJSON<List<ListedTool>>(`v1/mcp/servers/${encodeURIComponent(server)}/tools`);
    const tools = listed.data.map(({ input_schema: inputSchema, ...tool }) => ({ ...tool, inputSchema }));
    return { tools, prompts: [], resources: [], templates: [], refusal: error.message };
  }
}

export function OfferView({ server, isConnected }: { server: string; isConnected: boolean }) {
  const [offer, setOffer] = useState<Offer | null>(null);
  const [failure, setFailure] = useState("");
  useEffect(() => {
    // Listing would start a server that sleeps.
    if (!isConnected || offer) return;
    const read = async () => {
      try {
        setOffer(await readOffer(server));
      } catch (error) {
        setFailure(asError(error).message);
      }
    };
    void read();
  }, [server, isConnected, offer]);

  // What was listed stays while the server sleeps again: a call wakes it, and a form that is being filled is not lost.
  if (!isConnected && !offer) return <p class="hint">Its tools are here while it is connected.</p>;
  if (failure) {
    return (
      <p class="alert" role="alert">
        {failure}
      </p>
    );
  }
  if (!offer) return <p class="hint">Loading its tools…</p>;
  return (
    <>
      {offer.refusal && (
        <p class="note">Its tools cannot be called from here, because the MCP endpoint refuses it: {offer.refusal}</p>
      )}
      <Offered
        title="Tools"
        entries={offer.tools}
        describe={(tool) => `${tool.name} ${tool.description ?? ""}`}
        empty="It offers none."
      >
        {(tool) => <ToolView server={server} tool={tool} canCall={offer.refusal === ""} />}
      </Offered>
      <Offered
        title="Prompts"
        entries={offer.prompts}
        describe={(prompt) => `${prompt.name} ${prompt.title ?? ""} ${prompt.description ?? ""}`}
      >
        {(prompt) => <PromptView server={server} prompt={prompt} />}
      </Offered>
      <Offered title="Resources" entries={offer.resources} describe={(each) => `${each.uri} ${describeResource(each)}`}>
        {(resource) => <ResourceView server={server} resource={resource} />}
      </Offered>
      <Offered
        title="Resource templates"
        entries={offer.templates}
        describe={(each) => `${each.uriTemplate} ${describeResource(each)}`}
      >
        {(template) => <TemplateView server={server} template={template} />}
      </Offered>
    </>
  );
}

interface OfferedProps<T> {
  title: string;
  entries: readonly T[];
  /** What the search looks at. */
  describe: (entry: T) => string;
  /** What is shown where there are none. Left out: nothing of it. */
  empty?: string;
  children: (entry: T) => ComponentChildren;
}

/** A list of what a server offers, with a search where there are many. */
function Offered<T>({ title, entries, describe, empty, children }: OfferedProps<T>) {
  const [search, setSearch] = useState("");
  const id = useId();
  const wanted = search.toLowerCase();
  const shown = entries.filter((entry) => describe(entry).toLowerCase().includes(wanted));
  if (entries.length === 0 && empty === undefined) return null;
  return (
    <section aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {entries.length === 0 && <p class="hint">{empty}</p>}
      {entries.length > MANY && (
        <label class="search">
          Search <span class="visually-hidden">{title}</span>
          <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </label>
      )}
      {entries.length > 0 && shown.length === 0 && <p class="hint">None has this in its name or description.</p>}
      {shown.map((entry) => (
        // A server may give two of them the same name.
        <Fragment key={entries.indexOf(entry)}>{children(entry)}</Fragment>
      ))}
    </section>
  );
}

function describeResource(resource: MCPResource | ResourceTemplate): string {
  return [resource.name, resource.title, resource.description].filter(Boolean).join(" ");
}

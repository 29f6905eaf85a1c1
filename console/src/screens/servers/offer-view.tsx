/** What a server offers: tools to try, prompts and resources. */
import { useEffect, useState } from "preact/hooks";
import { APIError, fetchJSON } from "../../api/client";
import type { List } from "../../api/types";
import { asError } from "../../components/resource";
import { listAll } from "./mcp-client";
import type { ListedTool, MCPResource, Prompt, Tool } from "./server-types";
import { ToolView } from "./tool-view";

// Tools above which the list has a search.
const MANY_TOOLS = 8;

interface Offer {
  tools: Tool[];
  prompts: Prompt[];
  resources: MCPResource[];
  /** Why tools cannot be called from here; empty if they can. */
  refusal: string;
}

async function readOffer(server: string): Promise<Offer> {
  try {
    const [tools, prompts, resources] = await Promise.all([
      listAll<Tool>(server, "tools"),
      listAll<Prompt>(server, "prompts"),
      listAll<MCPResource>(server, "resources"),
    ]);
    return { tools, prompts, resources, refusal: "" };
  } catch (error) {
    // The MCP endpoint may be off. The tools are listed all the same.
    if (!(error instanceof APIError && error.status === 404)) throw error;
    const listed = await fetchJSON<List<ListedTool>>(`v1/mcp/servers/${encodeURIComponent(server)}/tools`);
    const tools = listed.data.map(({ input_schema: inputSchema, ...tool }) => ({ ...tool, inputSchema }));
    return { tools, prompts: [], resources: [], refusal: error.message };
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
      <Tools server={server} tools={offer.tools} canCall={offer.refusal === ""} />
      <Listed title="Prompts" entries={offer.prompts.map(describePrompt)} />
      <Listed title="Resources" entries={offer.resources.map(describeResource)} />
    </>
  );
}

interface ToolsProps {
  server: string;
  tools: readonly Tool[];
  canCall: boolean;
}

function Tools({ server, tools, canCall }: ToolsProps) {
  const [search, setSearch] = useState("");
  const wanted = search.toLowerCase();
  const shown = tools.filter((tool) => `${tool.name} ${tool.description ?? ""}`.toLowerCase().includes(wanted));
  return (
    <section aria-labelledby="tools-title">
      <h2 id="tools-title">Tools</h2>
      {tools.length === 0 && <p class="hint">It offers none.</p>}
      {tools.length > MANY_TOOLS && (
        <label class="search">
          Search
          <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
        </label>
      )}
      {tools.length > 0 && shown.length === 0 && <p class="hint">No tool has this in its name or description.</p>}
      {shown.map((tool) => (
        <ToolView key={tool.name} server={server} tool={tool} canCall={canCall} />
      ))}
    </section>
  );
}

interface Entry {
  name: string;
  about: string;
}

function Listed({ title, entries }: { title: string; entries: readonly Entry[] }) {
  if (entries.length === 0) return null;
  return (
    <section>
      <h2>{title}</h2>
      <ul class="listed">
        {entries.map((entry) => (
          <li key={entry.name}>
            <code>{entry.name}</code>
            {entry.about && <span class="hint line">{entry.about}</span>}
          </li>
        ))}
      </ul>
    </section>
  );
}

function describePrompt(prompt: Prompt): Entry {
  const names = (prompt.arguments ?? []).map((each) => (each.required ? each.name : `${each.name} (optional)`));
  const about = [prompt.title, prompt.description, names.length > 0 ? `arguments: ${names.join(", ")}` : ""];
  return { name: prompt.name, about: about.filter(Boolean).join(" · ") };
}

function describeResource(resource: MCPResource): Entry {
  const about = [resource.title ?? resource.name, resource.description, resource.mimeType];
  return { name: resource.uri, about: about.filter(Boolean).join(" · ") };
}

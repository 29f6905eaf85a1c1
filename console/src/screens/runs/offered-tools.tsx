/** The names of the tools that a model was offered in one turn. */
import { useState } from "preact/hooks";
import { formatCount } from "../../components/format";

// More than this can be searched.
const MANY_TOOLS = 30;

export function OfferedTools({ tools }: { tools: readonly string[] }) {
  const [isOpen, setIsOpen] = useState(false);
  const [search, setSearch] = useState("");
  if (tools.length === 0) return <p class="hint">The model was offered no tools.</p>;
  const shown = tools.filter((name) => name.toLowerCase().includes(search.toLowerCase()));
  return (
    <details class="offered-tools" onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>
        {formatCount(tools.length)} {tools.length === 1 ? "tool" : "tools"} offered
      </summary>
      {isOpen && (
        <>
          {tools.length > MANY_TOOLS && (
            <label class="search">
              Search the tools
              <input type="search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} />
            </label>
          )}
          {shown.length === 0 && <p class="hint">No tool has this in its name.</p>}
          <ul>
            {shown.map((name) => (
              <li key={name}>
                <code>{name}</code>
              </li>
            ))}
          </ul>
        </>
      )}
    </details>
  );
}

/** Tools that differ from the lock, field by field, and are not offered until the operator accepts them. */
import { Difference } from "../../components/difference";
import type { WithheldTool } from "./server-types";

const KINDS = { new: "not in the lock", changed: "changed" };

interface WithheldToolsProps {
  tools: readonly WithheldTool[];
  isBusy: boolean;
  onAccept: (tool: WithheldTool) => void;
}

export function WithheldTools({ tools, isBusy, onAccept }: WithheldToolsProps) {
  if (tools.length === 0) return null;
  return (
    <section class="withheld" aria-labelledby="withheld-title">
      <h2 id="withheld-title">Withheld tools</h2>
      <p class="hint">
        They are not as <code>holodeck.lock</code> has them, so no model is offered them. Accepting writes into the lock
        what you see here; if the server changes it before you click, nothing is accepted.
      </p>
      {tools.map((tool) => (
        <div key={tool.tool} class="withheld-tool" role="group" aria-label={`Withheld tool ${tool.tool}`}>
          <h3>
            <code>{tool.tool}</code> <span class="badge warn">{KINDS[tool.kind]}</span>
          </h3>
          {tool.changes.map((change) => (
            <div key={change.field}>
              <p class="change-field">{change.field}</p>
              {tool.kind === "new" ? (
                <pre tabIndex={0}>{change.current}</pre>
              ) : (
                <Difference before={change.locked} after={change.current} />
              )}
            </div>
          ))}
          <button type="button" disabled={isBusy} onClick={() => onAccept(tool)}>
            Accept {tool.tool}
          </button>
        </div>
      ))}
    </section>
  );
}

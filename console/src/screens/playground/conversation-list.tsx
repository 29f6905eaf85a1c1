/** The conversations of this browser; on a narrow page they are folded. */
import { useEffect, useState } from "preact/hooks";
import { buildHash } from "../../shell/route";
import { conversations, deleteStored } from "./stored-conversations";

const wide = window.matchMedia("(min-width: 60.01rem)");

export function ConversationList({ current }: { current: string }) {
  const [isWide, setIsWide] = useState(wide.matches);
  useEffect(() => {
    const onChange = () => setIsWide(wide.matches);
    wide.addEventListener("change", onChange);
    return () => wide.removeEventListener("change", onChange);
  }, []);
  return (
    <nav class="conversations" aria-label="Conversations">
      {isWide ? (
        <List current={current} />
      ) : (
        <details>
          <summary>Conversations</summary>
          <List current={current} />
        </details>
      )}
    </nav>
  );
}

function List({ current }: { current: string }) {
  return (
    <>
      <a class="new-conversation" href="#/playground">
        New conversation
      </a>
      {conversations.value.length === 0 && <p class="hint">Conversations of this browser will be listed here.</p>}
      <ul>
        {conversations.value.map((each) => (
          <li key={each.id}>
            <a
              href={buildHash(["playground", each.id])}
              {...(each.id === current ? { "aria-current": "page" as const } : {})}
            >
              {each.title}
            </a>
            <button
              type="button"
              class="quiet"
              aria-label={`Delete ${each.title}`}
              onClick={() => {
                if (each.id === current) location.hash = "#/playground";
                void deleteStored(each.id).catch(() => undefined);
              }}
            >
              ×
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}

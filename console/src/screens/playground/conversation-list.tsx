/** The conversations of the key of this tab; on a narrow page they are folded. */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { usePolling } from "../../components/polling";
import { asError } from "../../components/resource";
import { buildHash } from "../../shell/route";
import { conversations, deleteStored, readConversations } from "./stored-conversations";

const wide = window.matchMedia("(min-width: 60.01rem)");
// Between two reads: another tab may have made one.
const POLL_MS = 30_000;

export function ConversationList({ current }: { current: string }) {
  const [isWide, setIsWide] = useState(wide.matches);
  useEffect(() => {
    const onChange = () => setIsWide(wide.matches);
    wide.addEventListener("change", onChange);
    return () => wide.removeEventListener("change", onChange);
  }, []);
  const [failure, setFailure] = useState("");
  const read = useCallback(
    () =>
      readConversations().then(
        () => setFailure(""),
        (error: unknown) => setFailure(asError(error).message),
      ),
    [],
  );
  useEffect(() => void read(), [read]);
  usePolling(read, true, POLL_MS);
  return (
    <nav class="conversations" aria-label="Conversations">
      {isWide ? (
        <List current={current} failure={failure} />
      ) : (
        <details>
          <summary>Conversations</summary>
          <List current={current} failure={failure} />
        </details>
      )}
    </nav>
  );
}

function List({ current, failure }: { current: string; failure: string }) {
  const listed = conversations.value;
  const start = useRef<HTMLAnchorElement>(null);
  return (
    <>
      <a ref={start} class="new-conversation" href="#/playground">
        New conversation
      </a>
      {failure && <p class="hint">The list could not be read: {failure}</p>}
      {listed?.length === 0 && <p class="hint">Your conversations will be listed here.</p>}
      <ul>
        {listed?.map((each) => (
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
                // The button goes with its conversation.
                start.current?.focus();
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

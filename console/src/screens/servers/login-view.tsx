/**
 * A login at a server, from this browser. The first click starts it; then there is a link to the login page, which a
 * person clicks, so that no browser takes it for an unwanted window. The page says what came of it.
 */
import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { fetchJSON, urlOf } from "../../api/client";
import { usePolling } from "../../components/polling";
import { asError } from "../../components/resource";
import { isWebURL } from "../../components/web-url";
import type { Login } from "./server-types";

// Between two reads of a login that waits for the person.
const POLL_MS = 1_000;

interface LoginViewProps {
  server: string;
  /** Whether a login is of use now. One that was started is shown in any case. */
  isOffered: boolean;
  onLoggedIn: () => void;
}

export function LoginView({ server, isOffered, onLoggedIn }: LoginViewProps) {
  const [login, setLogin] = useState<Login | null>(null);
  const [failure, setFailure] = useState("");
  const [isStarting, setIsStarting] = useState(false);
  const latest = useRef(onLoggedIn);
  latest.current = onLoggedIn;
  const startButton = useRef<HTMLButtonElement>(null);
  const path = `v1/mcp/servers/${encodeURIComponent(server)}/login`;
  const isWaiting = login?.status === "waiting";

  const request = useCallback(
    async (method: "GET" | "POST" | "DELETE") => {
      try {
        const body = method === "POST" ? { body: { redirect_uri: urlOf("v1/mcp/login/callback") } } : {};
        setLogin(await fetchJSON<Login>(path, { method, ...body }));
        setFailure("");
      } catch (error) {
        setFailure(asError(error).message);
      }
    },
    [path],
  );
  useEffect(() => {
    if (!isOffered) return undefined;
    let isShown = true;
    // One that was started before the page was loaded. There may be none, which is no failure.
    fetchJSON<Login>(path).then(
      (found) => isShown && found.status === "waiting" && setLogin((started) => started ?? found),
      () => undefined,
    );
    return () => void (isShown = false);
  }, [path, isOffered]);
  const read = useCallback(() => request("GET"), [request]);
  usePolling(read, isWaiting, POLL_MS);

  const status = login?.status;
  useEffect(() => {
    if (status !== "completed" && status !== "failed") return;
    // The link or the button that had the focus is gone.
    if (document.activeElement === document.body) startButton.current?.focus();
    if (status === "completed") latest.current();
  }, [status]);

  const start = async () => {
    setIsStarting(true);
    setLogin(null);
    await request("POST");
    setIsStarting(false);
  };
  if (!isOffered && !login) return null;
  return (
    <section class="server-login" aria-label="Login">
      {isWaiting && <LoginPage url={login.authorization_url ?? ""} onCancel={() => void request("DELETE")} />}
      {!isWaiting && (
        <p class="actions">
          <button ref={startButton} type="button" disabled={isStarting} onClick={() => void start()}>
            {isStarting ? "Finding the login page…" : "Log in"}
          </button>
        </p>
      )}
      <p role="status">
        {isWaiting && "Waiting for the login…"}
        {login?.status === "completed" && "Logged in."}
      </p>
      {(failure || login?.error) && (
        <p class="alert" role="alert">
          {failure || login?.error}
        </p>
      )}
    </section>
  );
}

function LoginPage({ url, onCancel }: { url: string; onCancel: () => void }) {
  const link = useRef<HTMLAnchorElement>(null);
  useEffect(() => link.current?.focus(), [url]);
  return (
    <p class="actions">
      {isWebURL(url) ? (
        <a ref={link} href={url} target="_blank" rel="noopener noreferrer">
          Open the login page
        </a>
      ) : (
        <code>{url}</code>
      )}
      <button type="button" onClick={onCancel}>
        Cancel
      </button>
    </p>
  );
}

/** One server: its state and problems, what differs from the lock, and what it offers. */
import { useState } from "preact/hooks";
import { fetchJSON } from "../../api/client";
import { asError } from "../../components/resource";
import { CopyButton } from "../../components/copy-button";
import { formatCount, formatSeconds } from "../../components/format";
import { Countdown } from "./countdown";
import { LoginView } from "./login-view";
import { OfferView } from "./offer-view";
import { StateBadge } from "./server-state";
import type { Server } from "./server-types";
import { WithheldTools } from "./withheld-tools";

const PERSONAL_AUTH = "oauth_authorization_code";

interface ServerViewProps {
  name: string;
  /** Those of this name: two agents may each have one. */
  servers: readonly Server[];
  readServers: () => Promise<void>;
}

export function ServerView({ name, servers, readServers }: ServerViewProps) {
  const [failure, setFailure] = useState("");
  const [working, setWorking] = useState("");
  // Counts what was done to the server, after which its offer is read again.
  const [changes, setChanges] = useState(0);
  const [server] = servers;
  if (!server) {
    return (
      <div class="empty">
        <h1>There is no server '{name}'</h1>
        <p>The gateway has none of this name any more, or your key may not use it.</p>
      </div>
    );
  }
  const showChange = async () => {
    await readServers();
    setChanges((count) => count + 1);
  };
  const act = async (action: "refresh" | "sleep" | "accept", body?: unknown) => {
    setWorking(action);
    setFailure("");
    try {
      const path = `v1/mcp/servers/${encodeURIComponent(name)}`;
      await fetchJSON(`${path}/${action}`, { method: "POST", ...(body ? { body } : {}) });
      // The new lock is read with a server that sleeps: what else it withholds is known once it is connected.
      if (action === "accept") await fetchJSON(`${path}/refresh`, { method: "POST" });
    } catch (error) {
      setFailure(asError(error).message);
    }
    await showChange();
    setWorking("");
  };
  return (
    <article class="server" aria-label={`Server ${name}`}>
      <header class="server-head">
        <h1>
          {server.name} <StateBadge server={server} />
        </h1>
        <p class="actions">
          <button type="button" disabled={working !== ""} onClick={() => void act("refresh")}>
            {working === "refresh" ? "Connecting…" : server.state === "connected" ? "Connect again" : "Connect"}
          </button>
          <button
            type="button"
            disabled={working !== "" || server.state === "created"}
            onClick={() => void act("sleep")}
          >
            Put to sleep
          </button>
        </p>
      </header>
      {server.description && <p>{server.description}</p>}
      {servers.length > 1 && (
        <p class="hint">
          {servers.length} servers have this name, because agents have their own. What you do here is done to all of
          them; shown is the first.
        </p>
      )}
      <Facts server={server} />
      {failure && (
        <p class="alert lines" role="alert">
          {failure}
        </p>
      )}
      <Problems server={server} />
      <LoginView
        server={name}
        isOffered={servers.some((each) => each.can_log_in && (each.auth === PERSONAL_AUTH || each.needs_login))}
        onLoggedIn={() => void showChange()}
      />
      <WithheldTools
        tools={server.withheld}
        isBusy={working !== ""}
        onAccept={(tool) => void act("accept", { tools: { [tool.tool]: tool.digest } })}
      />
      <OfferView key={changes} server={name} isConnected={server.state === "connected" && working === ""} />
    </article>
  );
}

function Facts({ server }: { server: Server }) {
  const facts: [string, string][] = [
    ["Transport", server.transport],
    ["Era", server.era ? `${server.era}${server.protocol_version ? ` (${server.protocol_version})` : ""}` : "–"],
    ["Version", server.version ?? "–"],
    ["Tools", formatCount(server.tools)],
    ["Took to start", formatSeconds(server.start_seconds)],
    ["Calls", formatCount(server.calls)],
    ["Call, p50", formatSeconds(server.call_seconds_p50)],
    ["Call, p95", formatSeconds(server.call_seconds_p95)],
    ["Restarts", formatCount(server.restarts)],
  ];
  return (
    <dl class="facts">
      {facts.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Problems({ server }: { server: Server }) {
  const { last_error: lastError } = server;
  const command = `holodeck mcp login ${server.name}`;
  return (
    <>
      {lastError && (
        <div class="alert" role="group" aria-label="Last error">
          <p class="lines">{lastError}</p>
          {server.next_try_at !== null && <Countdown until={server.next_try_at} />}
          {server.needs_login && server.can_log_in && (
            <p>
              Log in here. Where the gateway has no keys, its user may also run <code>{command}</code>{" "}
              <CopyButton text={command} label="Copy" />
            </p>
          )}
          {server.needs_login && !server.can_log_in && (
            <p>
              To log in here, write <code>auth: {"{type: oauth_authorization_code}"}</code> into its definition.
            </p>
          )}
        </div>
      )}
      {server.warnings.map((warning) => (
        <p key={warning} class="note">
          {warning}
        </p>
      ))}
      {server.stderr && (
        <details class="stderr" open={lastError !== null}>
          <summary>Standard error of its process</summary>
          <pre tabIndex={0}>{server.stderr}</pre>
        </details>
      )}
    </>
  );
}

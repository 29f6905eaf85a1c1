/** MCP servers: all of them at `#/servers`, one with its tools at `#/servers/NAME`. */
import type { ScreenProps } from "../../shell/screen";
import type { List } from "../../api/types";
import { Failure } from "../../components/failure";
import { useResource } from "../../components/resource";
import { usePolling } from "../../components/polling";
import { ServerList } from "./server-list";
import type { Server } from "./server-types";
import { ServerView } from "./server-view";

// Between two reads of the states.
const POLL_MS = 4_000;

export function ServersScreen({ segments }: ScreenProps) {
  const servers = useResource<List<Server>>("v1/mcp/servers");
  const isLive = servers.value !== null;
  usePolling(servers.read, isLive, POLL_MS);
  const [name] = segments;
  return (
    <div class="screen-padding servers-screen">
      {name ? (
        <p>
          <a href="#/servers">All servers</a>
        </p>
      ) : (
        <h1>Servers</h1>
      )}
      {servers.error && <Failure error={servers.error} />}
      {!servers.value && !servers.error && <p class="hint">Loading…</p>}
      {servers.value && !name && <ServerList servers={servers.value.data} />}
      {servers.value && name && (
        <ServerView
          key={name}
          name={name}
          servers={servers.value.data.filter((each) => each.name === name)}
          readServers={servers.read}
        />
      )}
    </div>
  );
}

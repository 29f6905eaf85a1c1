/** The table of servers. */
import { cutLines, formatCount, formatSeconds } from "../../components/format";
import { buildHash } from "../../shell/route";
import type { Server } from "./server-types";
import { StateBadge } from "./server-state";

export function ServerList({ servers }: { servers: readonly Server[] }) {
  if (servers.length === 0) {
    return (
      <div class="empty">
        <h2>No MCP servers</h2>
        <p>
          Add one to the gateway's file under <code>mcp_servers</code>, or with <code>holodeck mcp add</code>. It is
          here as soon as the file is read again.
        </p>
      </div>
    );
  }
  return (
    <table class="plain-table stacked">
      <thead>
        <tr>
          <th>Server</th>
          <th>State</th>
          <th>Transport</th>
          <th>Era</th>
          <th class="number">Tools</th>
          <th class="number">Restarts</th>
          <th class="number">Start</th>
        </tr>
      </thead>
      <tbody>
        {servers.map((server, index) => (
          <tr key={`${server.name} ${index}`}>
            <td class="wide">
              <a href={buildHash(["servers", server.name])}>{server.name}</a>
              {server.description && <span class="hint line">{server.description}</span>}
              {server.last_error && <span class="problem line">{cutLines(server.last_error)}</span>}
              {server.withheld.length > 0 && (
                <span class="line">
                  <span class="badge warn">{server.withheld.length} withheld</span>
                </span>
              )}
            </td>
            <td>
              <StateBadge server={server} />
            </td>
            <td>{server.transport}</td>
            <td>{server.era ?? "–"}</td>
            <td class="number" data-label="tools">
              {formatCount(server.tools)}
            </td>
            <td class="number" data-label="restarts">
              {formatCount(server.restarts)}
            </td>
            <td class="number" data-label="to start">
              {formatSeconds(server.start_seconds)}
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

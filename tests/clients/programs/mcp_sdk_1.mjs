// The official SDK for TypeScript, version 1.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { address, command, useAll, useClient } from "./mcp_program.mjs";

await useAll(
  (transport) => useClient(new Client({ name: "sdk-1", version: "1" }), transport),
  () => new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env }),
  (key) => new StreamableHTTPClientTransport(address, { requestInit: { headers: { authorization: `Bearer ${key}` } } }),
);

// The official SDK for TypeScript, version 2.

import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { address, command, useAll, useClient } from "./mcp_program.mjs";

await useAll(
  (transport) => useClient(new Client({ name: "sdk-2", version: "1" }), transport),
  () => new StdioClientTransport({ command: command[0], args: command.slice(1), env: process.env }),
  (key) => new StreamableHTTPClientTransport(address, { requestInit: { headers: { authorization: `Bearer ${key}` } } }),
);

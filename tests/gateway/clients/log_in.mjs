// The official SDK for TypeScript, version 1, logs in at the MCP endpoint of a gateway and calls a tool. The address of
// the login page goes to standard output, and what the browser comes back with is read from standard input.

import { createInterface } from "node:readline/promises";
import { UnauthorizedError } from "@modelcontextprotocol/sdk/client/auth.js";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const [address, redirectUrl] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin });
let client, tokens, verifier;

const provider = {
  redirectUrl,
  clientMetadata: { client_name: "TypeScript", redirect_uris: [redirectUrl], token_endpoint_auth_method: "none" },
  clientInformation: () => client,
  saveClientInformation: (saved) => (client = saved),
  tokens: () => tokens,
  saveTokens: (saved) => (tokens = saved),
  saveCodeVerifier: (saved) => (verifier = saved),
  codeVerifier: () => verifier,
  redirectToAuthorization: (url) => console.log(url.href),
};

const open = () => new StreamableHTTPClientTransport(new URL(address), { authProvider: provider });
const first = open();
try {
  await new Client({ name: "typescript", version: "1" }).connect(first);
} catch (error) {
  if (!(error instanceof UnauthorizedError)) throw error;
}
const { value } = await lines[Symbol.asyncIterator]().next();
await first.finishAuth(new URL(value).searchParams.get("code"));
const connected = new Client({ name: "typescript", version: "1" });
await connected.connect(open());
const result = await connected.callTool({ name: "add", arguments: { a: 1, b: 2 } });
console.log(JSON.stringify(result.content));
await connected.close();
lines.close();

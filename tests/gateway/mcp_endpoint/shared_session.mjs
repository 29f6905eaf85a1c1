// The official SDK for TypeScript, in one session behind a balancer: `node shared_session.mjs URL KEY RESOURCE`.

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema, ResourceUpdatedNotificationSchema } from "@modelcontextprotocol/sdk/types.js";

const [url, key, resource] = process.argv.slice(2);
const client = new Client({ name: "shared", version: "1" }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, () => ({ action: "accept", content: { name: "Ada" } }));
const updated = new Promise((resolve) => {
  client.setNotificationHandler(ResourceUpdatedNotificationSchema, ({ params }) => resolve(params.uri));
});
const transport = new StreamableHTTPClientTransport(new URL(url), {
  requestInit: { headers: { authorization: `Bearer ${key}` } },
});
await client.connect(transport);
const answers = { tools: (await client.listTools()).tools.map(({ name }) => name).includes("add") };
const call = async (name, args) => (await client.callTool({ name, arguments: args })).content[0].text;
answers.sums = [await call("add", { a: 1, b: 2 }), await call("add", { a: 3, b: 4 })];
answers.answer = await call("ask_elicitation", {});
answers.slow = await call("slow", { seconds: 3 });
await client.subscribeResource({ uri: resource });
console.log("subscribed");
answers.updated = await updated;
const headers = { authorization: `Bearer ${key}`, "mcp-session-id": transport.sessionId, accept: "text/event-stream" };
await transport.terminateSession();
answers.after = [];
for (let gateway = 0; gateway < 3; gateway++) answers.after.push((await fetch(url, { headers })).status);
await client.close();
console.log(JSON.stringify(answers));

// What the programs of MCP clients for Node share: `node NAME.mjs URL KEY COMMAND...`.

export const [url, key, ...command] = process.argv.slice(2);
export const address = new URL("/mcp", url);
const otherKey = "hd-nobody";

// Use both ways, and print what came back. `use` connects a transport and returns the names of the tools, and the sum
// of 1 and 2.
export async function useAll(use, stdioTransport, httpTransport) {
  const answers = {};
  const ways = { stdio: () => stdioTransport(), HTTP: () => httpTransport(key) };
  for (const [way, open] of Object.entries(ways)) {
    const [names, total] = await use(open());
    answers[`tools over ${way}`] = names.sort().join(", ");
    answers[`sum over ${way}`] = total;
  }
  answers["another key"] = await tryKey(use, httpTransport);
  console.log(JSON.stringify(answers));
}

async function tryKey(use, httpTransport) {
  try {
    await use(httpTransport(otherKey));
    return "accepted";
  } catch (error) {
    const said = `${error.name} ${error.code} ${error.message}`;
    return /401|Unauthorized|Incorrect API key provided/.test(said) ? "refused" : `not refused: ${said}`;
  }
}

export async function useClient(client, transport) {
  await client.connect(transport);
  try {
    const { tools } = await client.listTools();
    const result = await client.callTool({ name: "add", arguments: { a: 1, b: 2 } });
    return [tools.map((tool) => tool.name), result.content[0].text];
  } finally {
    await client.close();
  }
}

// The tool runner of the `@anthropic-ai/sdk` package, which runs functions of the program by itself.

import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { API_KEY, askAll, BASE_URL, getTime, MODEL } from "./client_program.mjs";

// This package adds the `/v1` itself.
const client = new Anthropic({ baseURL: BASE_URL.replace(/\/v1$/, ""), apiKey: API_KEY, maxRetries: 0 });
const tool = betaTool({
  name: "get_time",
  description: "Get the time at a place.",
  inputSchema: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
  run: getTime,
});

function start(question, stream) {
  const messages = [{ role: "user", content: question }];
  return client.beta.messages.toolRunner({ model: MODEL, max_tokens: 1024, messages, tools: [tool], stream });
}

function textOf(message) {
  return message.content.map((block) => (block.type === "text" ? block.text : "")).join("");
}

async function ask(question) {
  return textOf(await start(question, false).runUntilDone());
}

async function askStreamed(question) {
  let answer = "";
  for await (const stream of start(question, true)) answer = textOf(await stream.finalMessage());
  return answer;
}

await askAll(ask, askStreamed);

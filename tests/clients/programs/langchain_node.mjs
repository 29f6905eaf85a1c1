// An agent of LangChain for JavaScript on its OpenAI model, over the Responses API.
import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import { z } from "zod";
import { API_KEY, BASE_URL, INSTRUCTIONS, MODEL, askAll, getTime } from "./client_program.mjs";

const model = new ChatOpenAI({
  model: MODEL,
  apiKey: API_KEY,
  useResponsesApi: true,
  maxRetries: 0,
  configuration: { baseURL: BASE_URL },
});
const clock = tool(getTime, {
  name: "get_time",
  description: "Get the time at a place.",
  schema: z.object({ place: z.string() }),
});
const agent = createAgent({ model, tools: [clock], systemPrompt: INSTRUCTIONS });
const start = (question) => ({ messages: [{ role: "user", content: question }] });

const ask = async (question) => (await agent.invoke(start(question))).messages.at(-1).text;

async function askStreamed(question) {
  let text = "";
  for await (const [message] of await agent.stream(start(question), { streamMode: "messages" }))
    if (message.getType() === "ai") text += message.text;
  return text;
}

await askAll(ask, askStreamed);

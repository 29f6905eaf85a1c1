// An agent of OpenAI's `@openai/agents` package of npm.
import { Agent, OpenAIProvider, Runner, setTracingDisabled, tool } from "@openai/agents";
import { z } from "zod";
import { API_KEY, BASE_URL, INSTRUCTIONS, MODEL, askAll, getTime } from "./client_program.mjs";

setTracingDisabled(true);
const runner = new Runner({
  modelProvider: new OpenAIProvider({ baseURL: BASE_URL, apiKey: API_KEY, useResponses: true }),
});
const clock = tool({
  name: "get_time",
  description: "Get the time at a place.",
  parameters: z.object({ place: z.string() }),
  execute: getTime,
});
const agent = new Agent({ name: "Clock", instructions: INSTRUCTIONS, model: MODEL, tools: [clock] });

const ask = async (question) => (await runner.run(agent, question)).finalOutput;

async function askStreamed(question) {
  const run = await runner.run(agent, question, { stream: true });
  for await (const _event of run);
  await run.completed;
  return run.finalOutput;
}

await askAll(ask, askStreamed);

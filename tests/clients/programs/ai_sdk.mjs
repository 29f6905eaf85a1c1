// `generateText` and `streamText` of the AI SDK, version 6 or 7.
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";
import { API_KEY, BASE_URL, INSTRUCTIONS, MODEL, askAll, getTime } from "./client_program.mjs";

const model = createOpenAI({ baseURL: BASE_URL, apiKey: API_KEY }).responses(MODEL);
const tools = {
  get_time: tool({
    description: "Get the time at a place.",
    inputSchema: z.object({ place: z.string() }),
    execute: getTime,
  }),
};
const settings = { model, tools, system: INSTRUCTIONS, stopWhen: stepCountIs(5), maxRetries: 0 };

const ask = async (prompt) => (await generateText({ ...settings, prompt })).text;

async function askStreamed(prompt) {
  let failure;
  const result = streamText({ ...settings, prompt, onError: ({ error }) => (failure = error) });
  let text = "";
  for await (const delta of result.textStream) text += delta;
  if (failure) throw failure;
  return text;
}

await askAll(ask, askStreamed);

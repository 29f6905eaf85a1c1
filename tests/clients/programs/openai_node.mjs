// The loop that OpenAI documents for its `openai` package of npm.
import OpenAI from "openai";
import { API_KEY, BASE_URL, MODEL, askAll, getTime } from "./client_program.mjs";

const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0 });
const tools = [
  {
    type: "function",
    name: "get_time",
    description: "Get the time at a place.",
    parameters: {
      type: "object",
      properties: { place: { type: "string" } },
      required: ["place"],
      additionalProperties: false,
    },
    strict: true,
  },
];
const functions = { get_time: getTime };

// The whole history goes with each request.
async function ask(question) {
  const input = [{ role: "user", content: question }];
  for (;;) {
    const response = await client.responses.create({ model: MODEL, input, tools });
    input.push(...response.output);
    const outputs = await runFunctions(response.output);
    if (!outputs.length) return response.output_text;
    input.push(...outputs);
  }
}

// Each request continues from the response before.
async function askStreamed(question) {
  let input = [{ role: "user", content: question }];
  let previous;
  for (;;) {
    const stream = client.responses.stream({ model: MODEL, input, tools, previous_response_id: previous });
    const response = await stream.finalResponse();
    input = await runFunctions(response.output);
    if (!input.length) return response.output_text;
    previous = response.id;
  }
}

async function runFunctions(output) {
  const calls = output.filter((item) => item.type === "function_call");
  return Promise.all(
    calls.map(async (call) => ({
      type: "function_call_output",
      call_id: call.call_id,
      output: await functions[call.name](JSON.parse(call.arguments)),
    })),
  );
}

await askAll(ask, askStreamed);

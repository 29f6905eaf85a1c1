// openai_node.mjs
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.env.HOLODECK_URL ?? "http://127.0.0.1:8080/v1",
  apiKey: process.env.HOLODECK_KEY ?? "none",
});

// The gateway calls its own tool and answers.
const answer = await client.responses.create({ model: "demo", input: 'echo "hello"' });
console.log(answer.output_text);

// The same as a stream.
let text = "";
for await (const event of client.responses.stream({ model: "demo", input: 'echo "hello"' })) {
  if (event.type === "response.output_text.delta") text += event.delta;
}
console.log(text);

// A function of this program: the model calls it, this program runs it.
const tools = [
  {
    type: "function",
    name: "ticket_status",
    description: "Get the status of a ticket",
    parameters: { type: "object", properties: { number: { type: "integer" } }, required: ["number"] },
  },
];
const asked = await client.responses.create({ model: "demo", input: "What is the status of ticket 7?", tools });
const call = asked.output.find((item) => item.type === "function_call");
const done = await client.responses.create({
  model: "demo",
  previous_response_id: asked.id,
  input: [{ type: "function_call_output", call_id: call.call_id, output: "open" }],
  tools,
});
console.log(done.output_text);

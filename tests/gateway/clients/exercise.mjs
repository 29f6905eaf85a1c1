// What a program does with the stock `openai` package of npm. Prints what came of it as one JSON object.
// `node exercise.mjs BASE_URL MODEL`
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "hd-anybody", maxRetries: 0 });
const seen = {};

const made = await client.responses.create({ model, input: "sum" });
seen.create = made.output_text;
const stream = client.responses.stream({ model, input: "sum" });
seen.stream = "";
for await (const event of stream) if (event.type === "response.output_text.delta") seen.stream += event.delta;
seen.final = (await stream.finalResponse()).output_text;
seen.retrieve = (await client.responses.retrieve(made.id)).output_text;
seen.continue = (await client.responses.create({ model, input: "count", previous_response_id: made.id })).output_text;
const waiting = await client.responses.create({ model, input: "slow", background: true });
seen.cancelled = (await client.responses.cancel(waiting.id)).status;
const kept = await client.conversations.create({ items: [{ type: "message", role: "user", content: "Remember me." }] });
seen.conversation = (await client.responses.create({ model, input: "count", conversation: kept.id })).output_text;
const messages = [{ role: "user", content: "sum" }];
seen.chat = (await client.chat.completions.create({ model, messages })).choices[0].message.content;
seen.chat_stream = "";
for await (const chunk of await client.chat.completions.create({ model, messages, stream: true }))
  seen.chat_stream += chunk.choices[0].delta.content ?? "";
try {
  await client.responses.create({ model, input: [{ type: "nonsense" }] });
} catch (error) {
  seen.refused = [error.status, error.param];
}
console.log(JSON.stringify(seen));

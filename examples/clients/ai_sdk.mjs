// ai_sdk.mjs
import { createOpenAI } from "@ai-sdk/openai";
import { generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

const holodeck = createOpenAI({
  baseURL: process.env.HOLODECK_URL ?? "http://127.0.0.1:8080/v1",
  apiKey: process.env.HOLODECK_KEY ?? "none",
});
const ticketStatus = tool({
  description: "Get the status of a ticket",
  inputSchema: z.object({ number: z.number().int() }),
  execute: async ({ number }) => `ticket ${number} is open`,
});

// The gateway calls its own tool and answers.
console.log((await generateText({ model: holodeck("demo"), prompt: 'echo "hello"' })).text);

// The same as a stream.
console.log(await streamText({ model: holodeck("demo"), prompt: 'echo "hello"' }).text);

// A function of this program.
const { text } = await generateText({
  model: holodeck("demo"),
  prompt: "What is the status of ticket 7?",
  tools: { ticket_status: ticketStatus },
  stopWhen: stepCountIs(5),
});
console.log(text);

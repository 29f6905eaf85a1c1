/** An exchange as a command, a program or a test case. The key itself is in none of them: they read a variable. */
import type { InputItem, MCPCallItem } from "../../api/types";
import { textOfInput, type Exchange } from "./conversation";
import { textOf } from "./response-state";
import { titleOf } from "./conversation-metadata";

export interface ExportContext {
  /** The address of the gateway, which ends with a slash. */
  base: string;
  hasKey: boolean;
}

type Body = Record<string, unknown>;

/** The body of an exchange as a person would write it: a message of one text is that text. */
export function simplifyBody(body: Body, input: readonly InputItem[]): Body {
  const [item] = input;
  const part =
    input.length === 1 && item?.type === "message" && item.content.length === 1 ? item.content[0] : undefined;
  return part?.type === "input_text" ? { ...body, input: part.text } : body;
}

export function buildCurl(body: Body, { base, hasKey }: ExportContext): string {
  const key = hasKey ? `  -H "authorization: Bearer $HOLODECK_KEY" \\\n` : "";
  const data = JSON.stringify({ ...body, stream: true }, null, 2).replaceAll("'", `'\\''`);
  return `curl -sN ${base}v1/responses \\\n${key}  -H 'content-type: application/json' \\\n  -d '${data}'\n`;
}

export function buildPython(body: Body, { base, hasKey }: ExportContext): string {
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${writePython(value, 1)},\n`);
  const key = hasKey ? 'os.environ["HOLODECK_KEY"]' : '"none"';
  return [
    ...(hasKey ? ["import os\n"] : []),
    "from openai import OpenAI\n",
    `client = OpenAI(base_url=${JSON.stringify(`${base}v1`)}, api_key=${key})`,
    `response = client.responses.create(\n${fields.join("")})`,
    "print(response.output_text)\n",
  ].join("\n");
}

/** A test case for the agent file: the question, the tools that were called, and the answer to compare with. */
export function buildTestCase(exchange: Exchange): string {
  const question = textOfInput(exchange.input);
  const state = exchange.state.value;
  const answer = textOf(state);
  const calls = state.items.filter((item): item is MCPCallItem => item.type === "mcp_call");
  const tools = calls.flatMap((call) => [
    `      - name: ${JSON.stringify(`${call.server_label}.${call.name}`)}`,
    `        arguments: ${isObjectText(call.arguments) ? call.arguments : "{}"}`,
  ]);
  return [
    "test_cases:",
    `  - name: ${JSON.stringify(titleOf(question))}`,
    `    input: ${JSON.stringify(question)}`,
    ...(tools.length > 0 ? ["    expected_tools:", ...tools] : ["    expected_tools: []"]),
    // A turn that waits for an approval has no answer yet.
    ...(answer ? [`    ground_truth: ${JSON.stringify(answer)}`] : []),
    "",
  ].join("\n");
}

function isObjectText(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

function writePython(value: unknown, depth: number): string {
  const inner = "    ".repeat(depth + 1);
  const outer = "    ".repeat(depth);
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) {
    return value.length === 0
      ? "[]"
      : `[\n${value.map((each) => `${inner}${writePython(each, depth + 1)},\n`).join("")}${outer}]`;
  }
  if (typeof value === "object") {
    const rows = Object.entries(value).map(
      ([name, each]) => `${inner}${JSON.stringify(name)}: ${writePython(each, depth + 1)},\n`,
    );
    return `{\n${rows.join("")}${outer}}`;
  }
  return JSON.stringify(value);
}

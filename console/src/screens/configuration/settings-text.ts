/** Settings as text that reads like the file. For people; it is not meant to be a file again. */

const PLAIN = /^[A-Za-z_./$~][\w ./${}@:~*-]*$/;
const OTHER_MEANINGS = /^(true|false|null|yes|no|on|off|~)$/i;

export function writeSettings(value: unknown, indent = ""): string {
  if (Array.isArray(value)) return value.map((each) => writeItem(each, indent)).join("");
  if (isObject(value)) {
    const entries = Object.entries(value);
    return entries.map(([name, inner]) => writeEntry(name, inner, indent)).join("");
  }
  return `${indent}${writeScalar(value)}\n`;
}

function writeEntry(name: string, value: unknown, indent: string): string {
  const key = writeScalar(name);
  if (typeof value === "string" && value.includes("\n")) {
    const lines = value.replace(/\n$/, "").split("\n");
    return `${indent}${key}: |\n${lines.map((line) => `${indent}  ${line}\n`).join("")}`;
  }
  return isNested(value)
    ? `${indent}${key}:\n${writeSettings(value, `${indent}  `)}`
    : `${indent}${key}: ${flat(value)}\n`;
}

function writeItem(value: unknown, indent: string): string {
  if (!isNested(value)) return `${indent}- ${flat(value)}\n`;
  // The first line of the entry stands beside its dash.
  return `${indent}- ${writeSettings(value, `${indent}  `).slice(indent.length + 2)}`;
}

function isNested(value: unknown): boolean {
  return (Array.isArray(value) || isObject(value)) && Object.keys(value).length > 0;
}

function flat(value: unknown): string {
  if (Array.isArray(value)) return "[]";
  return isObject(value) ? "{}" : writeScalar(value);
}

function writeScalar(value: unknown): string {
  if (typeof value !== "string") return JSON.stringify(value);
  const isPlain = PLAIN.test(value) && !OTHER_MEANINGS.test(value) && !value.endsWith(" ") && !/: |:$/.test(value);
  return isPlain ? value : JSON.stringify(value);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

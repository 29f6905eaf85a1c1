/**
 * URI templates (RFC 6570) of resources: the variables of a template, and the address that values for them make. A value
 * is a text, so `*` behind a name changes nothing. A template that is no valid one has no variables, and stays as it is.
 */

export interface Variable {
  name: string;
  /** Whether the address needs a value for it; others are left out of it. */
  isRequired: boolean;
}

interface Operator {
  /** Before the first value, and between two. */
  first: string;
  separator: string;
  isNamed: boolean;
  /** Whether characters that mean something in a URI stay as they are. */
  isReserved: boolean;
}

const OPERATORS: Readonly<Record<string, Operator>> = {
  "": { first: "", separator: ",", isNamed: false, isReserved: false },
  "+": { first: "", separator: ",", isNamed: false, isReserved: true },
  "#": { first: "#", separator: ",", isNamed: false, isReserved: true },
  ".": { first: ".", separator: ".", isNamed: false, isReserved: false },
  "/": { first: "/", separator: "/", isNamed: false, isReserved: false },
  ";": { first: ";", separator: ";", isNamed: true, isReserved: false },
  "?": { first: "?", separator: "&", isNamed: true, isReserved: false },
  "&": { first: "&", separator: "&", isNamed: true, isReserved: false },
};
const EXPRESSION = /\{([^{}]*)\}/g;
const PARTS = /^([+#./;?&]?)((?:[\w.%]+(?:\*|:\d{1,4})?)(?:,[\w.%]+(?:\*|:\d{1,4})?)*)$/;
// Everything that a URI may have outside of `encodeURIComponent`, and what is encoded already.
const KEPT = /%[0-9A-Fa-f]{2}|[:/?#[\]@!$&'()*+,;=]/g;

/** The variables in their order, each once. Null: there is an expression that is none of a template. */
export function listVariables(template: string): Variable[] | null {
  const found = new Map<string, Variable>();
  for (const [, expression = ""] of template.matchAll(EXPRESSION)) {
    const parts = PARTS.exec(expression);
    if (!parts) return null;
    const operator = OPERATORS[parts[1] ?? ""];
    for (const { name } of readNames(parts[2] ?? "")) {
      const isRequired = found.get(name)?.isRequired ?? false;
      found.set(name, { name, isRequired: isRequired || !operator?.isNamed });
    }
  }
  return [...found.values()];
}

/** The address with these values. A variable without a value, or with an empty one, is left out. */
export function expandTemplate(template: string, values: ReadonlyMap<string, string>): string {
  return template.replace(EXPRESSION, (written, expression: string) => {
    const parts = PARTS.exec(expression);
    const operator = OPERATORS[parts?.[1] ?? ""];
    if (!parts || !operator) return written;
    const texts = readNames(parts[2] ?? "").flatMap(({ name, length }) => {
      const value = values.get(name);
      if (!value) return [];
      const text = encode(Array.from(value).slice(0, length).join(""), operator.isReserved);
      return [operator.isNamed ? `${name}=${text}` : text];
    });
    return texts.length > 0 ? operator.first + texts.join(operator.separator) : "";
  });
}

function readNames(list: string): { name: string; length: number | undefined }[] {
  return list.split(",").map((written) => {
    const [name = "", length] = written.replace(/\*$/, "").split(":");
    return { name, length: length === undefined ? undefined : Number(length) };
  });
}

function encode(text: string, isReserved: boolean): string {
  if (!isReserved) return encodeStrictly(text);
  let encoded = "";
  let end = 0;
  for (const kept of text.matchAll(KEPT)) {
    encoded += encodeStrictly(text.slice(end, kept.index)) + kept[0];
    end = kept.index + kept[0].length;
  }
  return encoded + encodeStrictly(text.slice(end));
}

/** As `encodeURIComponent`, which leaves some reserved characters and fails at half of a character. */
function encodeStrictly(text: string): string {
  const escaped = encodeURIComponent(text.replace(/\p{Surrogate}/gu, "\ufffd"));
  return escaped.replace(/[!'()*]/g, (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`);
}

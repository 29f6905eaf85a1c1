/** Compares two texts by lines, and finds texts to compare in the arguments of a tool call. */

export interface ComparedLine {
  kind: "same" | "removed" | "added";
  text: string;
}

// Lines of each side beyond which the comparison (which takes their product) shows one block after the other.
const MAX_LINES = 1_500;

/** The lines of both texts in order: those that both have once, of the longest common subsequence. */
export function compareLines(before: string, after: string): ComparedLine[] {
  const old = before.split("\n");
  const fresh = after.split("\n");
  if (old.length > MAX_LINES || fresh.length > MAX_LINES) {
    return [...old.map((text) => removed(text)), ...fresh.map((text) => added(text))];
  }
  const lengths = buildLengths(old, fresh);
  const lines: ComparedLine[] = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < fresh.length) {
    const [left, right] = [old[i], fresh[j]];
    if (left !== undefined && left === right) {
      lines.push({ kind: "same", text: left });
      i++;
      j++;
    } else if (left !== undefined && (right === undefined || at(lengths, i + 1, j) >= at(lengths, i, j + 1))) {
      lines.push(removed(left));
      i++;
    } else if (right !== undefined) {
      lines.push(added(right));
      j++;
    }
  }
  return lines;
}

/** How long the common subsequence is from each pair of lines to the end. */
function buildLengths(old: readonly string[], fresh: readonly string[]): Uint16Array[] {
  const lengths = Array.from({ length: old.length + 1 }, () => new Uint16Array(fresh.length + 1));
  for (let i = old.length - 1; i >= 0; i--) {
    const row = lengths[i] ?? new Uint16Array();
    for (let j = fresh.length - 1; j >= 0; j--) {
      row[j] =
        old[i] === fresh[j] ? at(lengths, i + 1, j + 1) + 1 : Math.max(at(lengths, i + 1, j), at(lengths, i, j + 1));
    }
  }
  return lengths;
}

function at(lengths: readonly Uint16Array[], i: number, j: number): number {
  return lengths[i]?.[j] ?? 0;
}

function removed(text: string): ComparedLine {
  return { kind: "removed", text };
}

function added(text: string): ComparedLine {
  return { kind: "added", text };
}

export interface Edit {
  before: string;
  after: string;
}

// How tools that edit name the text that is there and the text that replaces it.
const EDIT_FIELDS = [
  ["old_string", "new_string"],
  ["old_str", "new_str"],
  ["old_text", "new_text"],
  ["oldText", "newText"],
  ["old", "new"],
  ["search", "replace"],
  ["before", "after"],
] as const;

export interface FoundEdits {
  edits: Edit[];
  /** The arguments that the edits do not show. */
  rest: Record<string, unknown>;
}

/** The replacements that the arguments of a call describe, on their top level or in a list. */
export function findEdits(json: string): FoundEdits {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return { edits: [], rest: {} };
  }
  if (!isObject(value)) return { edits: [], rest: {} };
  const own = readEdit(value);
  if (own) return { edits: [own.edit], rest: own.rest };
  for (const [name, each] of Object.entries(value)) {
    if (!Array.isArray(each) || each.length === 0) continue;
    const found = each.map((entry) => (isObject(entry) ? readEdit(entry) : null)).filter((edit) => edit !== null);
    if (found.length !== each.length) continue;
    const isWhole = found.every((entry) => Object.keys(entry.rest).length === 0);
    const rest = Object.fromEntries(Object.entries(value).filter(([other]) => other !== name || !isWhole));
    return { edits: found.map((entry) => entry.edit), rest };
  }
  return { edits: [], rest: value };
}

function readEdit(value: Record<string, unknown>): { edit: Edit; rest: Record<string, unknown> } | null {
  for (const [old, fresh] of EDIT_FIELDS) {
    const before = value[old];
    const after = value[fresh];
    if (typeof before !== "string" || typeof after !== "string") continue;
    const rest = Object.fromEntries(Object.entries(value).filter(([name]) => name !== old && name !== fresh));
    return { edit: { before, after }, rest };
  }
  return null;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

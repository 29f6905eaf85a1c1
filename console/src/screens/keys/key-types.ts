/** Keys as `/v1/keys` has them, with the settings of the gateway file. */
import type { ListedKey } from "../../api/schema";
import type { List } from "../../api/types";
import { formatCost } from "../usage/usage-format";

export interface CallerKey extends ListedKey {
  allow: Partial<Record<ScopeArea, string[] | null>> | null;
  limits: Partial<Record<string, number | null>> | null;
  budget: { amount: number; period: string } | null;
}

/** A page of keys, with whose keys the reader may make and change. */
export interface KeyPage extends List<CallerKey> {
  manages: "all" | "group" | "own" | null;
}

export type { NewKey } from "../../api/schema";

export const SCOPE_AREAS = ["models", "agents", "servers", "tools", "prompts"] as const;
export type ScopeArea = (typeof SCOPE_AREAS)[number];

/** What a form for a key has. All texts, as they are typed. */
export interface KeyDraft {
  name: string;
  /** Empty: none. */
  role: string;
  /** Empty: none. */
  group: string;
  scope: Partial<Record<ScopeArea, string>>;
  limits: Partial<Record<string, string>>;
  amount: string;
  period: string;
  /** In local time, as a field for date and time has it. */
  expires: string;
}

export const EMPTY_DRAFT: KeyDraft = {
  name: "",
  role: "",
  group: "",
  scope: {},
  limits: {},
  amount: "",
  period: "month",
  expires: "",
};

/** What is sent to create or change a key. */
export interface KeyBody {
  name: string;
  role?: string | null;
  group?: string | null;
  allow?: CallerKey["allow"];
  limits?: Record<string, number | string> | null;
  budget?: { amount: number | string; period: string } | null;
  expires?: string | null;
  paused?: boolean;
}

/** A field that the gateway has refused, and why. */
export interface KeyProblem {
  param: string;
  message: string;
}

/** The body that creates a key. Fields that are left empty are left out. */
export function buildBody(draft: KeyDraft): KeyBody {
  const allow = buildScope(EMPTY_DRAFT, draft, {});
  const limits = buildLimits(draft);
  return {
    name: draft.name.trim(),
    ...(draft.role ? { role: draft.role } : {}),
    ...(draft.group.trim() ? { group: draft.group.trim() } : {}),
    ...(allow ? { allow } : {}),
    ...(limits ? { limits } : {}),
    ...(draft.amount.trim() ? { budget: buildBudget(draft) } : {}),
    ...(draft.expires ? { expires: asTime(draft.expires) } : {}),
  };
}

/** A form filled with what a key has. */
export function readDraft(key: CallerKey): KeyDraft {
  const scope = SCOPE_AREAS.map((area) => [area, formatPatterns(area, key.allow?.[area])] as const);
  const limits = Object.entries(key.limits ?? {}).map(([name, value]) => [name, String(value ?? "")] as const);
  return {
    name: key.name,
    role: key.role ?? "",
    group: key.group ?? "",
    scope: Object.fromEntries(scope),
    limits: Object.fromEntries(limits),
    amount: key.budget ? String(key.budget.amount) : "",
    period: key.budget?.period ?? EMPTY_DRAFT.period,
    expires: key.expires ? asLocalTime(new Date(key.expires)) : "",
  };
}

/** The body that changes a key. A setting that was not touched is left out, and one that was emptied is null. */
export function buildChanges(key: CallerKey, draft: KeyDraft): KeyBody {
  const before = readDraft(key);
  const isBudgetTouched = draft.amount.trim() !== before.amount || (draft.amount && draft.period !== before.period);
  return {
    name: key.name,
    ...(draft.role === before.role ? {} : { role: draft.role || null }),
    ...(draft.group.trim() === before.group ? {} : { group: draft.group.trim() || null }),
    ...(isSame(before.scope, draft.scope) ? {} : { allow: buildScope(before, draft, key.allow ?? {}) }),
    ...(isSame(before.limits, draft.limits) ? {} : { limits: buildLimits(draft) }),
    ...(isBudgetTouched ? { budget: draft.amount.trim() ? buildBudget(draft) : null } : {}),
    ...(draft.expires === before.expires ? {} : { expires: draft.expires ? asTime(draft.expires) : null }),
  };
}

/** Whether a body has more than the name. */
export function hasChanges(body: KeyBody): boolean {
  return Object.keys(body).length > 1;
}

/** The part of the form that a refused field belongs to: `allow.models` for `allow.models[0]`. Empty: none. */
export function findPlace(param: string): string {
  const [, group = "", name = ""] = /^(\w+)(?:\.(\w+))?/.exec(param) ?? [];
  if (["name", "role", "group", "expires"].includes(group)) return group;
  if (group === "budget") return name === "amount" ? param : group;
  if (group === "allow") return (SCOPE_AREAS as readonly string[]).includes(name) ? `${group}.${name}` : group;
  return group === "limits" ? [group, name].filter(Boolean).join(".") : "";
}

/** Patterns as text. A list that allows nothing is a denial of everything, since an empty field allows everything. */
function formatPatterns(area: ScopeArea, patterns: string[] | null | undefined): string {
  if (!patterns) return "";
  return patterns.length > 0 ? patterns.join(", ") : area === "tools" || area === "prompts" ? "!*.*" : "!*";
}

/** The scope of a draft. An area that was not touched stays as it was in `allow`. */
function buildScope(before: KeyDraft, draft: KeyDraft, allow: NonNullable<CallerKey["allow"]>): CallerKey["allow"] {
  const areas = SCOPE_AREAS.flatMap((area) => {
    const text = draft.scope[area] ?? "";
    const patterns = text === (before.scope[area] ?? "") ? allow[area] : splitPatterns(text);
    return patterns && (patterns === allow[area] || patterns.length > 0) ? [[area, patterns] as const] : [];
  });
  return areas.length > 0 ? Object.fromEntries(areas) : null;
}

function buildLimits(draft: KeyDraft): Record<string, number | string> | null {
  const entered = Object.entries(draft.limits).flatMap(([name, text]) =>
    text?.trim() ? [[name, asNumber(text)] as const] : [],
  );
  return entered.length > 0 ? Object.fromEntries(entered) : null;
}

function buildBudget(draft: KeyDraft): { amount: number | string; period: string } {
  return { amount: asNumber(draft.amount), period: draft.period };
}

/** Whether two sets of texts are the same. A field that was never filled is empty. */
function isSame(one: Partial<Record<string, string>>, other: Partial<Record<string, string>>): boolean {
  const names = [...Object.keys(one), ...Object.keys(other)];
  return names.every((name) => (one[name] ?? "").trim() === (other[name] ?? "").trim());
}

/** Patterns between commas, spaces or lines. */
export function splitPatterns(text = ""): string[] {
  return text.split(/[\s,]+/).filter(Boolean);
}

/** A number, or the text where it is none, so that the gateway says what is wrong with it. */
function asNumber(text: string): number | string {
  const value = Number(text);
  return Number.isFinite(value) ? value : text;
}

/** A local time as the API has it; the text where it is none, so that the gateway says what is wrong with it. */
function asTime(text: string): string {
  const time = new Date(text);
  return Number.isNaN(time.getTime()) ? text : time.toISOString();
}

/** A time as a field for date and time has it. */
function asLocalTime(time: Date): string {
  const local = new Date(time.getTime() - time.getTimezoneOffset() * 60_000);
  return Number.isNaN(local.getTime()) ? "" : local.toISOString().slice(0, 16);
}

/** What a key may use, in a line. */
export function describeScope(allow: CallerKey["allow"]): string {
  const parts = SCOPE_AREAS.flatMap((area) => {
    const patterns = allow?.[area];
    return patterns ? [`${area}: ${patterns.join(", ") || "none"}`] : [];
  });
  return parts.join("; ") || "everything";
}

function describeSpending({ spent, left, resets_at }: NonNullable<CallerKey["spending"]>): string {
  const reset = new Date(resets_at * 1000).toISOString().slice(0, 16).replace("T", " ");
  return `spent: ${formatCost(spent)}, left: ${formatCost(left)} until ${reset} UTC`;
}

export function describeLimits(key: CallerKey): string {
  const limits = Object.entries(key.limits ?? {}).flatMap(([name, value]) =>
    value === null || value === undefined ? [] : [`${name.replaceAll("_", " ")}: ${value}`],
  );
  if (key.budget) limits.push(`budget: ${key.budget.amount} per ${key.budget.period}`);
  if (key.spending) limits.push(describeSpending(key.spending));
  return limits.join("; ") || "as for all";
}

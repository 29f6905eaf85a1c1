/** Keys as `/v1/keys` has them. */

export interface CallerKey {
  name: string;
  admin: boolean;
  allow: Partial<Record<ScopeArea, string[] | null>> | null;
  limits: Partial<Record<string, number | null>> | null;
  budget: { amount: number; period: string } | null;
  hash: string;
  old_hash_expires: string | null;
}

export interface NewKey extends CallerKey {
  key: string;
}

export const SCOPE_AREAS = ["models", "agents", "servers", "tools"] as const;
export type ScopeArea = (typeof SCOPE_AREAS)[number];

/** What a form for a key has. All texts, as they are typed. */
export interface KeyDraft {
  name: string;
  isOperator: boolean;
  scope: Partial<Record<ScopeArea, string>>;
  limits: Partial<Record<string, string>>;
  amount: string;
  period: string;
}

/** The body that creates a key. Fields that are left empty are left out. */
export function buildBody(draft: KeyDraft): Record<string, unknown> {
  const body: Record<string, unknown> = { name: draft.name.trim() };
  if (draft.isOperator) body["admin"] = true;
  const scope = Object.entries(draft.scope).map(([area, text]) => [area, splitPatterns(text)] as const);
  const allow = Object.fromEntries(scope.filter(([, patterns]) => patterns.length > 0));
  if (Object.keys(allow).length > 0) body["allow"] = allow;
  const entered = Object.entries(draft.limits).flatMap(([name, text]) =>
    text?.trim() ? [[name, asNumber(text)] as const] : [],
  );
  if (entered.length > 0) body["limits"] = Object.fromEntries(entered);
  if (draft.amount.trim()) body["budget"] = { amount: asNumber(draft.amount), period: draft.period };
  return body;
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

/** What a key may use, in a line. */
export function describeScope(allow: CallerKey["allow"]): string {
  const parts = SCOPE_AREAS.flatMap((area) => {
    const patterns = allow?.[area];
    return patterns ? [`${area}: ${patterns.join(", ") || "none"}`] : [];
  });
  return parts.join("; ") || "everything";
}

export function describeLimits(key: CallerKey): string {
  const limits = Object.entries(key.limits ?? {}).flatMap(([name, value]) =>
    value === null || value === undefined ? [] : [`${name.replaceAll("_", " ")}: ${value}`],
  );
  if (key.budget) limits.push(`budget: ${key.budget.amount} per ${key.budget.period}`);
  return limits.join("; ") || "as for all";
}

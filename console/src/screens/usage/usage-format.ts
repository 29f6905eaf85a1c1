/** Times and values of usage as people read them. */
import { formatCount, formatSeconds } from "../../components/format";
import type { Bucket, Unit } from "./usage-report";

export function formatValue(value: number | null | undefined, unit: Unit): string {
  if (value === null || value === undefined) return "–";
  if (unit === "seconds") return formatSeconds(value);
  return unit === "cost" ? formatCost(value) : formatCount(value);
}

/** An amount without a currency, which the gateway does not know: two digits, or as many as a small one needs. */
export function formatCost(value: number): string {
  if (value === 0) return "0";
  if (value >= 1) return value.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
  return Number(value.toPrecision(2)).toLocaleString("en", { maximumFractionDigits: 10 });
}

/** A value on an axis, where there is little room. */
export function formatTick(value: number, unit: Unit): string {
  if (unit === "seconds") return value === 0 ? "0" : value < 1 ? `${Math.round(value * 1000)} ms` : `${trim(value)} s`;
  if (unit === "cost") return formatCost(value);
  if (value >= 1_000_000) return `${trim(value / 1_000_000)} M`;
  return value >= 1_000 ? `${trim(value / 1_000)} k` : trim(value);
}

function trim(value: number): string {
  return Number(value.toFixed(2)).toString();
}

/** The start of a bucket. Days are those of UTC, as the gateway adds them up. */
export function formatBucket(seconds: number, bucket: Bucket, { withDate = true } = {}): string {
  const at = new Date(seconds * 1000);
  if (bucket === "day") return at.toLocaleDateString("en", { month: "short", day: "numeric", timeZone: "UTC" });
  const time = at.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  return withDate ? `${at.toLocaleDateString("en", { month: "short", day: "numeric" })} ${time}` : time;
}

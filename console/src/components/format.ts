/** Numbers and times as people read them. */

export function formatSeconds(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds > 0 && seconds < 0.0005) return "<1 ms";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${seconds.toFixed(seconds < 9.995 ? 2 : 1)} s`;
  const rounded = Math.round(seconds);
  const minutes = Math.floor(rounded / 60);
  return minutes < 60 ? `${minutes} min ${rounded % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

const whole = new Intl.NumberFormat("en");

export function formatCount(count: number | null | undefined): string {
  return count === null || count === undefined ? "–" : whole.format(count);
}

export function formatBytes(bytes: number): string {
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 999_500 ? `${(bytes / 1000).toFixed(0)} kB` : `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** The time of a Unix time: today's without the date. */
export function formatTime(seconds: number, now = new Date()): string {
  const at = new Date(seconds * 1000);
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  return at.toDateString() === now.toDateString()
    ? time
    : `${at.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}

/** JSON text with indents; text that is no JSON stays as it is. */
export function indentJSON(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

/** The first line of a text that may have several, which a list has no room for. */
export function cutLines(text: string): string {
  const [first = "", ...others] = text.trim().split(/\s*\n/);
  return others.length > 0 ? `${first} …` : first;
}

/** The share of the tokens of an input that came from a prompt cache. */
export function formatShare(part: number, whole: number): string {
  return part === 0 ? "0" : `${Math.round((part / Math.max(whole, 1)) * 100)} %`;
}

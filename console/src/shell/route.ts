/** The hash of the page as a route: `#/runs/resp_x?status=failed` has the segments `runs` and `resp_x` and a query. */
import { signal } from "@preact/signals";

export interface Route {
  segments: readonly string[];
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const segments = path.split("/").filter(Boolean).map(decodeSegment);
  return { segments, query: new URLSearchParams(query) };
}

export function buildHash(segments: readonly string[], query: Record<string, string | undefined> = {}): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) if (value) search.set(name, value);
  const text = search.toString();
  return `#/${segments.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export const route = signal(parseRoute(location.hash));

window.addEventListener("hashchange", () => {
  route.value = parseRoute(location.hash);
});

/** Go to a route. `replace`: without an entry in the history, as for a filter that changes with each letter. */
export function goTo(hash: string, { replace = false } = {}): void {
  if (!replace) {
    location.hash = hash;
    return;
  }
  history.replaceState(null, "", hash);
  route.value = parseRoute(hash);
}

function decodeSegment(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

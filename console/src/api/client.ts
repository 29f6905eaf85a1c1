/**
 * Requests to the gateway that serves this page. Paths are relative to the page, so a proxy may add a prefix.
 * A refused request throws `APIError` with the words of the gateway; one that gets no answer throws `UnreachableError`.
 */
import { isKeyNeeded, key, loginPath } from "./key";

export class APIError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string,
    /** The field of the request that was refused; empty if it is none. */
    readonly param = "",
  ) {
    super(message);
  }
}

export class UnreachableError extends Error {}

export interface RequestOptions {
  method?: "GET" | "POST" | "DELETE" | "PATCH" | "PUT";
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** The URL of a path of the gateway, such as `v1/models`, as a person would write it. */
export function urlOf(path: string): string {
  const page = new URL(location.href);
  page.hash = "";
  page.search = "";
  return new URL(path, page).href;
}

/** Send a request and return the answer with its body unread. */
export async function send(path: string, options: RequestOptions = {}): Promise<Response> {
  const headers = new Headers({ accept: "application/json", ...options.headers });
  const usedKey = key.value;
  if (usedKey) headers.set("authorization", `Bearer ${usedKey}`);
  // Without a key, the cookie of a login says whose request it is.
  const credentials = usedKey ? "omit" : "same-origin";
  const request: RequestInit = { method: options.method ?? "GET", headers, cache: "no-store", credentials };
  if (options.signal) request.signal = options.signal;
  if (options.body !== undefined) {
    headers.set("content-type", "application/json");
    request.body = JSON.stringify(options.body);
  }
  let answer: Response;
  try {
    answer = await fetch(path, request);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new UnreachableError("The gateway does not answer.");
  }
  // The answer to a request with the key before says nothing about the one that was entered meanwhile.
  if (answer.status === 401 && usedKey === key.value) {
    loginPath.value = answer.headers.get("x-holodeck-login") ?? "";
    isKeyNeeded.value = true;
  }
  if (!answer.ok) throw await readError(answer);
  return answer;
}

/** Send a request and return the JSON of its answer, of which the caller states the type. */
export async function fetchJSON<T>(path: string, options: RequestOptions = {}): Promise<T> {
  const answer = await send(path, options);
  return (await answer.json()) as T;
}

async function readError(answer: Response): Promise<APIError> {
  try {
    const said = (await answer.json()) as { error?: { message?: unknown; code?: unknown; param?: unknown } };
    const message = said.error?.message;
    const code = said.error?.code;
    const param = said.error?.param;
    return new APIError(
      typeof message === "string" ? message : `The gateway answered with status ${answer.status}.`,
      answer.status,
      typeof code === "string" ? code : "",
      typeof param === "string" ? param : "",
    );
  } catch {
    return new APIError(`The gateway answered with status ${answer.status}.`, answer.status, "");
  }
}

/** Something of the gateway that a screen shows: read when it is first needed, and again on demand. */
import { useCallback, useEffect, useState } from "preact/hooks";
import { fetchJSON } from "../api/client";

export interface Resource<T> {
  value: T | null;
  /** Why the latest read failed. The value of the read before stays. */
  error: Error | null;
  read: () => Promise<void>;
}

/**
 * Read a path of the gateway. A change of the path reads again, and drops what was read of the other; unless both are
 * of the same `subject`, as a report whose path has the time.
 */
export function useResource<T>(path: string, subject = path): Resource<T> {
  const [state, setState] = useState<{ subject: string; value: T | null; error: Error | null }>({
    subject,
    value: null,
    error: null,
  });
  const read = useCallback(async () => {
    try {
      const value = await fetchJSON<T>(path);
      setState({ subject, value, error: null });
    } catch (error) {
      const failed = asError(error);
      setState((before) => ({ subject, value: before.subject === subject ? before.value : null, error: failed }));
    }
  }, [path, subject]);
  useEffect(() => void read(), [read]);
  const isCurrent = state.subject === subject;
  return { value: isCurrent ? state.value : null, error: isCurrent ? state.error : null, read };
}

export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

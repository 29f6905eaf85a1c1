/** Something of the gateway that a screen shows: read when it is first needed, and again on demand. */
import { useCallback, useEffect, useState } from "preact/hooks";
import { fetchJSON } from "../api/client";

export interface Resource<T> {
  value: T | null;
  /** Why the latest read failed. The value of the read before stays. */
  error: Error | null;
  read: () => Promise<void>;
}

/** Read a path of the gateway. A change of the path reads again, and drops what was read of the other. */
export function useResource<T>(path: string): Resource<T> {
  const [state, setState] = useState<{ path: string; value: T | null; error: Error | null }>({
    path,
    value: null,
    error: null,
  });
  const read = useCallback(async () => {
    try {
      const value = await fetchJSON<T>(path);
      setState({ path, value, error: null });
    } catch (error) {
      setState((before) => ({ path, value: before.path === path ? before.value : null, error: asError(error) }));
    }
  }, [path]);
  useEffect(() => void read(), [read]);
  const isCurrent = state.path === path;
  return { value: isCurrent ? state.value : null, error: isCurrent ? state.error : null, read };
}

export function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}

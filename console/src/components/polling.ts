/** Reads something again and again, only while the page is visible and there is a reason to. */
import { useEffect } from "preact/hooks";

/** Call `read` every `milliseconds` while `isLive`. A hidden page waits until it is visible again. */
export function usePolling(read: () => Promise<void>, isLive: boolean, milliseconds: number): void {
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isClosed = false;
    const next = () => {
      if (!isClosed && isLive) timer = setTimeout(() => void readOnce(), milliseconds);
    };
    const readOnce = async () => {
      clearTimeout(timer);
      if (document.visibilityState === "visible") await read();
      next();
    };
    const onVisible = () => {
      if (document.visibilityState === "visible" && isLive) void readOnce();
    };
    document.addEventListener("visibilitychange", onVisible);
    next();
    return () => {
      isClosed = true;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
    };
  }, [read, isLive, milliseconds]);
}

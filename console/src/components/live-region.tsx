/** Says a text that grows to screen readers, sentence by sentence instead of letter by letter. */
import { useEffect, useRef, useState } from "preact/hooks";

// Between two announcements: a shorter pause lets screen readers drop the one before.
const PAUSE_MS = 1_200;

/** How much of a text is whole sentences or lines. */
export function endOfSentences(text: string): number {
  const ends = [...text.matchAll(/[.!?:](?=\s)|\n/g)];
  const last = ends.at(-1);
  return last ? last.index + 1 : 0;
}

export function LiveRegion({ text, isFinished }: { text: string; isFinished: boolean }) {
  const [said, setSaid] = useState("");
  const saidUpTo = useRef(0);
  const latest = useRef({ text, isFinished });
  latest.current = { text, isFinished };

  useEffect(() => {
    const timer = setInterval(() => {
      const { text: current, isFinished: isWhole } = latest.current;
      if (saidUpTo.current > current.length) saidUpTo.current = 0;
      const end = isWhole ? current.length : endOfSentences(current);
      if (end > saidUpTo.current) setSaid(current.slice(saidUpTo.current, end));
      saidUpTo.current = Math.max(end, saidUpTo.current);
      if (isWhole) clearInterval(timer);
    }, PAUSE_MS);
    return () => clearInterval(timer);
  }, [isFinished]);

  return (
    <div class="visually-hidden" aria-live="polite">
      {said}
    </div>
  );
}

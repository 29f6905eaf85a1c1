/** The difference of two texts, line by line. Signs and words carry it, not the colours alone. */
import { compareLines } from "./compare-lines";

export function Difference({ before, after }: { before: string; after: string }) {
  return (
    <div class="difference" role="group" aria-label="Difference">
      {compareLines(before, after).map((line, index) => (
        <div key={index} class={`difference-line ${line.kind}`}>
          <span aria-hidden="true">{SIGNS[line.kind]}</span>
          <span class="visually-hidden">{WORDS[line.kind]}</span>
          <code>{line.text || " "}</code>
        </div>
      ))}
    </div>
  );
}

const SIGNS = { same: " ", removed: "-", added: "+" };
const WORDS = { same: "", removed: "removed: ", added: "added: " };

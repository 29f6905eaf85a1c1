/** Runs: the list at `#/runs`, one at `#/runs/ID`, two side by side at `#/runs/ID?with=ID`. */
import type { ScreenProps } from "../../shell/screen";
import { RunList } from "./run-list";
import { RunScreen } from "./run-view";

export function RunsScreen({ segments, query }: ScreenProps) {
  const [id] = segments;
  if (!id) return <RunList query={query} />;
  const other = query.get("with");
  const ids = other && other !== id ? [id, other] : [id];
  return <RunScreen key={ids.join(" ")} ids={ids} />;
}

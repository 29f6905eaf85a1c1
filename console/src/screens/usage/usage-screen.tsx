/** Usage over time: charts, the table behind each, totals by group, and a file for a spreadsheet. */
import { useMemo, useState } from "preact/hooks";
import { send } from "../../api/client";
import { Failure } from "../../components/failure";
import { formatCount, formatShare } from "../../components/format";
import { saveFile } from "../../components/save-file";
import { asError, useResource } from "../../components/resource";
import { buildHash, goTo } from "../../shell/route";
import type { ScreenProps } from "../../shell/screen";
import { usePolling } from "../../components/polling";
import { ChartView } from "./chart-view";
import { formatCost } from "./usage-format";
import {
  buildCharts,
  buildPath,
  emptyTotal,
  findGroup,
  findRange,
  GROUPS,
  isOfCalls,
  listTotals,
  MAX_SERIES,
  RANGES,
  type Group,
  type Range,
  type UsageReport,
} from "./usage-report";

// Between two reads of a report.
const POLL_MS = 15_000;

export function UsageScreen({ query }: ScreenProps) {
  const range = findRange(query.get("range"));
  const group = findGroup(query.get("by"));
  const path = buildPath(range, group, Date.now() / 1000);
  const report = useResource<UsageReport>(path, `${range.id} ${group ?? ""}`);
  usePolling(report.read, true, POLL_MS);
  const choose = (changed: { range?: string; by?: string }) =>
    goTo(buildHash(["usage"], { range: range.id, by: group ?? "", ...changed }), { replace: true });
  return (
    <div class="screen-padding usage-screen">
      <h1>Usage</h1>
      <form class="filters" aria-label="Choose usage" onSubmit={(event) => event.preventDefault()}>
        <label>
          Last
          <select value={range.id} onChange={(event) => choose({ range: event.currentTarget.value })}>
            {RANGES.map((each) => (
              <option key={each.id} value={each.id}>
                {each.label}
              </option>
            ))}
          </select>
        </label>
        <label>
          By
          <select value={group ?? ""} onChange={(event) => choose({ by: event.currentTarget.value })}>
            <option value="">all together</option>
            {GROUPS.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
        <Download path={path} name={`usage-${range.id}${group ? `-by-${group}` : ""}.csv`} />
      </form>
      {report.error && <Failure error={report.error} />}
      {!report.value && !report.error && <p class="hint">Loading…</p>}
      {report.value && <Report report={report.value} range={range} group={group} />}
    </div>
  );
}

function Report({ report, range, group }: { report: UsageReport; range: Range; group: Group | null }) {
  const charts = useMemo(() => buildCharts(report, range, group), [report, range, group]);
  const totals = useMemo(() => listTotals(report.data, group), [report, group]);
  if (totals.length === 0) {
    return (
      <div class="empty">
        <h2>Nothing was used in this time</h2>
        <p>
          Every request that uses a model is counted, and every tool call. Ask something in the{" "}
          <a href="#/playground">playground</a>.
        </p>
      </div>
    );
  }
  return (
    <>
      {group ? <Totals totals={totals} group={group} /> : <Sums total={listTotals(report.data, null)[0]} />}
      {group && totals.length > MAX_SERIES && <p class="hint">The charts show the {MAX_SERIES} largest.</p>}
      <div class="charts">
        {charts.map((chart) => (
          <ChartView key={chart.title} chart={chart} bucket={range.bucket} isOneDay={range.seconds <= 86_400} />
        ))}
      </div>
    </>
  );
}

function Sums({ total = emptyTotal("") }: { total?: ReturnType<typeof emptyTotal> | undefined }) {
  const sums: [string, string][] = [
    ["Requests", formatCount(total.requests)],
    ["Errors", formatCount(total.errors)],
    ["Tokens in", formatCount(total.input_tokens)],
    ["Cached", formatShare(total.cached_tokens, total.input_tokens)],
    ["Tokens out", formatCount(total.output_tokens)],
    // Of answers that were cut, whose provider has told nothing.
    ...(total.estimated_tokens ? [["Estimated", formatCount(total.estimated_tokens)] as [string, string]] : []),
    ["Tool calls", formatCount(total.tool_calls)],
    ["Cost", total.cost === null ? "no prices" : formatCost(total.cost)],
  ];
  return (
    <dl class="facts sums">
      {sums.map(([label, value]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Totals({ totals, group }: { totals: ReturnType<typeof listTotals>; group: Group }) {
  const isCalls = isOfCalls(group);
  return (
    <div class="table-scroll" role="region" aria-label="Totals" tabIndex={0}>
      <table class="plain-table">
        <thead>
          <tr>
            <th>{`${group.charAt(0).toUpperCase()}${group.slice(1)}`}</th>
            <th class="number">{isCalls ? "Calls" : "Requests"}</th>
            <th class="number">Errors</th>
            {!isCalls && <th class="number">Tokens in</th>}
            {!isCalls && <th class="number">Tokens out</th>}
            {!isCalls && <th class="number">Cost</th>}
          </tr>
        </thead>
        <tbody>
          {totals.map((total) => (
            <tr key={total.name}>
              <td>{total.name}</td>
              <td class="number">{formatCount(isCalls ? total.tool_calls : total.requests)}</td>
              <td class="number">{formatCount(total.errors)}</td>
              {!isCalls && <td class="number">{formatCount(total.input_tokens)}</td>}
              {!isCalls && <td class="number">{formatCount(total.output_tokens)}</td>}
              {!isCalls && <td class="number">{total.cost === null ? "–" : formatCost(total.cost)}</td>}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The report as the gateway writes it for a spreadsheet. */
function Download({ path, name }: { path: string; name: string }) {
  const [failure, setFailure] = useState("");
  const download = async () => {
    setFailure("");
    try {
      const answer = await send(`${path}&format=csv`);
      saveFile(await answer.blob(), name);
    } catch (error) {
      setFailure(asError(error).message);
    }
  };
  return (
    <>
      <button type="button" class="download" onClick={() => void download()}>
        Download CSV
      </button>
      {failure && (
        <p class="alert" role="alert">
          {failure}
        </p>
      )}
    </>
  );
}

/** One chart with its legend and the table behind it. What draws it is loaded last; without it the table is there. */
import { useEffect, useRef, useState } from "preact/hooks";
import { theme } from "../../shell/theme";
import type { PlotReader } from "./plot";
import { formatBucket, formatValue } from "./usage-format";
import type { Bucket, Chart } from "./usage-report";

interface ChartViewProps {
  chart: Chart;
  bucket: Bucket;
  isOneDay: boolean;
}

export function ChartView({ chart, bucket, isOneDay }: ChartViewProps) {
  const [index, setIndex] = useState<number | null>(null);
  const time = index === null ? undefined : chart.times[index];
  const nameTime = (seconds: number) => formatBucket(seconds, bucket, { withDate: !isOneDay });
  return (
    <figure class="chart">
      <figcaption>
        <h2>{chart.title}</h2>
        <span class="hint" aria-hidden="true">
          {time === undefined ? "" : nameTime(time)}
        </span>
      </figcaption>
      <Plot chart={chart} bucket={bucket} onIndex={setIndex} nameTime={nameTime} />
      <ul class="legend">
        {chart.series.map(({ label, values }, each) => (
          <li key={label}>
            <span class={`swatch series-${each}`} aria-hidden="true" /> {label}
            {index !== null && <strong aria-hidden="true"> {formatValue(values[index], chart.unit)}</strong>}
          </li>
        ))}
      </ul>
      <ValueTable chart={chart} nameTime={nameTime} />
    </figure>
  );
}

interface PlotProps extends PlotReader {
  chart: Chart;
  bucket: Bucket;
}

function Plot({ chart, bucket, onIndex, nameTime }: PlotProps) {
  const element = useRef<HTMLDivElement>(null);
  const colours = useColours();
  const [isMissing, setIsMissing] = useState(false);
  const latest = useRef({ onIndex, nameTime });
  latest.current = { onIndex, nameTime };
  useEffect(() => {
    const parent = element.current;
    let remove: (() => void) | undefined;
    let isClosed = false;
    import("./plot").then(
      ({ drawPlot }) => {
        if (parent && !isClosed) remove = drawPlot(parent, chart, bucket, latest);
      },
      () => setIsMissing(true),
    );
    return () => {
      isClosed = true;
      remove?.();
    };
  }, [chart, bucket, colours]);
  if (isMissing) return <p class="hint">This browser could not load what draws the chart. The table has its values.</p>;
  return <div ref={element} class="plot" role="img" aria-label={`${chart.title} over time. ${describe(chart)}`} />;
}

/** What a chart shows, for those who do not see it. The table has the rest. */
function describe(chart: Chart): string {
  const parts = chart.series.map(({ label, values }) => {
    const most = values.reduce<number>((found, value) => Math.max(found, value ?? 0), 0);
    return `${label}: at most ${formatValue(most, chart.unit)}`;
  });
  return `${parts.join("; ")}. The values are in the table below.`;
}

/** Changes when the colours of the page do, so that a plot is drawn again with the new ones. */
function useColours(): string {
  const [isDark, setIsDark] = useState(matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const onChange = () => setIsDark(query.matches);
    query.addEventListener("change", onChange);
    return () => query.removeEventListener("change", onChange);
  }, []);
  return `${theme.value} ${isDark}`;
}

function ValueTable({ chart, nameTime }: { chart: Chart; nameTime: (seconds: number) => string }) {
  const [isOpen, setIsOpen] = useState(false);
  const rows = chart.times
    .map((time, index) => ({ time, values: chart.series.map(({ values }) => values[index] ?? null) }))
    .filter(({ values }) => values.some((value) => value))
    .reverse();
  return (
    <details onToggle={(event) => setIsOpen(event.currentTarget.open)}>
      <summary>Table of {chart.title.toLowerCase()}</summary>
      {isOpen && (
        <div class="table-scroll" role="region" aria-label={`Table of ${chart.title}`} tabIndex={0}>
          <table class="plain-table">
            <thead>
              <tr>
                <th>Time</th>
                {chart.series.map(({ label }) => (
                  <th key={label} class="number">
                    {label}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {rows.map(({ time, values }) => (
                <tr key={time}>
                  <td>{nameTime(time)}</td>
                  {values.map((value, index) => (
                    <td key={index} class="number">
                      {formatValue(value, chart.unit)}
                    </td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </details>
  );
}

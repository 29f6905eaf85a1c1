/** Draws a chart with uPlot. Lines differ in colour and in dashes. */
import uPlot from "uplot";
import { formatTick } from "./usage-format";
import { BUCKET_SECONDS, findIsolated, type Bucket, type Chart } from "./usage-report";

const HEIGHT = 170;
const DASHES: readonly number[][] = [[], [7, 4], [2, 3], [10, 3, 2, 3], [5, 2], [1, 2]];

/** What a plot calls: with the index that the pointer is at, and for the name of a time. */
export interface PlotReader {
  onIndex: (index: number | null) => void;
  nameTime: (seconds: number) => string;
}

interface Latest {
  readonly current: PlotReader;
}

/** Draw a chart into an element, as wide as it is, until the returned function is called. */
export function drawPlot(parent: HTMLElement, chart: Chart, bucket: Bucket, latest: Latest): () => void {
  // Counts are steps as wide as a bucket, the last one too; so the axis goes on to its end.
  const end = (chart.times.at(-1) ?? 0) + BUCKET_SECONDS[bucket];
  const last = (values: (number | null)[]) => (chart.unit === "seconds" ? null : (values.at(-1) ?? null));
  const data: uPlot.AlignedData = [
    [...chart.times, end],
    ...chart.series.map(({ values }) => [...values, last(values)]),
  ];
  const plot = new uPlot(buildOptions(parent, chart, bucket, latest), data, parent);
  const observer = new ResizeObserver(() => plot.setSize({ width: parent.clientWidth, height: HEIGHT }));
  observer.observe(parent);
  return () => {
    observer.disconnect();
    plot.destroy();
  };
}

function buildOptions(parent: HTMLElement, chart: Chart, bucket: Bucket, latest: Latest): uPlot.Options {
  const ink = readColour(parent, "hint");
  const line = readColour(parent, "plot-line");
  const axis: uPlot.Axis = {
    stroke: ink,
    font: "12px system-ui, sans-serif",
    grid: { stroke: line, width: 1 },
    ticks: { show: false },
  };
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  return {
    width: parent.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: false, y: false }, points: { size: 7 } },
    // Days are those of UTC.
    ...(bucket === "day" ? { tzDate: (seconds: number) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") } : {}),
    scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
    axes: [
      {
        ...axis,
        size: 28,
        space: 70,
        grid: { show: false },
        values: (_, splits) => splits.map(latest.current.nameTime),
      },
      { ...axis, size: 62, values: (_, splits) => splits.map((value) => formatTick(value, chart.unit)) },
    ],
    series: [
      {},
      ...chart.series.map(({ label, values }, index): uPlot.Series => {
        const dash = DASHES[index] ?? [];
        const isStepped = chart.unit !== "seconds" && stepped;
        const stroke = readColour(parent, `series-${index}`);
        // Where buckets are too many for a dot each, those remain that no line leads to.
        const filter = (_: uPlot, __: number, showsAll: boolean) => (showsAll ? null : findIsolated(values));
        return {
          label,
          stroke,
          width: 2,
          ...(dash.length > 0 ? { dash } : {}),
          ...(isStepped ? { paths: stepped, points: { show: false } } : { points: { size: 7, fill: stroke, filter } }),
        };
      }),
    ],
    hooks: { setCursor: [(plot) => latest.current.onIndex(findIndex(plot, chart))] },
  };
}

/** The bucket that the pointer is at. The end of the last one belongs to it. */
function findIndex(plot: uPlot, chart: Chart): number | null {
  const index = plot.cursor.idx;
  return index === null || index === undefined ? null : Math.min(index, chart.times.length - 1);
}

/** The colour that a class has in the theme of now. */
function readColour(parent: HTMLElement, name: string): string {
  const probe = document.createElement("span");
  probe.className = name;
  parent.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

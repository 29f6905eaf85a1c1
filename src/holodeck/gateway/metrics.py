"""Counters and histograms of the gateway, rendered as Prometheus text. Labels are names, never values of arguments."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from holodeck.models.events import RunResult

# Label sets of the tool metrics: more would overload a dashboard.
MAX_METRIC_SERIES = 2_000

# The label of everything over the limit of series.
OTHER_LABEL = "other"
# The label of every server that a request declares: clients may invent any number of names.
REQUEST_SERVER_LABEL = "(request)"
# Upper bounds of the histograms, in seconds.
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
Labels = tuple[tuple[str, str], ...]


@dataclass
class _Histogram:
    counts: list[int] = field(default_factory=lambda: [0] * (len(_BUCKETS) + 1))
    total: float = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(_BUCKETS, value)] += 1
        self.total += value


class Metrics:
    """The counters and histograms of one gateway. Cheap enough for every request."""

    def __init__(self, servers: Collection[str] | None = None) -> None:
        """`servers`: the names of the operator's MCP servers. All others are counted as one. None: each by its name."""
        self._servers = servers
        self._counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(lambda: defaultdict(_Histogram))

    def add_servers(self, names: Collection[str]) -> None:
        """Count the calls of further servers of the operator by their names.

        Names of servers that the operator has removed stay: runs that began before may still call them.
        """
        if self._servers is not None:
            self._servers = frozenset((*self._servers, *names))

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        labels = (("route", route), ("method", method), ("status", str(status)))
        self._counters["holodeck_requests_total"][labels] += 1
        self._histograms["holodeck_request_seconds"][(("route", route),)].observe(seconds)

    def count_tool_call(self, server: str, tool: str, seconds: float, *, is_error: bool) -> None:
        """Count a tool call. The tool must exist: models invent names, which would each be a label."""
        if server and self._servers is not None and server not in self._servers:
            server, tool = REQUEST_SERVER_LABEL, OTHER_LABEL
        calls, times = self._counters["holodeck_tool_calls_total"], self._histograms["holodeck_tool_seconds"]
        labels: Labels = (("server", server), ("tool", tool))
        if labels not in times and len(times) >= MAX_METRIC_SERIES:
            labels = (("server", OTHER_LABEL), ("tool", OTHER_LABEL))
        calls[(*labels, ("outcome", "error" if is_error else "ok"))] += 1
        times[labels].observe(seconds)

    def count_run(self, model: str, result: RunResult) -> None:
        """Count a finished run. `model`: the public model name."""
        name = ("model", model)
        self._counters["holodeck_runs_total"][(name, ("status", result.status))] += 1
        self._counters["holodeck_turns_total"][(name,)] += result.turns
        self._counters["holodeck_tokens_total"][(name, ("direction", "input"))] += result.usage.input_tokens
        self._counters["holodeck_tokens_total"][(name, ("direction", "output"))] += result.usage.output_tokens
        self._histograms["holodeck_run_seconds"][(name,)].observe(result.seconds)

    def count(self, name: str, times: int) -> None:
        """Add to a counter without labels. 0 creates it, so that it is rendered before the first event."""
        self._counters[name][()] += times

    def render(self, gauges: Mapping[str, Iterable[tuple[Labels, float]]]) -> bytes:
        """Render all counters and histograms, with `gauges`, whose values are those of this moment."""
        lines: list[str] = []
        for name, counters in sorted(self._counters.items()):
            lines.append(f"# TYPE {name} counter")
            lines += [f"{name}{_format_labels(labels)} {_format_number(value)}" for labels, value in counters.items()]
        for name, histograms in sorted(self._histograms.items()):
            lines.append(f"# TYPE {name} histogram")
            for labels, histogram in histograms.items():
                lines += _render_histogram(name, labels, histogram)
        for name, values in sorted(gauges.items()):
            lines.append(f"# TYPE {name} gauge")
            lines += [f"{name}{_format_labels(labels)} {_format_number(value)}" for labels, value in values]
        return ("\n".join(lines) + "\n").encode()


def _render_histogram(name: str, labels: Labels, histogram: _Histogram) -> list[str]:
    lines, cumulative = [], 0
    for bound, count in zip((*map(str, _BUCKETS), "+Inf"), histogram.counts, strict=True):
        cumulative += count
        lines.append(f"{name}_bucket{_format_labels((*labels, ('le', bound)))} {cumulative}")
    return [
        *lines,
        f"{name}_sum{_format_labels(labels)} {_format_number(histogram.total)}",
        f"{name}_count{_format_labels(labels)} {cumulative}",
    ]


def _format_number(value: float) -> str:
    """All digits: a counter with rounded digits would stand still and then jump."""
    return str(int(value)) if value.is_integer() else repr(value)


def _format_labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels) + "}"


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

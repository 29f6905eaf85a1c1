"""Numbers for dashboards, in the text form that Prometheus reads. Labels are names, never values of arguments."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from holodeck.models.events import RunResult

# Of one metric; the servers of requests may have any names, a dashboard has a limit.
MAX_METRIC_SERIES = 2_000


OTHER_LABEL = "other"
"""Stands for everything that came after the limit of series was reached."""
REQUEST_SERVER_LABEL = "(request)"
"""Stands for every server that a request has brought along, under whatever name."""
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
    """Counts what happens. Cheap enough for every request."""

    def __init__(self, servers: Collection[str] | None = None) -> None:
        """`servers`: the operator's MCP servers. Those that requests bring along are counted as one."""
        self._servers = servers
        self._counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(lambda: defaultdict(_Histogram))

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        labels = (("route", route), ("method", method), ("status", str(status)))
        self._counters["holodeck_requests_total"][labels] += 1
        self._histograms["holodeck_request_seconds"][(("route", route),)].observe(seconds)

    def count_tool_call(self, server: str, tool: str, seconds: float, *, is_error: bool) -> None:
        """Count a call. Names of tools that do not exist must not come here."""
        if server and self._servers is not None and server not in self._servers:
            server, tool = REQUEST_SERVER_LABEL, OTHER_LABEL
        calls, times = self._counters["holodeck_tool_calls_total"], self._histograms["holodeck_tool_seconds"]
        whose: Labels = (("server", server), ("tool", tool))
        if whose not in times and len(times) >= MAX_METRIC_SERIES:
            whose = (("server", OTHER_LABEL), ("tool", OTHER_LABEL))
        calls[(*whose, ("outcome", "error" if is_error else "ok"))] += 1
        times[whose].observe(seconds)

    def count_run(self, model: str, result: RunResult) -> None:
        """Count a run that has ended, under the name that clients say."""
        name = ("model", model)
        self._counters["holodeck_runs_total"][(name, ("status", result.status))] += 1
        self._counters["holodeck_turns_total"][(name,)] += result.turns
        self._counters["holodeck_tokens_total"][(name, ("direction", "input"))] += result.usage.input_tokens
        self._counters["holodeck_tokens_total"][(name, ("direction", "output"))] += result.usage.output_tokens
        self._histograms["holodeck_run_seconds"][(name,)].observe(result.seconds)

    def count(self, name: str, times: int) -> None:
        """Something without labels happened so many times; 0 makes it known."""
        self._counters[name][()] += times

    def render(self, gauges: Mapping[str, Iterable[tuple[Labels, float]]]) -> bytes:
        """Everything, with what is true only now."""
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
    lines, so_far = [], 0
    for bound, count in zip((*map(str, _BUCKETS), "+Inf"), histogram.counts, strict=True):
        so_far += count
        lines.append(f"{name}_bucket{_format_labels((*labels, ('le', bound)))} {so_far}")
    return [
        *lines,
        f"{name}_sum{_format_labels(labels)} {_format_number(histogram.total)}",
        f"{name}_count{_format_labels(labels)} {so_far}",
    ]


def _format_number(value: float) -> str:
    """All digits: a counter that loses some of them stands still and then jumps."""
    return str(int(value)) if value.is_integer() else repr(value)


def _format_labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escape_label(value)}"' for name, value in labels) + "}"


def _escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

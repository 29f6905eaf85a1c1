"""Counters and histograms of one gateway, as plain dictionaries: cheap enough for every request.

`exposition.py` builds the metrics of Prometheus from them when they are scraped. Labels are names, never values of
arguments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field

from holodeck.models.callers import without_key_id
from holodeck.models.events import RunResult
from holodeck.models.gateway import MetricsSettings
from holodeck.models.items import Usage

# Label sets of the tool metrics: more would overload a dashboard.
MAX_METRIC_SERIES = 2_000

# The label of everything over the limit of series, and of callers over the limit of callers.
OTHER_LABEL = "other"
# The label of every server that a request declares: clients may invent any number of names.
REQUEST_SERVER_LABEL = "(request)"
# Upper bounds of the histograms, in seconds.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_CALLER = ("caller",)

LabelValues = tuple[object, ...]
"""The values of a metric's labels, in their order. They become texts when the metric is scraped."""


class Counter:
    """A sum for each set of label values."""

    __slots__ = ("labels", "name", "text", "values")

    def __init__(self, name: str, text: str, labels: tuple[str, ...] = ()) -> None:
        """`name`: without `_total`. `text`: what it says, for people."""
        self.name = name
        self.text = text
        self.labels = labels
        self.values: defaultdict[LabelValues, float] = defaultdict(int, {} if labels else {(): 0})
        """Added to where something is counted: a method for it would be called several times for each request."""

    def copy(self) -> Counter:
        copied = Counter(self.name, self.text, self.labels)
        copied.values = self.values.copy()
        return copied


@dataclass(slots=True)
class Series:
    """The observations of one set of label values: how many are in each bucket, and their sum."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    total: float = 0.0


class Histogram:
    """Durations in seconds for each set of label values."""

    __slots__ = ("labels", "name", "series", "text")

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self.name = name
        self.text = text
        self.labels = labels
        self.series: dict[LabelValues, Series] = {}

    def observe(self, labels: LabelValues, seconds: float) -> None:
        series = self.series.get(labels)
        if series is None:
            series = self.series[labels] = Series()
        series.counts[bisect_left(BUCKETS, seconds)] += 1
        series.total += seconds

    def copy(self) -> Histogram:
        copied = Histogram(self.name, self.text, self.labels)
        copied.series = {labels: Series(list(each.counts), each.total) for labels, each in self.series.items()}
        return copied


class Metrics:
    """The counts of one gateway since its start."""

    def __init__(
        self,
        servers: Collection[str] | None = None,
        *,
        settings: MetricsSettings | None = None,
    ) -> None:
        """`servers`: the names of the operator's MCP servers. All others are counted as one. None: each by its name."""
        self._servers = servers
        self._max_callers = settings.max_callers if settings is not None and settings.by_caller else 0
        self._callers: dict[str, LabelValues] = {}
        """The last label value by caller, if callers are counted by their names."""
        by_caller = _CALLER if self._max_callers else ()
        self.requests = Counter(
            "holodeck_requests", "HTTP requests that were answered.", ("route", "method", "status", *by_caller)
        )
        self.request_seconds = Histogram(
            "holodeck_request_seconds", "Duration of HTTP requests, streams until their end.", ("route", "status")
        )
        self.refused = Counter(
            "holodeck_refused_requests", "Requests that were refused, by the code of the error.", ("code", *by_caller)
        )
        self.runs = Counter("holodeck_runs", "Runs that ended, by their status.", ("model", "status", *by_caller))
        self.run_seconds = Histogram("holodeck_run_seconds", "Duration of runs, models and tools included.", ("model",))
        self.turns = Counter("holodeck_turns", "How often models were asked.", ("model",))
        self.turn_seconds = Histogram(
            "holodeck_turn_seconds", "Duration of model turns that gave an answer, retries included.", ("model",)
        )
        self.first_token_seconds = Histogram(
            "holodeck_first_token_seconds",
            "Time from the request to a model to the first part of its answer.",
            ("model",),
        )
        self.tokens = Counter(
            "holodeck_tokens",
            "Tokens, as the provider counts them. No token is in two kinds.",
            ("model", "kind", *by_caller),
        )
        self.estimated_tokens = Counter(
            "holodeck_estimated_tokens",
            "Of these tokens, those that the provider did not tell, since its answer was cut.",
            ("model", *by_caller),
        )
        self.cost = Counter(
            "holodeck_cost", "Cost of the tokens of models that have a price, in its currency.", ("model", *by_caller)
        )
        self.budget_alerts = Counter(
            "holodeck_budget_alerts", "Budgets of callers of which 80 % were spent, once in a period.", by_caller
        )
        self.tool_calls = Counter("holodeck_tool_calls", "Tool calls that ended.", ("server", "tool", "outcome"))
        self.tool_seconds = Histogram("holodeck_tool_seconds", "Duration of tool calls.", ("server", "tool"))
        self.recovered = Counter(
            "holodeck_background_recovered", "Background responses that went on here after their process had ended."
        )
        self.taken_over = Counter(
            "holodeck_background_taken_over", "Background responses taken over from a gateway that is gone."
        )

    def copy_all(self) -> list[Counter | Histogram]:
        """Copy all counters and histograms as they are now, for another thread."""
        return [each.copy() for each in vars(self).values() if isinstance(each, Counter | Histogram)]

    def add_servers(self, names: Collection[str]) -> None:
        """Count the calls of further servers of the operator by their names.

        Names of servers that the operator has removed stay: runs that began before may still call them.
        """
        if self._servers is not None:
            self._servers = frozenset((*self._servers, *names))

    def count_request(self, route: str, method: str, status: int, seconds: float, caller_id: str = "") -> None:
        caller = self._label_caller(caller_id) if self._max_callers else ()
        self.requests.values[route, method, status, *caller] += 1
        self.request_seconds.observe((route, status), seconds)

    def count_refusal(self, code: str, caller_id: str = "") -> None:
        """Count a request that was refused. `code`: one of those that the gateway knows."""
        caller = self._label_caller(caller_id) if self._max_callers else ()
        self.refused.values[code, *caller] += 1

    def count_budget_alert(self, caller_id: str) -> None:
        self.budget_alerts.values[self._label_caller(caller_id) if self._max_callers else ()] += 1

    def count_tool_call(self, server: str, tool: str, seconds: float, *, is_error: bool) -> None:
        """Count a tool call. The tool must exist: models invent names, which would each be a label."""
        if server and self._servers is not None and server not in self._servers:
            server, tool = REQUEST_SERVER_LABEL, OTHER_LABEL
        known = self.tool_seconds.series
        if (server, tool) not in known and len(known) >= MAX_METRIC_SERIES:
            server = tool = OTHER_LABEL
        self.tool_calls.values[server, tool, "error" if is_error else "ok"] += 1
        self.tool_seconds.observe((server, tool), seconds)

    def count_durations(self, server: str) -> list[int]:
        """Return how many calls of a server took how long, by the buckets of `BUCKETS` and one for the rest."""
        found = [series.counts for labels, series in self.tool_seconds.series.items() if labels[0] == server]
        return [sum(counts) for counts in zip(*found, strict=True)] if found else [0] * (len(BUCKETS) + 1)

    def count_turn(self, model: str, seconds: float, first_token_seconds: float | None) -> None:
        """Count the times of a model turn. `first_token_seconds`: None for an answer without any content."""
        self.turn_seconds.observe((model,), seconds)
        if first_token_seconds is not None:
            self.first_token_seconds.observe((model,), first_token_seconds)

    def count_run(self, model: str, result: RunResult, caller_id: str = "", *, cost: float | None = None) -> None:
        """Count a finished run. `model`: the public model name. `cost`: None if it has no price."""
        caller = self._label_caller(caller_id) if self._max_callers else ()
        self.runs.values[model, result.status, *caller] += 1
        self.turns.values[model,] += result.turns
        self.run_seconds.observe((model,), result.seconds)
        self._count_tokens(model, result.usage, caller)
        if cost is not None:
            self.cost.values[model, *caller] += cost

    def _count_tokens(self, model: str, usage: Usage, caller: LabelValues) -> None:
        cached = min(usage.cached_tokens, usage.input_tokens)
        reasoning = min(usage.reasoning_tokens, usage.output_tokens)
        written = min(usage.cache_write_tokens, usage.input_tokens - cached)
        tokens = self.tokens.values
        tokens[model, "input", *caller] += usage.input_tokens - cached - written
        tokens[model, "output", *caller] += usage.output_tokens - reasoning
        if cached:
            tokens[model, "cached_input", *caller] += cached
        if written:
            tokens[model, "cache_write_input", *caller] += written
        self.estimated_tokens.values[model, *caller] += usage.estimated_tokens
        if reasoning:
            tokens[model, "reasoning", *caller] += reasoning

    def _label_caller(self, caller_id: str) -> LabelValues:
        """Return the last label value of metrics that are counted by caller, where the operator chose that."""
        # The name: a series goes on when a key is made anew.
        name = without_key_id(caller_id)
        label = self._callers.get(name)
        if label is None:
            # Requests without a caller, such as probes, are no caller.
            if name and len(self._callers) >= self._max_callers:
                return (OTHER_LABEL,)
            label = (name,)
            if name:
                self._callers[name] = label
        return label

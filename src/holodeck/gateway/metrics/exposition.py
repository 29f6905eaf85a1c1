"""The metrics of one gateway in the formats of Prometheus.

`Exposition` builds metric families from `Metrics` and from gauges of the moment, and adds those of the process: memory,
CPU, open files and garbage collection. Its registries are its own, so that several gateways can be in one process.
Building and encoding happen in a thread, because thousands of series take a while.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from holodeck import __version__
from holodeck.gateway.metrics.counters import BUCKETS, Counter, Histogram, LabelValues, Metrics
from holodeck.lib.off_loop import run_off_loop
from holodeck.lib.record import record

TEXT_FORMAT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text"

_BOUNDS = (*map(str, BUCKETS), "+Inf")


@record
class Gauge:
    """A metric whose values are those of this moment."""

    name: str
    text: str
    values: Sequence[tuple[LabelValues, float]]
    labels: tuple[str, ...] = ()


class Exposition:
    """Encodes the metrics of one gateway."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        GCCollector(registry=self._process)

    async def render(self, gauges: Sequence[Gauge], accept: str) -> tuple[bytes, str]:
        """Encode all metrics, with `gauges`. Returns the body and its content type.

        `accept`: the header of the request. A client that names OpenMetrics gets it, every other one the text format.
        """
        # Copied here, on the event loop, where nothing is counted meanwhile.
        counted = self._metrics.copy_all()

        def encode() -> tuple[bytes, str]:
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_Families(_build_families(counted, gauges), self._process))
            if OPEN_METRICS in accept:
                body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call] # it has no types
                return body, openmetrics.CONTENT_TYPE_LATEST
            return generate_latest(registry), TEXT_FORMAT

        return await run_off_loop(encode)


class _Families(Collector):
    """The metrics of one scrape."""

    def __init__(self, families: Iterable[Metric], process: CollectorRegistry) -> None:
        self._families = families
        self._process = process

    def collect(self) -> Iterator[Metric]:
        yield from self._families
        yield from self._process.collect()


def _build_families(counted: Iterable[Counter | Histogram], gauges: Iterable[Gauge]) -> Iterator[Metric]:
    """Build every metric. One that has labels and no values yet is left out."""
    version = {"version": __version__, "python": platform.python_version()}
    yield InfoMetricFamily("holodeck_build", "Versions of HoloDeck and Python.", value=version)
    for each in counted:
        if isinstance(each, Histogram) and each.series:
            histogram = HistogramMetricFamily(each.name, each.text, labels=each.labels)
            for labels, series in each.series.items():
                buckets = list(zip(_BOUNDS, accumulate(series.counts), strict=True))
                histogram.add_metric([*map(str, labels)], buckets, series.total)
            yield histogram
        elif isinstance(each, Counter) and each.values:
            counter = CounterMetricFamily(each.name, each.text, labels=each.labels)
            for labels, value in each.values.items():
                counter.add_metric([*map(str, labels)], value)
            yield counter
    for each_gauge in gauges:
        if each_gauge.values:
            gauge = GaugeMetricFamily(each_gauge.name, each_gauge.text, labels=each_gauge.labels)
            for labels, value in each_gauge.values:
                gauge.add_metric([*map(str, labels)], value)
            yield gauge

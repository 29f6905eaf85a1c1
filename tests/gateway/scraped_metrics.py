"""What `/metrics` says, read by the parser of Prometheus' own client."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families


class ScrapedMetrics:
    """The samples of one scrape: `scraped.value("holodeck_runs_total", model="demo", status="completed")`."""

    def __init__(self, families: list[Metric]) -> None:
        self.families = families
        self._values = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in families
            for sample in family.samples
        }

    def value(self, name: str, /, **labels: str) -> float:
        """The value of the sample with exactly these labels."""
        return self._values[name, frozenset(labels.items())]

    def has(self, name: str, /, **labels: str) -> bool:
        return (name, frozenset(labels.items())) in self._values

    def list_labels(self, name: str) -> list[Mapping[str, str]]:
        """The labels of each sample of this name."""
        return [dict(labels) for known, labels in self._values if known == name]

    def has_text(self, text: str) -> bool:
        """Whether a name of a label, or a value of one, has this text in it."""
        return any(text in part for _, labels in self._values for pair in labels for part in pair)


def parse_metrics(text: str | bytes) -> ScrapedMetrics:
    """Read the text format. Fails if it is not valid."""
    text = text.decode() if isinstance(text, bytes) else text
    return ScrapedMetrics(list(text_string_to_metric_families(text)))

"""Spans of OpenTelemetry, whose packages are an extra. Its functions import them.

`OTelTracer` implements `tracing.Tracer` with a provider of its own and leaves OpenTelemetry's global state alone. It
exports to a collector over OTLP/HTTP, in batches from a background thread; `close` flushes within
`TRACE_FLUSH_SECONDS`. `ApplicationTracer` creates the spans of a library: the application has set the provider.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.lib.tracing import Attributes, Kind

# Seconds to export the last spans at the end: an unreachable collector must not delay the exit for longer.
TRACE_FLUSH_SECONDS = 5.0

_ADDRESSES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_TRACES = "/v1/traces"


@record
class Collector:
    """The target of exported spans. A value of None follows the OTEL_* variables or OpenTelemetry's default."""

    endpoint: str | None = None
    headers: Mapping[str, Secret] = field(default_factory=dict)
    service_name: str | None = None
    sample_ratio: float | None = None


def is_configured_in(environ: Mapping[str, str]) -> bool:
    """Return whether the standard OTEL_* variables enable traces."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(environ.get(name) for name in _ADDRESSES)


class _ProviderTracer:
    """Creates spans of one provider. A span is the child of the current one, also of one that others have started."""

    def __init__(self, provider: Any, *, version: str) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._tracer = provider.get_tracer("holodeck", version)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span(
        self, name: str, attributes: Attributes, *, kind: Kind, parent: Mapping[str, str] | None
    ) -> Iterator[_Span]:
        from opentelemetry.trace import SpanKind

        with self._tracer.start_as_current_span(
            name,
            context=None if parent is None else self._propagator.extract(parent),
            kind=SpanKind[kind.upper()],
            attributes=_without_none(attributes),
            # The text of an exception may contain a caller's data.
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            own = _Span(span, self._propagator)
            try:
                yield own
            except BaseException as error:
                own.fail("cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__qualname__)
                raise

    def carrier(self) -> Mapping[str, str]:
        carried: dict[str, str] = {}
        self._propagator.inject(carried)
        return carried


class OTelTracer(_ProviderTracer):
    """Creates and exports spans, independently of other users of OpenTelemetry in this process."""

    def __init__(self, collector: Collector, *, service: str, version: str, environ: Mapping[str, str]) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

        about = {"service.version": version}
        if collector.service_name or not environ.get("OTEL_SERVICE_NAME"):
            about["service.name"] = collector.service_name or service
        ratio = collector.sample_ratio
        self._provider = TracerProvider(
            resource=Resource.create(about),
            sampler=None if ratio is None else ParentBasedTraceIdRatio(ratio),
            shutdown_on_exit=False,
        )
        headers = {name: secret.reveal() for name, secret in collector.headers.items()}
        exporter = OTLPSpanExporter(endpoint=_traces_url(collector.endpoint), headers=headers or None)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        super().__init__(self._provider, version=version)

    def close(self) -> None:
        """Export the remaining spans, but do not wait for a collector that does not answer."""
        closing = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        closing.start()
        closing.join(TRACE_FLUSH_SECONDS)


class ApplicationTracer(_ProviderTracer):
    """Creates spans of the provider that the application has set, which exports and closes it."""

    def close(self) -> None:
        """Leave the provider open."""


def find_application_provider() -> Any:
    """Return the provider that this application has set for all of its code; None if there is none."""
    from opentelemetry import trace

    provider = trace.get_tracer_provider()
    return None if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider) else provider


class _Span:
    def __init__(self, span: Any, propagator: Any) -> None:
        self._span = span
        self._propagator = propagator
        self._is_failed = False

    def rename(self, name: str) -> None:
        self._span.update_name(name)

    def set(self, attributes: Attributes) -> None:
        self._span.set_attributes(_without_none(attributes))

    def fail(self, kind: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        # The first failure is the most specific: outer blocks only repeat it.
        if not self._is_failed:
            self._is_failed = True
            self._span.set_attribute("error.type", kind)
            self._span.set_status(Status(StatusCode.ERROR))

    def carrier(self) -> Mapping[str, str]:
        from opentelemetry.trace import set_span_in_context

        carried: dict[str, str] = {}
        self._propagator.inject(carried, context=set_span_in_context(self._span))
        return carried


def _without_none(attributes: Attributes) -> dict[str, Any]:
    return {name: value for name, value in attributes.items() if value is not None}


def _traces_url(endpoint: str | None) -> str | None:
    """Accept the collector's base address, as in OTEL_EXPORTER_OTLP_ENDPOINT, and the full URL for traces."""
    if endpoint is None:
        return None
    base = endpoint.rstrip("/")
    return base if base.endswith(_TRACES) else base + _TRACES

"""Tracing of this process over OpenTelemetry.

`start_tracing` installs a tracer if the gateway file or the standard OTEL_* variables configure one; `stop_tracing`
removes it and sends the remaining spans. The `otel` extra is needed for it.

`trace_to_application` is for runs inside a program of others: their spans go to the provider that the program has set,
and no exporter is started.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from holodeck import __version__
from holodeck.lib import log, tracing
from holodeck.lib.extras import install_hint, is_installed
from holodeck.lib.otel import ApplicationTracer, Collector, OTelTracer, find_application_provider, is_configured_in
from holodeck.models.gateway import OTel

_SERVICE_NAME = "holodeck"
_guard = threading.Lock()
_application_tracers: list[ApplicationTracer] = []
"""One entry per block of `trace_to_application`, all of them the same tracer."""


def start_tracing(otel: OTel | None, environ: Mapping[str, str]) -> tracing.Tracer | None:
    """Start to export the spans of this process. None: tracing is not configured, or its extra is not installed.

    A missing extra is only logged: the variables may be set for other programs, and must not stop the gateway.
    """
    if otel is None and not is_configured_in(environ):
        return None
    if not is_installed("otel"):
        log.warning("otel.not_installed", fix=install_hint("otel"))
        return None
    settings = otel or OTel()
    collector = Collector(
        endpoint=settings.endpoint,
        headers=settings.headers,
        service_name=settings.service_name,
        sample_ratio=settings.sample_ratio,
    )
    tracer = OTelTracer(collector, service=_SERVICE_NAME, version=__version__, environ=environ)
    tracing.add_tracer(tracer)
    return tracer


async def stop_tracing(tracer: tracing.Tracer | None) -> None:
    """Remove the tracer and send its remaining spans, in bounded time."""
    if tracer is not None:
        tracing.remove_tracer(tracer)
        await asyncio.to_thread(tracer.close)


@contextmanager
def trace_to_application() -> Iterator[None]:
    """Create spans of the provider that the application has set, inside the block; none if it has set no provider.

    A tracer of `start_tracing` has precedence.
    """
    provider = find_application_provider()
    if provider is None:
        yield
        return
    with _guard:
        if _application_tracers:
            tracer = _application_tracers[0]
        else:
            tracer = ApplicationTracer(provider, version=__version__)
            # Before all others: the last one receives the spans.
            tracing.tracers.insert(0, tracer)
        _application_tracers.append(tracer)
    try:
        yield
    finally:
        with _guard:
            _application_tracers.pop()
            if not _application_tracers:
                tracing.remove_tracer(tracer)

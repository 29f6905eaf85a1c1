"""Tracing of a gateway process over OpenTelemetry.

`start_tracing` installs a tracer if the gateway file or the standard OTEL_* variables configure one; `stop_tracing`
removes it and sends the remaining spans. The `otel` extra is needed for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from holodeck import __version__
from holodeck.lib import log, tracing
from holodeck.lib.extras import install_hint, is_installed
from holodeck.lib.otel import Collector, OTelTracer, is_configured_in
from holodeck.models.gateway import OTel

_SERVICE_NAME = "holodeck"


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

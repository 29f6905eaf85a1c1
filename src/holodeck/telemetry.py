"""Traces of a gateway: begun when its file or the standard variables ask for them, and handed over at its end."""

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
    """Listen to the spans of this process. A variable alone, without the extra, is no reason not to serve."""
    if otel is None and not is_configured_in(environ):
        return None
    if not is_installed("otel"):
        log.warning("otel.not_installed", fix=install_hint("otel"))
        return None
    asked = otel or OTel()
    collector = Collector(
        endpoint=asked.endpoint,
        headers=asked.headers,
        service_name=asked.service_name,
        sample_ratio=asked.sample_ratio,
    )
    tracer = OTelTracer(collector, service=_SERVICE_NAME, version=__version__, environ=environ)
    tracing.add_tracer(tracer)
    return tracer


async def stop_tracing(tracer: tracing.Tracer | None) -> None:
    """Send the last spans. Bounded."""
    if tracer is not None:
        tracing.remove_tracer(tracer)
        await asyncio.to_thread(tracer.close)

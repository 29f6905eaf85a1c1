"""An OpenTelemetry collector for tests: it takes OTLP over HTTP and keeps the spans as they came."""

from __future__ import annotations

import gzip
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from loopback_site import serve_site
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)


@dataclass(frozen=True, kw_only=True)
class Span:
    """A span in plain words."""

    name: str
    kind: str
    id: str
    parent: str
    trace: str
    state: str
    attributes: Mapping[str, Any]
    is_error: bool
    resource: Mapping[str, Any]


@dataclass
class OTLPCollector:
    """What has arrived so far."""

    url: str = ""
    spans: list[Span] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)

    def span_named(self, name: str) -> Span:
        """The only span of this name."""
        found = [span for span in self.spans if span.name == name]
        assert len(found) == 1, f"{len(found)} of '{name}' in {sorted(span.name for span in self.spans)}"
        return found[0]

    def children(self, parent: Span) -> list[str]:
        """The names of a span's children, in order."""
        return sorted(span.name for span in self.spans if span.parent == parent.id)

    async def _receive_export(self, request: web.Request) -> web.Response:
        if request.path != "/v1/traces":
            return web.Response(status=404)
        body = await request.read()
        if body[:2] == b"\x1f\x8b":  # aiohttp has not unpacked it
            body = gzip.decompress(body)
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        self.raw.append(body)
        message = ExportTraceServiceRequest.FromString(body)
        for group in message.resource_spans:
            resource = _plain(group.resource.attributes)
            self.spans += [_span(span, resource) for scope in group.scope_spans for span in scope.spans]
        return web.Response(
            body=ExportTraceServiceResponse().SerializeToString(), content_type="application/x-protobuf"
        )


@asynccontextmanager
async def run_collector() -> AsyncIterator[OTLPCollector]:
    """A collector on a free port."""
    collector = OTLPCollector()
    async with serve_site(collector._receive_export) as origin:
        collector.url = origin
        yield collector


def _span(span: Any, resource: Mapping[str, Any]) -> Span:
    kinds = {1: "internal", 2: "server", 3: "client"}
    return Span(
        name=span.name,
        kind=kinds[span.kind],
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        trace=span.trace_id.hex(),
        state=span.trace_state,
        attributes=_plain(span.attributes),
        is_error=span.status.code == span.status.STATUS_CODE_ERROR,
        resource=resource,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {entry.key: _value(entry.value) for entry in attributes}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)

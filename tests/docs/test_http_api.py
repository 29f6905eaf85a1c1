"""The pages about the HTTP API leave nothing out: each route, event, error and exception is on one of them."""

from __future__ import annotations

import inspect
import typing
from pathlib import Path

from docs.page_blocks import Purpose, read_blocks

from holodeck.gateway.all_endpoints import list_routes
from holodeck.gateway.http.error_codes import ERROR_CODES
from holodeck.gateway.openapi.schemas.event_schemas import EVENT_KINDS
from holodeck.lib import errors
from holodeck.models.events import Event

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_each_route_has_a_section_with_a_request_that_is_run_and_its_reply() -> None:
    page = REFERENCE / "http-api.md"
    lines, blocks = page.read_text().splitlines(), read_blocks(page)
    for route in list_routes():
        heading = lines.index(f"`{route.method} {route.path}`") + 1
        request, reply = [block for block in blocks if block.line > heading][:2]
        assert (request.purpose, reply.purpose) == (Purpose.RUN, Purpose.OUTPUT)
        assert "curl" in request.text
        assert route.path.partition("{")[0] in request.text


def test_each_event_is_described() -> None:
    text = (REFERENCE / "events.md").read_text()
    for name in (*(kind.type for kind in EVENT_KINDS), *(kind.__name__ for kind in typing.get_args(Event))):
        assert f"| `{name}` |" in text


def test_each_error_and_exception_is_described() -> None:
    text = (REFERENCE / "errors.md").read_text()
    classes = [each.__name__ for each in vars(errors).values() if inspect.isclass(each) and issubclass(each, Exception)]
    for name in (*(each.code or "none" for each in ERROR_CODES), *classes):
        assert f"| `{name}` |" in text or f"| {name} |" in text

"""The document says of each field of a reply whether it is always there; `documented_gateway` checks those that are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema_rs
import orjson
from async_tests import async_test
from gateway.documented_gateway import document
from gateway.running_gateway import MODEL, run_gateway

from holodeck.gateway.all_endpoints import list_routes
from holodeck.gateway.openapi.schemas.schema import ref
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

FUNCTION = {"type": "function", "name": "wait", "parameters": {"type": "object"}}
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
# Of the APIs that a stream of theirs has other objects than a reply: the schemas of both.
EXCHANGES = (
    ("/v1/responses", {"model": MODEL, "input": "Hello", "tools": [FUNCTION]}, "Response", "ResponseEvent"),
    ("/v1/chat/completions", ASKED, "ChatCompletion", "ChatEvent"),
    ("/v1/messages", {**ASKED, "max_tokens": 100}, "CreatedMessage", "MessageEvent"),
)
# Absent only where the server that asks leaves them out.
RARELY_ABSENT = {"AuthorizationServer.registration_endpoint", "Elicitation.call_id", "Elicitation.requested_schema"}


@async_test(30)
async def test_a_field_that_replies_always_have_is_required_by_the_document(tmp_path: Path) -> None:
    sent = [(route.reply, route.example) for route in list_routes() if isinstance(route.reply, str)]
    model = ScriptedModel(*(call("add", a=1, b=2), say("It is 3.")) * 2 * len(EXCHANGES), chunk=3)
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        session = await gateway.http_client()
        for path, body, reply, event in EXCHANGES:
            sent.append((reply, (await gateway.send("POST", path, body))[1]))
            async with session.post(path, data=orjson.dumps({**body, "stream": True})) as answer:
                lines = (await answer.text()).splitlines()
            events = [line.removeprefix("data: ") for line in lines if line.startswith("data: {")]
            sent += [(event, orjson.loads(each)) for each in events]
    places = [place for name, value in sent for place in _optional_fields(ref(name), value, name)]
    present, absent = ({place for place, is_present in places if is_present is kind} for kind in (True, False))
    shared = _find_reachable(route.body for route in list_routes() if route.body is not None)
    assert {place for place in present - absent if place.partition(".")[0] not in shared} == RARELY_ABSENT


def _optional_fields(schema: Mapping[str, Any], value: Any, place: str) -> Iterator[tuple[str, bool]]:
    """Yield each optional field of the objects in a value, by the place of its schema, and whether it is there."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from _optional_fields(document()["components"]["schemas"][name], value, name)
    elif isinstance(value, list):
        for each in value:
            yield from _optional_fields(schema.get("items", {}), each, place)
    elif isinstance(value, dict) and "properties" in schema:
        for name, field in schema["properties"].items():
            if name not in schema.get("required", ()):
                yield f"{place}.{name}", name in value
            if name in value:
                yield from _optional_fields(field, value[name], f"{place}.{name}")
    elif variant := next((each for each in schema.get("oneOf") or schema.get("anyOf", ()) if _fits(each, value)), None):
        yield from _optional_fields(variant, value, place)


def _find_reachable(names: Iterable[str]) -> set[str]:
    """The schemas that bodies of requests have, whose fields a client may leave out."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += re.findall(r"schemas/(\w+)", orjson.dumps(document()["components"]["schemas"][name]).decode())
    return found


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    return _build_validator(orjson.dumps(schema)).is_valid(value)


@cache
def _build_validator(schema: bytes) -> jsonschema_rs.Validator:
    whole = {**orjson.loads(schema), "components": document()["components"]}
    return jsonschema_rs.validator_for(whole, offline=True)

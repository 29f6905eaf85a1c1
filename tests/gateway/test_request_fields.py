"""The table of request fields says what happens: each row is sent, in every dialect of the model behind the gateway."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

import orjson
import pytest
from async_tests import async_test
from gateway.documented_gateway import document
from gateway.file_server import serve_files
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from openai.types.chat import (
    ChatCompletionContentPartParam,
    ChatCompletionMessageParam,
    ChatCompletionToolUnionParam,
    completion_create_params,
)
from openai.types.responses import ResponseIncludable, response_compact_params, response_create_params
from openai.types.responses.function_tool_param import FunctionToolParam
from openai.types.responses.response_format_text_config_param import ResponseFormatTextConfigParam
from openai.types.responses.response_input_content_param import ResponseInputContentParam
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from openai.types.responses.tool_param import ToolParam
from openai.types.shared_params import Reasoning

from holodeck.gateway.api.field_rows import DESCRIBED, NOT_SENT, REFUSED, Dialect, RequestField
from holodeck.gateway.wire.chat.field_table import CHAT_FIELDS
from holodeck.gateway.wire.messages.field_table import MESSAGES_FIELDS
from holodeck.gateway.wire.request.field_table import COMPACT_FIELDS, RESPONSE_FIELDS
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import Turn
from holodeck.testing.model.scripted import Received

RESPONSES, CHAT, COMPACT = "/v1/responses", "/v1/chat/completions", "/v1/responses/compact"
MESSAGES = "/v1/messages"
TABLES: dict[str, tuple[RequestField, ...]] = {
    RESPONSES: RESPONSE_FIELDS,
    CHAT: CHAT_FIELDS,
    MESSAGES: MESSAGES_FIELDS,
    COMPACT: COMPACT_FIELDS,
}
BODIES: dict[str, dict[str, Any]] = {
    RESPONSES: {"model": MODEL, "input": "Good morning"},
    CHAT: {"model": MODEL, "messages": [{"role": "user", "content": "Good morning"}]},
    MESSAGES: {"model": MODEL, "max_tokens": 99, "messages": [{"role": "user", "content": "Good morning"}]},
    COMPACT: {"model": MODEL, "input": "Good morning"},
}
SCHEMAS = {
    RESPONSES: "CreateResponse",
    CHAT: "CreateChatCompletion",
    MESSAGES: "CreateMessage",
    COMPACT: "CompactConversation",
}
DIALECTS: tuple[Dialect, ...] = ("chat", "responses", "anthropic")
FILES = {"allow": True, "allow_private_hosts": ["127.0.0.1"], "allow_insecure_hosts": ["127.0.0.1"]}
ASK_FOR_APPROVAL = "Ask me first"


def _fields(kind: Any, prefix: str = "") -> set[tuple[str, str | None]]:
    return {(f"{prefix}{name}", None) for name in get_type_hints(kind)}


def _types(union: Any, path: str, key: str = "type") -> set[tuple[str, str | None]]:
    """The values of `type` that the objects of a union of the package can have."""
    return {(path, value) for kind in get_args(union) for value in _literals(get_type_hints(kind)[key])}


def _literals(kind: Any) -> Iterator[str]:
    for each in get_args(kind):
        if isinstance(each, str):
            yield each
        else:
            yield from _literals(each)


def _without(rows: set[tuple[str, str | None]], *names: str) -> set[tuple[str, str | None]]:
    return {row for row in rows if row[0] not in names}


OPENAI_FIELDS: dict[str, set[tuple[str, str | None]]] = {
    RESPONSES: _without(
        _fields(response_create_params.ResponseCreateParamsStreaming), "text", "reasoning", "stream_options", "include"
    )
    | _fields(response_create_params.StreamOptions, "stream_options.")
    | _fields(Reasoning, "reasoning.")
    | {("text.verbosity", None)}
    | {("include[]", value) for value in _literals(ResponseIncludable)}
    | _types(ResponseFormatTextConfigParam, "text.format.type")
    | _types(ToolParam, "tools[].type")
    | _without(
        _fields(FunctionToolParam, "tools[]."),
        *(f"tools[].{key}" for key in ("name", "description", "parameters", "strict", "type")),
    )
    | _types(ResponseInputItemParam, "input[].type")
    | _types(ResponseInputContentParam, "input[].content[].type"),
    CHAT: _without(
        _fields(completion_create_params.CompletionCreateParamsStreaming), "response_format", "stream_options"
    )
    | {("stream_options.include_usage", None), ("stream_options.include_obfuscation", None)}
    | _types(completion_create_params.ResponseFormat, "response_format.type")
    | _types(ChatCompletionToolUnionParam, "tools[].type")
    | _types(ChatCompletionMessageParam, "messages[].role", "role")
    | _types(ChatCompletionContentPartParam, "messages[].content[].type"),
    COMPACT: _fields(response_compact_params.ResponseCompactParams),
}


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("path", OPENAI_FIELDS)
def test_every_field_that_the_openai_package_can_send_has_a_row(path: str) -> None:
    assert OPENAI_FIELDS[path] - {(row.path, row.value) for row in TABLES[path]} == set()


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("path", TABLES)
def test_every_field_that_the_gateway_describes_has_a_row(path: str) -> None:
    described = document()["components"]["schemas"][SCHEMAS[path]]["properties"]
    assert set(described) - {row.path.partition(".")[0].removesuffix("[]") for row in TABLES[path]} == set()


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("dialect", DIALECTS)
@async_test(240)
async def test_every_row_is_what_happens(tmp_path: Path, dialect: Dialect) -> None:
    async with (
        FaultyMCPServer() as server,
        serve_files() as (files, _),
        run_gateway(
            tmp_path, ScriptedModel(_answer), mcp={"files": server}, dialect=dialect, request_files=FILES
        ) as gateway,
    ):
        wrong = []
        for path, rows in TABLES.items():
            for row in rows:
                problem = await _find_problem(gateway, path, _at_host(row, files), dialect)
                if problem:
                    wrong.append(f"{path} {row.path} {row.value or ''}: {problem}")
    assert not wrong, "\n".join(wrong)


def _at_host(row: RequestField, host: str) -> RequestField:
    """The row with the files of its example at a host that answers."""
    example = orjson.dumps(row.example).replace(b"https://example.com/report.pdf", f"{host}/report.pdf".encode())
    return replace(row, example=orjson.loads(example))


def _answer(received: Received) -> Turn:
    return call("echo") if ASK_FOR_APPROVAL.encode() in received.body else say('{"city": "Rome"}')


async def _find_problem(gateway: RunningGateway, path: str, row: RequestField, dialect: Dialect) -> str:
    """What differs between a row and what happens; empty if nothing does."""
    example = await _with_real_ids(gateway, row.example)
    status, reply = await _send(gateway, path, example)
    place = row.sent_as.get(dialect)
    if row.treatment == "refused":
        return _refusal_problem(status, reply, row) or await _harmless_problem(gateway, path, row)
    if place == REFUSED:
        # Errors of the Messages API have no `code`.
        is_refused = status == 400 and reply["error"].get("code") in (None, "unsupported_parameter")
        return "" if is_refused else f"not refused: {status} {reply}"
    if status != 200:
        return f"{status} {reply}"
    if row.treatment != "passed_on":
        return ""
    if place is None:
        return "the row has no place"
    found = gateway.model_requests[-1]
    # Some fields are sent only with tools.
    await _send(gateway, path, {} if row.path.startswith("tools") else {"tools": example.get("tools")})
    plain = gateway.model_requests[-1]
    return _place_problem(place, found, plain, row)


def _refusal_problem(status: int, reply: Any, row: RequestField) -> str:
    if status != 400:
        return f"not refused: {status}"
    message = reply["error"]["message"]
    # Errors of the Messages API have no `param`: the message names the field.
    param = reply["error"].get("param", row.param if row.param in message else "")
    return "" if row.about in message and param == row.param else f"{param}: {message}"


async def _harmless_problem(gateway: RunningGateway, path: str, row: RequestField) -> str:
    if row.harmless is None:
        return ""
    example = orjson.loads(orjson.dumps(row.example))
    *keys, last = row.param.replace("[0]", ".0").split(".")
    inner = example
    for key in keys:
        inner = inner[0] if key == "0" else inner[key]
    inner[last] = row.harmless
    status, reply = await _send(gateway, path, example)
    return "" if status == 200 else f"refused with {row.harmless!r}: {reply}"


def _place_problem(place: str, found: Any, plain: Any, row: RequestField) -> str:
    if place == NOT_SENT:
        return "" if _without_messages(found) == _without_messages(plain) else "sent"
    if place == DESCRIBED:
        return "" if b"this model cannot be" in orjson.dumps(found) else "not described"
    got, sent = _value_at(found, place), _value_in(row)
    if got is None or got == _value_at(plain, place):
        return f"not at {place}: {got}"
    # Objects are translated, and a flag may become its opposite.
    is_same = isinstance(sent, bool | dict | list) or orjson.dumps(sent).strip(b'"') in orjson.dumps(got)
    return "" if row.value or is_same else f"another value at {place}: {got}"


def _without_messages(body: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key not in ("messages", "input")}


def _value_in(row: RequestField) -> Any:
    found: Any = row.example
    for key in row.param.replace("[0]", ".0").split("."):
        found = found[0] if key == "0" else found.get(key)
    return found


def _value_at(body: Any, place: str) -> Any:
    for key in place.split("."):
        body = body.get(key) if isinstance(body, dict) else None
    return body


async def _send(gateway: RunningGateway, path: str, fields: Mapping[str, Any]) -> tuple[int, Any]:
    body = {**BODIES[path], **fields}
    if body.get("stream"):
        session = await gateway.http_client()
        async with session.post(path, data=orjson.dumps(body)) as reply:
            data = await reply.read()
            return reply.status, orjson.loads(data) if reply.status != 200 else data
    return await gateway.send("POST", path, body)


async def _with_real_ids(gateway: RunningGateway, example: Mapping[str, Any]) -> dict[str, Any]:
    text = orjson.dumps(example).decode()
    if "resp_example" in text or "msg_example" in text:
        _, response = await _send(gateway, RESPONSES, {})
        text = text.replace("resp_example", response["id"]).replace("msg_example", response["output"][0]["id"])
    if "conv_example" in text:
        _, conversation = await gateway.send("POST", "/v1/conversations", {})
        text = text.replace("conv_example", conversation["id"])
    if "sealed_example" in text:
        _, compacted = await _send(gateway, COMPACT, {})
        text = text.replace("sealed_example", compacted["output"][-1]["encrypted_content"])
    if "mcpr_example" in text:
        declared = [{"type": "mcp", "server_label": "files", "require_approval": "always"}]
        _, response = await _send(gateway, RESPONSES, {"input": ASK_FOR_APPROVAL, "tools": declared})
        text = text.replace("mcpr_example", response["output"][-1]["id"])
    found: dict[str, Any] = orjson.loads(text)
    return found

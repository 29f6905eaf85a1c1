"""Every parameter of a request is honoured or refused by its name; none is ignored."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from gateway.wire.open_responses_contract import contract_problems

from holodeck.gateway.wire.request.body import ResponseRequest, read_request, read_socket_message
from holodeck.gateway.wire.response.resource import ResponseResource
from holodeck.lib.errors import BadRequestError
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.tools.mcp.discovery import MCPToolInfo


def read(**body: Any) -> ResponseRequest:
    return read_request({"model": "m", "input": "hi", **body})


def _tool(name: str) -> MCPToolInfo:
    return MCPToolInfo(name=name, model_name=name, annotations={"readOnlyHint": name == "read"})


def echoed(request: ResponseRequest, dialect: Any = "open_responses") -> dict[str, Any]:
    frame = ResponseResource(request, response_id="resp_1", created_at=1.5, model="m", client_kind=dialect)
    return frame.build("in_progress", [])


SCHEMA = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"], "additionalProperties": False}


@pytest.mark.proves("D-25")
def test_parameters_of_a_request_reach_the_model() -> None:
    request = read(
        instructions="Be brief.",
        temperature=0.5,
        top_p=0.9,
        presence_penalty=0.1,
        frequency_penalty=-0.1,
        max_output_tokens=99,
        max_tool_calls=3,
        parallel_tool_calls=False,
        reasoning={"effort": "low", "summary": "auto"},
        text={
            "format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True},
            "verbosity": "low",
        },
        tools=[{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA, "strict": True}],
        tool_choice={"type": "function", "name": "f"},
        metadata={"a": "b"},
    )
    model_request = request.build_model_request(
        (), request.tool_choice.resolve(lambda *_: []), instructions="The agent's own."
    )
    assert (model_request.instructions, model_request.temperature, model_request.top_p, model_request.max_tokens) == (
        "Be brief.",
        0.5,
        0.9,
        99,
    )
    assert (model_request.presence_penalty, model_request.frequency_penalty) == (0.1, -0.1)
    assert (model_request.effort, model_request.summary, model_request.verbosity) == ("low", "auto", "low")
    assert model_request.response_format == {"title": "answer", **SCHEMA}
    assert model_request.tool_choice == ToolChoice(mode="required", name="f")
    assert not model_request.parallel_tool_calls
    assert request.max_tool_calls == 3
    assert request.tools.functions == (ToolSpec(name="f", description="d", parameters=SCHEMA, strict=True),)
    shown = echoed(request)
    assert contract_problems("ResponseResource", shown) == []
    assert (shown["temperature"], shown["metadata"], shown["max_tool_calls"]) == (0.5, {"a": "b"}, 3)
    assert echoed(request, "openai")["text"]["format"]["schema"] == SCHEMA


BODIES: list[dict[str, Any]] = [
    {},
    {"text": {"format": {"type": "json_object"}}},
    {"text": {"format": {"type": "text"}}},
    {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
    {"tool_choice": "required", "tools": [{"type": "function", "name": "f"}]},
    {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "f"}]}},
    {"truncation": "auto", "service_tier": "flex", "store": False, "prompt_cache_key": "k", "safety_identifier": "s"},
    {"background": True, "stream": True},
    {"include": ["reasoning.encrypted_content"], "top_logprobs": 0},
    dict.fromkeys(("temperature", "tools", "tool_choice", "metadata", "text", "reasoning", "include")),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize("body", BODIES, ids=[orjson.dumps(body).decode()[:60] for body in BODIES])
def test_all_31_fields_are_there_with_their_types_whatever_was_left_out(body: dict[str, Any]) -> None:
    shown = echoed(read(**body))
    assert contract_problems("ResponseResource", shown) == []
    assert len(shown) == 31


def test_a_json_object_is_a_mode_without_a_schema() -> None:
    options = read(text={"format": {"type": "json_object"}}).options
    assert (options.json_mode, options.response_format) == (True, None)


MESSAGES: list[tuple[Any, str]] = [
    ([], "Invalid type for 'body': expected an object, but got an array instead."),
    ({"store": 1}, "Invalid type for 'store': expected a boolean, but got an integer instead."),
    ({"client_metadata": "x"}, "Invalid type for 'client_metadata': expected an object, but got a string instead."),
    ({"text": []}, "Invalid type for 'text': expected an object, but got an array instead."),
    ({"truncation": 5}, "Invalid type for 'truncation': expected a string, but got an integer instead."),
    (
        {"truncation": "some"},
        "Invalid value for 'truncation': 'some'. Supported values are: 'auto' and 'disabled'.",
    ),
    ({"include": [None]}, "Invalid type for 'include[0]': expected a string, but got null instead."),
    ({"max_tool_calls": 0}, "Invalid 'max_tool_calls': integer below minimum value. Expected at least 1, but got 0."),
    ({"conversation": 5}, "Invalid type for 'conversation': expected a string, but got an integer instead."),
    ({"conversation": {"id": ""}}, "Invalid 'conversation.id': empty string."),
    ({"conversation": {"id": None}}, "Missing required parameter: 'conversation.id'."),
    ({"context_management": [{}]}, "Missing required parameter: 'context_management[0].type'."),
    (
        {"context_management": [{"type": "compaction"}] * 2},
        "Invalid 'context_management': array too long. Expected at most 1 elements, but got 2.",
    ),
    ({"reasoning": {"depth": 3}}, "Unknown parameter: 'reasoning.depth'."),
    ({"reasoning": {"x" * 500: 3}}, f"Unknown parameter: 'reasoning.{'x' * MAX_SHOWN_CHARS}'."),
    (
        {"reasoning": {"mode": "pro"}},
        "Unsupported parameter: 'reasoning.mode'. The models behind this gateway have one way to reason.",
    ),
    ({"prompt": {"id": "p"}}, "Unsupported parameter: 'prompt'. This gateway does not implement it."),
    ({"reasoning": {"x" * 9_000: 1}}, f"Unknown parameter: 'reasoning.{'x' * MAX_SHOWN_CHARS}'."),
    # Of two problems, the first in the order of the fields; before them, a field that is not supported.
    ({"prompt": "p", "store": 1}, "Unsupported parameter: 'prompt'. This gateway does not implement it."),
    ({"truncation": 5, "store": 1}, "Invalid type for 'store': expected a boolean, but got an integer instead."),
]


@pytest.mark.proves("D-25")
def test_a_wrong_member_is_refused_in_the_words_of_the_api() -> None:
    for body, message in MESSAGES:
        with pytest.raises(BadRequestError) as refused:
            read_request({"input": "hi", **body} if isinstance(body, dict) else body)
        assert str(refused.value) == message


def test_an_unknown_member_that_is_null_counts_as_absent() -> None:
    members = {"conversation": {"id": "conv_1", "x": None}, "context_management": [{"type": "compaction", "y": None}]}
    request = read(**members, reasoning={"effort": "low", "z": None}, other=None)
    assert (request.conversation_id, request.options.effort) == ("conv_1", "low")
    assert request.context_management is not None


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"temperature": 3}, "temperature", "decimal_above_max_value"),
    ({"temperature": "hot"}, "temperature", "invalid_type"),
    ({"temperature": True}, "temperature", "invalid_type"),
    ({"top_p": -1}, "top_p", "decimal_below_min_value"),
    ({"max_output_tokens": 5}, "max_output_tokens", "integer_below_min_value"),
    ({"max_output_tokens": 50.5}, "max_output_tokens", "invalid_type"),
    ({"max_tool_calls": 0}, "max_tool_calls", "integer_below_min_value"),
    ({"stream": "yes"}, "stream", "invalid_type"),
    ({"stream_options": {"include_obfuscation": True}}, "stream_options", "invalid_value"),
    ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x", "unknown_parameter"),
    ({"colour": "red"}, "colour", "unknown_parameter"),
    ({"prompt": {"id": "p"}}, "prompt", "unsupported_parameter"),
    ({"moderation": {"model": "m"}}, "moderation", "unsupported_parameter"),
    ({"top_logprobs": 30}, "top_logprobs", "integer_above_max_value"),
    ({"include": ["everything"]}, "include[0]", "invalid_value"),
    ({"truncation": "some"}, "truncation", "invalid_value"),
    ({"service_tier": "gold"}, "service_tier", "invalid_value"),
    ({"background": True, "store": False}, "store", "invalid_value"),
    (
        {"previous_response_id": "resp_1", "conversation": "conv_1"},
        "previous_response_id",
        "mutually_exclusive_parameters",
    ),
    ({"conversation": {"id": 5}}, "conversation.id", "invalid_type"),
    ({"metadata": {str(n): "x" for n in range(17)}}, "metadata", "object_above_max_properties"),
    ({"metadata": {"k" * 65: "x"}}, f"metadata.{'k' * 64}", "string_above_max_length"),
    ({"metadata": {"k": "x" * 513}}, "metadata.k", "string_above_max_length"),
    ({"metadata": {"k": 1}}, "metadata.k", "invalid_type"),
    ({"safety_identifier": "x" * 65}, "safety_identifier", "string_above_max_length"),
    ({"reasoning": {"effort": "hard"}}, "reasoning.effort", "invalid_value"),
    ({"reasoning": {"mode": "pro"}}, "reasoning.mode", "unsupported_parameter"),
    ({"text": {"format": {"type": "xml"}}}, "text.format.type", "invalid_value"),
    ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "missing_required_parameter"),
    ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name", "missing_required_parameter"),
    ({"text": {"verbosity": "loud"}}, "text.verbosity", "invalid_value"),
    ({"instructions": ["x"]}, "instructions", "invalid_type"),
    ({"tools": {}}, "tools", "invalid_type"),
    ({"tools": [{"type": "acme_search"}]}, "tools[0].type", "invalid_value"),
    ({"tools": [{"name": "f"}]}, "tools[0].type", "missing_required_parameter"),
    ({"tools": [{"type": "function"}]}, "tools[0].name", "missing_required_parameter"),
    ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "invalid_value"),
    ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools[0].parameters", "invalid_type"),
    (
        {"tools": [{"type": "function", "name": "f", "defer_loading": True}]},
        "tools[0].defer_loading",
        "unsupported_parameter",
    ),
    ({"tools": [{"type": "function", "name": "f"}] * 2}, "tools", "duplicate_value"),
    ({"tool_choice": "maybe"}, "tool_choice", "invalid_value"),
    ({"tool_choice": 5}, "tool_choice", "invalid_type"),
    ({"tool_choice": {"type": "acme_search"}}, "tool_choice.type", "invalid_value"),
    ({"tool_choice": {"type": "function"}}, "tool_choice.name", "missing_required_parameter"),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools", "empty_array"),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("body", "param", "code"), REFUSED, ids=[f"{param} {code}" for _, param, code in REFUSED])
def test_a_wrong_or_unsupported_parameter_is_refused_by_its_name(body: dict[str, Any], param: str, code: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(**body)
    assert (caught.value.param, caught.value.code) == (param, code)


def test_a_request_needs_an_input_unless_it_continues_a_response_or_a_conversation() -> None:
    with pytest.raises(BadRequestError) as caught:
        read_request({"model": "m"})
    assert caught.value.param == "input"
    assert read_request({"model": "m", "previous_response_id": "resp_1"}).previous_response_id == "resp_1"
    assert read_request({"conversation": {"id": "conv_1"}}).conversation_id == "conv_1"
    bodies: list[Any] = [[], "x", None]
    for body in bodies:
        with pytest.raises(BadRequestError):
            read_request(body)


def test_a_websocket_message_is_the_same_request_without_what_only_http_has() -> None:
    message = {"type": "response.create", "model": "m", "input": "hi", "store": False}
    assert read_socket_message(message).store is False
    assert read_socket_message({**message, "stream": True, "background": False}).background is False
    assert read_socket_message({**message, "generate": False, "client_metadata": {"turn_id": "1"}}).needs_model is False
    extras: list[dict[str, Any]] = [
        {"stream": False},
        {"background": True},
        {"stream_options": {}},
        {"generate": "no"},
    ]
    for extra in extras:
        with pytest.raises(BadRequestError) as caught:
            read_socket_message({**message, **extra})
        assert caught.value.param == next(iter(extra))
    with pytest.raises(BadRequestError) as caught:
        read_socket_message({**message, "type": "response.destroy"})
    assert caught.value.param == "type"


SERVER = {"type": "mcp", "server_label": "calc", "server_url": "https://mcp.example/secret/path?key=1"}


@pytest.mark.proves("D-26")
def test_a_declaration_is_echoed_without_its_credentials() -> None:
    request = read(tools=[{**SERVER, "authorization": "tok-123", "headers": {"X-Key": "k-456"}}])
    [declared] = request.tools.declarations
    assert declared.server_url == SERVER["server_url"]
    assert declared.authorization is not None
    assert declared.authorization.reveal() == "tok-123"
    assert declared.headers["X-Key"].reveal() == "k-456"
    shown = orjson.dumps(echoed(request)).decode() + repr(request)
    for secret in ("tok-123", "k-456"):
        assert secret not in shown
    assert echoed(request)["tools"][0]["server_url"] == "https://mcp.example/<redacted>"
    assert request.has_mcp_declarations


APPROVALS: list[tuple[Any, dict[str, bool]]] = [
    (None, {"read": True, "write": True}),
    ("always", {"read": True, "write": True}),
    ("never", {"read": False, "write": False}),
    ({"never": {"tool_names": ["read"]}}, {"read": False, "write": True}),
    ({"always": {"tool_names": ["write"]}}, {"read": False, "write": True}),
    ({"never": {"read_only": True}}, {"read": False, "write": True}),
    ({"always": {"tool_names": ["write"]}, "never": {"tool_names": ["read"]}}, {"read": False, "write": True}),
]


@pytest.mark.proves("D-26")
@pytest.mark.parametrize(("rule", "expected"), APPROVALS)
def test_require_approval_in_all_its_forms(rule: Any, expected: dict[str, bool]) -> None:
    [declared] = read(tools=[{**SERVER, "require_approval": rule}]).tools.declarations
    asks = {tool: declared.needs_approval(_tool(tool)) for tool in ("read", "write")}
    assert asks == expected


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (None, {"read", "write"}),
        (["write"], {"write"}),
        ([], set()),
        ({"tool_names": ["read"]}, {"read"}),
        ({"read_only": True}, {"read"}),
        ({"tool_names": ["write"], "read_only": True}, set()),
    ],
)
def test_allowed_tools_in_all_its_forms(allowed: Any, expected: set[str]) -> None:
    [declared] = read(tools=[{**SERVER, "allowed_tools": allowed}]).tools.declarations
    assert {tool for tool in ("read", "write") if declared.is_allowed(_tool(tool))} == expected


@pytest.mark.parametrize(
    ("declaration", "param"),
    [
        ({"type": "mcp"}, "tools[0].server_label"),
        ({**SERVER, "server_url": "file:///etc"}, "tools[0].server_url"),
        ({**SERVER, "server_url": "https://u:p@x.example"}, "tools[0].server_url"),
        ({**SERVER, "connector_id": "c"}, "tools[0].connector_id"),
        ({**SERVER, "require_approval": "sometimes"}, "tools[0].require_approval"),
        ({**SERVER, "allowed_tools": "all"}, "tools[0].allowed_tools"),
        ({**SERVER, "allowed_tools": {"names": []}}, "tools[0].allowed_tools.names"),
        ({**SERVER, "headers": {"A": "x\r\nB: y"}}, "tools[0].headers.A"),
        ({**SERVER, "authorization": "t", "headers": {"Authorization": "u"}}, "tools[0].headers.Authorization"),
        ({**SERVER, "defer_loading": True}, "tools[0].defer_loading"),
    ],
)
def test_a_wrong_declaration_is_named_by_its_path(declaration: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(tools=[declaration])
    assert caught.value.param == param


def test_a_declaration_that_defers_its_tools_is_refused_as_unsupported() -> None:
    with pytest.raises(BadRequestError) as caught:
        read(tools=[{**SERVER, "defer_loading": True}])
    assert caught.value.code == "unsupported_parameter"


def test_of_several_problems_of_a_tool_the_first_in_reading_order_is_refused() -> None:
    function = {"type": "function", "name": "f"}
    elsewhere = {"$ref": "https://example.com/schema"}
    cases: list[tuple[dict[str, Any], str]] = [
        ({**function, "strict": 5, "parameters": elsewhere, "unknown": 1}, "tools[0].parameters"),
        ({**function, "name": "", "async": True, "defer_loading": None}, "tools[0].async"),
        ({**SERVER, "headers": {"Authorization": "a", "B": 5}, "authorization": "t"}, "tools[0].headers.Authorization"),
        ({**SERVER, "headers": {"A": 5}, "server_url": "ftp://a", "tunnel_id": None}, "tools[0].server_url"),
        ({"type": "namespace", "name": "n", "tools": [5] * 129, "unknown": 1}, "tools[0].tools"),
        ({"type": "namespace", "name": "n", "tools": [{**function, "strict": 5}, 5]}, "tools[0].tools[0].strict"),
    ]
    for tool, param in cases:
        with pytest.raises(BadRequestError) as caught:
            read(tools=[tool, 5])
        assert caught.value.param == param


CHOICES: list[tuple[Any, ToolChoice]] = [
    (None, ToolChoice()),
    ("none", ToolChoice(mode="none")),
    ("required", ToolChoice(mode="required")),
    ({"type": "function", "name": "f"}, ToolChoice(mode="required", name="f")),
    ({"type": "mcp", "server_label": "calc", "name": "add"}, ToolChoice(mode="required", name="add")),
    ({"type": "mcp", "server_label": "calc"}, ToolChoice(mode="required", allowed=("add", "sub"))),
    (
        {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "mcp", "server_label": "calc"}, {"type": "function", "name": "f"}],
        },
        ToolChoice(mode="required", allowed=("add", "sub", "f")),
    ),
    (
        {"type": "allowed_tools", "tools": [{"type": "mcp", "server_label": "calc", "name": "sub"}]},
        ToolChoice(allowed=("sub",)),
    ),
]


@pytest.mark.proves("D-24")
@pytest.mark.parametrize(("choice", "expected"), CHOICES)
def test_a_tool_choice_in_each_of_its_forms(choice: Any, expected: ToolChoice) -> None:
    def names(label: str, tool: str | None) -> list[str]:
        return [each for each in ("add", "sub") if label == "calc" and tool in (None, each)]

    assert read(tool_choice=choice).tool_choice.resolve(names) == expected


def test_a_choice_of_a_server_that_has_no_such_tool_is_refused() -> None:
    choice = read(tool_choice={"type": "mcp", "server_label": "calc", "name": "nope"}).tool_choice
    with pytest.raises(BadRequestError) as caught:
        choice.resolve(lambda *_: [])
    assert caught.value.param == "tool_choice"

"""`/v1/chat/completions`: the same requests and the same runs, in the older format."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from async_tests import async_test
from fake_executor import FakeExecutor

from holodeck.engine.event_log import EventLog
from holodeck.engine.loop import Run, RunRequest
from holodeck.gateway.wire.chat.request import read_chat_request
from holodeck.gateway.wire.chat.response import ChatWriter
from holodeck.lib.errors import BadRequestError, ModelError
from holodeck.models.items import (
    AudioContent,
    FileData,
    FunctionCall,
    FunctionCallOutput,
    ImageLink,
    Message,
    Reasoning,
    TextContent,
)
from holodeck.models.model_io import ToolChoice
from holodeck.testing import ScriptedModel, call, fail, finish, say, spend, think
from holodeck.tools.calls import ArgumentChecker
from holodeck.tools.toolbox import Toolbox

FUNCTION = {"type": "function", "function": {"name": "ask_client", "parameters": {"type": "object"}}}


async def play_chat(
    model: ScriptedModel,
    body: dict[str, Any] | None = None,
    *,
    executor: FakeExecutor | None = None,
    is_silent: bool = False,
) -> tuple[list[dict[str, Any]], ChatWriter]:
    """Run a chat request and return its chunks and its writer."""
    request = read_chat_request({"model": "demo", "messages": [{"role": "user", "content": "hi"}], **(body or {})})
    response = request.response
    writer = ChatWriter(request, completion_id="chatcmpl_1", created_at=1_700_000_000.0, is_silent=is_silent)
    log = EventLog()
    first = response.build_model_request((), response.tool_choice.resolve(lambda *_: []))
    toolbox = Toolbox(
        [executor] if executor else [], checker=ArgumentChecker(), client_functions=response.tools.functions
    )
    await Run(RunRequest(run_id="r", model=first), model, toolbox).execute(log)
    chunks: list[bytes] = []
    async for _, event in log.read():
        chunks += writer.feed(event)
    return [orjson.loads(chunk.removeprefix(b"data: ")) for chunk in chunks], writer


def content(chunks: list[dict[str, Any]], key: str = "content") -> str:
    return "".join(choice["delta"].get(key) or "" for chunk in chunks for choice in chunk["choices"])


@pytest.mark.proves("D-25")
@async_test
async def test_an_answer_comes_in_chunks_and_ends_with_its_reason_and_its_usage() -> None:
    body = {"stream": True, "stream_options": {"include_usage": True}}
    chunks, writer = await play_chat(ScriptedModel([think("hm"), say("Hello there"), spend(7, 3)], chunk=4), body)
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert (content(chunks), content(chunks, "reasoning_content")) == ("Hello there", "hm")
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks[-3:-1]] == [None, "stop"]
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]) == ([], 10)
    assert {(chunk["id"], chunk["object"]) for chunk in chunks} == {("chatcmpl_1", "chat.completion.chunk")}
    whole = writer.build_resource()
    assert whole["choices"][0]["message"]["content"] == "Hello there"
    assert whole["choices"][0]["finish_reason"] == "stop"


@pytest.mark.proves("D-25")
@async_test
async def test_tools_of_the_gateway_run_without_appearing_in_the_message() -> None:
    executor = FakeExecutor(add=lambda a, b: str(a + b))
    model = ScriptedModel([say("Let me see."), call("add", a=1, b=2)], say("It is 3."))
    chunks, writer = await play_chat(model, executor=executor)
    assert content(chunks) == "Let me see.\n\nIt is 3."
    message = writer.build_resource()["choices"][0]["message"]
    assert (message["content"], "tool_calls" in message, len(executor.calls)) == ("Let me see.\n\nIt is 3.", False, 1)


@async_test
async def test_functions_of_the_client_are_streamed_as_tool_calls() -> None:
    model = ScriptedModel([call("ask_client", q="a"), call("ask_client", q="b")], chunk=3)
    chunks, writer = await play_chat(model, {"tools": [FUNCTION]})
    made: dict[int, dict[str, str]] = {}
    for chunk in chunks:
        for part in chunk["choices"][0]["delta"].get("tool_calls", ()):
            known = made.setdefault(part["index"], {"id": part.get("id", ""), "arguments": ""})
            known["arguments"] += part["function"]["arguments"]
    calls = writer.build_resource()["choices"][0]["message"]["tool_calls"]
    assert [(each["id"], each["arguments"]) for each in made.values()] == [
        ("call_1", '{"q":"a"}'),
        ("call_2", '{"q":"b"}'),
    ]
    assert [each["function"]["arguments"] for each in calls] == ['{"q":"a"}', '{"q":"b"}']
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert writer.build_resource()["choices"][0]["message"]["content"] is None


@async_test
async def test_a_truncated_or_failed_answer_has_its_reason() -> None:
    chunks, _ = await play_chat(ScriptedModel([say("half"), finish("length")]))
    assert chunks[-1]["choices"][0]["finish_reason"] == "length"
    chunks, writer = await play_chat(ScriptedModel(fail(ModelError("gone"))))
    assert chunks[-1] == {"error": writer.error}
    assert writer.error is not None
    assert (writer.error["type"], writer.error["code"]) == ("server_error", "server_error")
    chunks, writer = await play_chat(ScriptedModel(say("quiet")), is_silent=True)
    assert (chunks, writer.build_resource()["choices"][0]["message"]["content"]) == ([], "quiet")


@pytest.mark.proves("D-25")
def test_messages_of_every_role_reach_the_engine() -> None:
    png = "data:image/png;base64,aGk="
    request = read_chat_request(
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "s"},
                {"role": "developer", "content": [{"type": "text", "text": "d"}]},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "look"},
                        {"type": "image_url", "image_url": {"url": png, "detail": "low"}},
                        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
                        {"type": "file", "file": {"file_data": "data:text/plain;base64,aGk=", "filename": "a.txt"}},
                    ],
                },
                {
                    "role": "assistant",
                    "content": None,
                    "reasoning_content": "hm",
                    "refusal": None,
                    "audio": None,
                    "function_call": None,
                    "annotations": [],
                    "tool_calls": [
                        {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                    ],
                },
                {"role": "tool", "tool_call_id": "c", "content": "done"},
                {"role": "assistant", "content": "ok"},
            ],
        }
    ).response
    assert request.input.items == [
        Message(role="system", content=(TextContent(text="s"),)),
        Message(role="developer", content=(TextContent(text="d"),)),
        Message(
            role="user",
            content=(
                TextContent(text="look"),
                ImageLink(url=png, detail="low"),
                AudioContent(data="aGk=", mime_type="audio/wav"),
                FileData(url="data:text/plain;base64,aGk=", filename="a.txt"),
            ),
        ),
        Reasoning(text="hm", opaque={"chat": "reasoning_content"}),
        FunctionCall(call_id="c", name="f", arguments="{}"),
        FunctionCallOutput(call_id="c", content=(TextContent(text="done"),)),
        Message(role="assistant", content=(TextContent(text="ok"),)),
    ]


def read(**body: Any) -> Any:
    return read_chat_request({"model": "m", "messages": [{"role": "user", "content": "x"}], **body}).response


def test_parameters_of_a_chat_request_reach_the_model() -> None:
    schema = {"type": "object", "properties": {}}
    request = read(
        temperature=0.1,
        max_completion_tokens=5,
        reasoning_effort="high",
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        tools=[FUNCTION],
        tool_choice={"type": "function", "function": {"name": "ask_client"}},
    )
    model_request = request.build_model_request((), request.tool_choice.resolve(lambda *_: []))
    assert (model_request.temperature, model_request.max_tokens, model_request.effort) == (0.1, 5, "high")
    assert model_request.response_format == {"title": "n", **schema}
    assert model_request.tool_choice == ToolChoice(mode="required", name="ask_client")
    narrowed = {
        "type": "allowed_tools",
        "allowed_tools": {"mode": "required", "tools": [FUNCTION | {"function": {"name": "ask_client"}}]},
    }
    choice = read(tools=[FUNCTION], tool_choice=narrowed).tool_choice.resolve(lambda *_: [])
    assert choice == ToolChoice(mode="required", allowed=("ask_client",))
    assert read(max_tokens=7).options.max_tokens == 7
    assert read(logit_bias={}, top_logprobs=0, logprobs=False, n=1).options.stop == ()
    assert read(response_format={"type": "json_object"}).options.json_mode


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"n": 2}, "n"),
    ({"stop": ["x", ""]}, "stop"),
    ({"stop": ["x"] * 17}, "stop"),
    ({"stop": 1}, "stop"),
    ({"seed": "x"}, "seed"),
    ({"logprobs": False, "top_logprobs": 2}, "top_logprobs"),
    ({"logit_bias": {"1": 1}}, "logit_bias"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"functions": []}, "functions"),
    ({"store": True}, "store"),
    ({"colour": 1}, "colour"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"max_tokens": 5, "max_completion_tokens": 5}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"temperature": 9}, "temperature"),
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "name": "b" * 65}]}, "messages[0].name"),
    ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages[0].content[0].image_url.url",
    ),
    (
        {"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
        "messages[0].content[0].file.file_id",
    ),
    ({"messages": [{"role": "assistant"}]}, "messages[0].content"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]}]},
        "messages[0].tool_calls[0].type",
    ),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tool_choice": {"type": "function", "function": {}}}, "tool_choice.function.name"),
    ({"tool_choice": {"type": "custom"}}, "tool_choice.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("body", "param"), REFUSED, ids=[param for _, param in REFUSED])
def test_a_wrong_or_unsupported_parameter_is_refused_by_its_name(body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        read(**body)
    assert caught.value.param == param

"""`/v1/chat/completions`: the older API with the same tools behind it, through the stock package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import openai
import pytest
from async_tests import async_test
from gateway.conversation_client import last_model_messages
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.script import cut, status, think

GET_TIME: Any = {"type": "function", "function": {"name": "get_time", "parameters": {"type": "object"}}}
GET_PLACE: Any = {"type": "function", "function": {"name": "get_place", "parameters": {"type": "object"}}}
HELLO: Any = [{"role": "user", "content": "Hello"}]


@pytest.mark.proves("D-25", "004:US2-1", "004:FR-009")
@async_test(30)
async def test_tools_of_the_gateway_are_used_by_clients_of_the_older_api(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."), call("add", a=2, b=2), say("It is 4."), chunk=3)
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client = await gateway.openai_client()
        whole = await client.chat.completions.create(model=MODEL, messages=HELLO)
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("It is 3.", "stop")
        assert whole.choices[0].message.tool_calls is None
        options: Any = {"include_usage": True}
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model=MODEL, messages=HELLO, stream=True, stream_options=options
            )
        ]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "It is 4."
        assert chunks[-1].usage is not None
        assert len(server.calls("add")) == 2
        assert gateway.model_requests[-1]["messages"][-1] == {"role": "tool", "tool_call_id": "call_2", "content": "4"}


@pytest.mark.proves("D-25", "004:FR-010")
@async_test(30)
async def test_functions_of_the_client_come_back_as_tool_calls(tmp_path: Path) -> None:
    model = ScriptedModel(call("get_time"), say("Noon."))
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.openai_client()
        first = await client.chat.completions.create(model=MODEL, messages=HELLO, tools=[GET_TIME])
        assert first.choices[0].finish_reason == "tool_calls"
        (function_call,) = first.choices[0].message.tool_calls or []
        message: Any = first.choices[0].message.model_dump(exclude_none=True)
        output: Any = {"role": "tool", "tool_call_id": function_call.id, "content": "noon"}
        second = await client.chat.completions.create(model=MODEL, messages=[*HELLO, message, output], tools=[GET_TIME])
        assert second.choices[0].message.content == "Noon."
        with pytest.raises(openai.BadRequestError, match="No tool output found") as refused:
            await client.chat.completions.create(model=MODEL, messages=[*HELLO, message], tools=[GET_TIME])
        assert refused.value.param == "messages"


async def ask(client: openai.AsyncOpenAI, messages: list[Any], *, is_streamed: bool) -> Any:
    """The message of one completion, which may call two functions."""
    body: Any = {"model": MODEL, "messages": messages, "tools": [GET_TIME, GET_PLACE]}
    if not is_streamed:
        completion = await client.chat.completions.create(**body)
        return completion.choices[0].message
    async with client.chat.completions.stream(**body) as stream:
        return (await stream.get_final_completion()).choices[0].message


def run_functions(message: Any) -> list[Any]:
    """The message again, with the results of the client's functions, the last one first."""
    results = {"get_time": "noon", "get_place": "Rome"}
    outputs = [
        {"role": "tool", "tool_call_id": made.id, "content": results[made.function.name]} for made in message.tool_calls
    ]
    return [message.model_dump(exclude_none=True), *reversed(outputs)]


@pytest.mark.proves("D-25", "D-16")
@pytest.mark.parametrize("is_streamed", [False, True], ids=["plain", "streamed"])
@async_test(30)
async def test_tools_of_the_gateway_and_functions_of_the_client_are_called_in_one_turn(
    tmp_path: Path, is_streamed: bool
) -> None:
    mixed = [call("add", a=1, b=2), call("get_time"), call("echo", text="hi"), call("get_place")]
    model = ScriptedModel(call("add", a=2, b=2), mixed, say("Noon."), say("Noon."), say("Bye."), chunk=3)
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client = await gateway.openai_client()
        first = await ask(client, HELLO, is_streamed=is_streamed)
        assert [made.function.name for made in first.tool_calls] == ["get_time", "get_place"]
        messages = [*HELLO, *run_functions(first)]
        outputs = [("add", "3"), ("get_time", "noon"), ("echo", "hi"), ("get_place", "Rome")]
        expected = ["Hello", ["add"], ("add", "4"), ["add", "get_time", "echo", "get_place"], *outputs]
        for _ in range(2):
            answer = await ask(client, messages, is_streamed=is_streamed)
            assert (answer.content, last_model_messages(gateway)) == ("Noon.", expected)
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "Thanks"}]
        await ask(client, messages, is_streamed=is_streamed)
        assert last_model_messages(gateway) == [*expected, "Noon.", "Thanks"]
        # `add` is called in both turns.
        assert (len(server.calls("add")), len(server.calls("echo"))) == (2, 1)


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_client_that_omits_one_of_its_calls_still_gets_an_answer(tmp_path: Path) -> None:
    model = ScriptedModel([call("get_time"), call("get_place"), call("add", a=1, b=2)], say("Noon."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client = await gateway.openai_client()
        message, _, time = run_functions(await ask(client, HELLO, is_streamed=False))
        message["tool_calls"].pop()
        await ask(client, [*HELLO, message, time], is_streamed=False)
        assert last_model_messages(gateway) == ["Hello", ["get_time", "add"], ("get_time", "noon"), ("add", "3")]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_after_a_restart_the_model_request_omits_the_calls_that_the_gateway_ran(tmp_path: Path) -> None:
    mixed = ScriptedModel([call("add", a=1, b=2), call("get_time")])
    async with FaultyMCPServer() as server:
        async with run_gateway(tmp_path, mixed, mcp={"sums": server}) as gateway:
            first = await ask(await gateway.openai_client(), HELLO, is_streamed=False)
        async with run_gateway(tmp_path, ScriptedModel(say("Noon.")), mcp={"sums": server}) as gateway:
            await ask(await gateway.openai_client(), [*HELLO, *run_functions(first)], is_streamed=False)
            assert last_model_messages(gateway) == ["Hello", ["get_time"], ("get_time", "noon")]
        assert len(server.calls()) == 1


@pytest.mark.proves("D-25", "D-31")
@async_test(30)
async def test_a_failed_model_is_an_error_that_says_whether_to_retry(tmp_path: Path) -> None:
    down = status(500, retry_after="600")  # the gateway itself does not wait so long
    model = ScriptedModel(down, call("add", a=1, b=2), down, [say("Hel"), cut()])
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client = await gateway.openai_client()
        with pytest.raises(openai.InternalServerError) as plain:
            await client.chat.completions.create(model=MODEL, messages=HELLO)
        assert "x-should-retry" not in plain.value.response.headers
        assert plain.value.response.headers["retry-after"] == "600"
        with pytest.raises(openai.InternalServerError) as after_a_tool:
            await client.chat.completions.create(model=MODEL, messages=HELLO)
        assert after_a_tool.value.response.headers["x-should-retry"] == "false"
        with pytest.raises(openai.APIError, match="not available at the moment"):
            async for _ in await client.chat.completions.create(model=MODEL, messages=HELLO, stream=True):
                pass


@pytest.mark.proves("D-25")
@async_test(30)
async def test_what_frameworks_send_with_every_request_reaches_the_model(tmp_path: Path) -> None:
    """Message names (AutoGen, Semantic Kernel, LangGraph), stop sequences (smolagents), fields of LiteLLM."""
    model = ScriptedModel([think("Hm."), say("Hi.")], say("Ho."))
    async with run_gateway(tmp_path, model) as gateway:
        client = await gateway.openai_client()
        messages: Any = [
            {"role": "system", "name": "boss", "content": "Be short."},
            {"role": "user", "name": "ann", "content": "Hello"},
        ]
        first = await client.chat.completions.create(
            model=MODEL, messages=messages, stop=["Observation:", "Calling tools:"], seed=7
        )
        answer: Any = first.choices[0].message.model_dump(exclude_none=True)
        parts = [{**answer, "type": "text", "text": "Hi.", "content": None}]  # as OpenAI's agents of npm send it back
        answer |= {"name": "helper", "provider_specific_fields": {"reasoning_content": "Hm."}, "content": parts}
        await client.chat.completions.create(model=MODEL, messages=[*messages, answer, messages[1]], stop="\n")
        before, after = gateway.model_requests
        assert (before["stop"], before["seed"], before["messages"]) == (["Observation:", "Calling tools:"], 7, messages)
        expected = {"role": "assistant", "name": "helper", "content": "Hi.", "reasoning_content": "Hm."}
        assert (after["stop"], after["messages"]) == (["\n"], [*messages, expected, messages[1]])


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_tool_choice_of_an_unknown_tool_is_refused_and_one_of_a_gateway_tool_is_not(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3"))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        client = await gateway.openai_client()
        for name in ("nobody_has_this", "add"):
            choice: Any = {"type": "function", "function": {"name": name}}
            asking = client.chat.completions.create(model=MODEL, messages=HELLO, tools=[GET_TIME], tool_choice=choice)
            if name == "add":
                assert (await asking).choices[0].message.content == "3"
                continue
            with pytest.raises(openai.BadRequestError) as refused:
                await asking
            assert refused.value.param == "tool_choice"
        assert [request.get("tool_choice") for request in gateway.model_requests] == [choice, None]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_declared_mcp_server_is_used_and_its_approval_rule_is_kept(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("echo", text="hi")], say("3."))
    async with (
        FaultyMCPServer() as server,
        FaultyMCPServer() as other,
        run_gateway(tmp_path, model, mcp={"sums": server, "other": other}) as gateway,
    ):
        client = await gateway.openai_client()
        declared: Any = {
            "type": "mcp",
            "server_label": "sums",
            "allowed_tools": ["add", "echo"],
            "require_approval": {"never": {"tool_names": ["add"]}},
        }
        choice: Any = {"type": "mcp", "server_label": "sums"}
        answer = await client.chat.completions.create(
            model=MODEL, messages=[{"role": "user", "content": "1 + 2?"}], tools=[declared], tool_choice=choice
        )
        assert answer.choices[0].message.content == "3."
        assert sorted(tool["function"]["name"] for tool in gateway.model_requests[0]["tools"]) == ["add", "echo"]
        add, echo = (message["content"] for message in gateway.model_requests[1]["messages"][-2:])
        assert add == "3"
        assert "needs a person's approval, and this client cannot be asked" in echo
        assert [made.params["name"] for made in server.calls()] == ["add"]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "mcp", "server_label": "nowhere"}, "tools[0].server_label"),
        ({"type": "mcp", "server_label": "x", "server_url": "https://example.com/mcp"}, "tools[0].server_url"),
        ({"type": "mcp"}, "tools[0].server_label"),
    ],
)
@async_test(30)
async def test_a_declaration_is_refused_by_the_same_rules_as_in_responses(
    tmp_path: Path, tool: dict[str, Any], param: str
) -> None:
    async with FaultyMCPServer() as server, run_gateway(tmp_path, mcp={"sums": server}) as gateway:
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Go"}], "tools": [tool]}
        refusals = [
            await gateway.send("POST", "/v1/chat/completions", body),
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", "tools": [tool]}),
        ]
        assert [(code, refused["error"]["param"]) for code, refused in refusals] == [(400, param)] * 2
        assert refusals[0][1]["error"]["message"] == refusals[1][1]["error"]["message"]

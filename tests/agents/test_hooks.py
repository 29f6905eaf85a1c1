"""Hooks see a run, its turns and its calls, and decide about them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents.served_agent import output_of, write_agent
from async_tests import async_test

from holodeck import (
    Agent,
    AnswerCall,
    AskPerson,
    ChangeArguments,
    ConfigError,
    Failure,
    Hooks,
    Item,
    MCPServer,
    ModelAnswer,
    ModelRequest,
    RefuseCall,
    RequestedCall,
    RunContext,
    RunFailedError,
    RunFinished,
    RunPausedError,
    RunResult,
    TextContent,
    ToolResult,
    ToolSpec,
    tool,
)
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, call_raw, say, spend


class Diary(Hooks[Any]):
    """Writes down what it sees."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.lines: list[str] = []

    def _write(self, text: str) -> None:
        self.lines.append(f"{self.name}{text}")

    async def before_run(self, ctx: RunContext[Any], items: Sequence[Item]) -> None:
        self._write(f"run of {len(items)} item in turn {ctx.turn}")

    async def after_run(self, ctx: RunContext[Any], result: RunResult[Any]) -> None:
        self._write(f"{result.status} after turn {ctx.turn} and {ctx.usage.total_tokens} tokens")

    async def before_turn(self, ctx: RunContext[Any], request: ModelRequest) -> None:
        self._write(f"turn {ctx.turn} with {len(request.items)} items and {ctx.usage.total_tokens} tokens")

    async def after_turn(self, ctx: RunContext[Any], answer: ModelAnswer) -> None:
        self._write(f"answer {answer.finish} of turn {ctx.turn}")

    async def before_call(self, ctx: RunContext[Any], call: RequestedCall) -> None:
        self._write(f"{call.call_id} to {call.server}/{call.tool} with {dict(call.arguments)} in turn {ctx.turn}")

    async def after_call(self, ctx: RunContext[Any], call: RequestedCall, result: ToolResult) -> None:
        self._write(f"{ctx.call_id} gave {result.text}")


class Decide(Hooks[Any]):
    """Decides every call in the same way."""

    def __init__(self, decision: Any) -> None:
        self.decision = decision

    async def before_call(self, ctx: RunContext[Any], call: RequestedCall) -> Any:
        return self.decision


@async_test
async def test_hooks_see_a_run_with_a_call_in_order() -> None:
    diary = Diary()
    model = ScriptedModel([call("add", a=1, b=2), spend(10, 5)], [say("3"), spend(20, 5)])
    async with FaultyMCPServer() as server:
        agent = Agent(model, tools=[MCPServer.http(server.url, name="calc")], hooks=[diary])
        result = await agent.run("What is 1 + 2?")
    assert result.output == "3"
    assert diary.lines == [
        "run of 1 item in turn 0",
        "turn 1 with 1 items and 0 tokens",
        "answer tool_calls of turn 1",
        "call_1 to calc/add with {'a': 1, 'b': 2} in turn 1",
        "call_1 gave 3",
        "turn 2 with 3 items and 15 tokens",
        "answer stop of turn 2",
        "completed after turn 2 and 40 tokens",
    ]


@async_test
async def test_hooks_of_the_agent_come_before_those_of_the_run() -> None:
    first, second = Diary("first "), Diary("second ")
    second.lines = first.lines
    await Agent(ScriptedModel(say("Hi.")), hooks=[first]).run("Hello", hooks=[second])
    assert [line.split()[0] for line in first.lines] == ["first", "second"] * 4


@async_test
async def test_a_changed_request_is_what_the_model_gets() -> None:
    class Shout(Hooks):
        async def before_turn(self, ctx: RunContext[None], request: ModelRequest) -> ModelRequest:
            return replace(request, instructions="Shout.")

    model = ScriptedModel(say("HI."))
    await Agent(model, instructions="Whisper.", hooks=[Shout()]).run("Hello")
    assert model.requests[0].instructions == "Shout."


@async_test
async def test_a_server_gets_the_arguments_that_a_hook_has_changed() -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("7"))
    async with FaultyMCPServer() as server:
        hooks = [Decide(ChangeArguments(arguments={"a": 3, "b": 4})), diary := Diary()]
        await Agent(model, tools=[MCPServer.http(server.url, name="calc")], hooks=hooks).run("add")
        assert [each.params["arguments"] for each in server.calls("add")] == [{"a": 3, "b": 4}]
    assert "call_1 to calc/add with {'a': 3, 'b': 4} in turn 1" in diary.lines
    assert output_of(model.requests[1]) == "7"


@async_test
async def test_changed_arguments_that_do_not_fit_the_tool_fail_the_run_and_name_the_hook() -> None:
    model = ScriptedModel(call("add", a=1, b=2))
    async with FaultyMCPServer() as server:
        hooks = [Decide(ChangeArguments(arguments={"a": "three"}))]
        result = await Agent(model, tools=[MCPServer.http(server.url, name="calc")], hooks=hooks).run("add")
        assert server.calls("add") == []
    failure = _failure_of(result)
    assert "'Decide.before_call' failed: it changed the arguments of 'add'" in failure.message


@async_test
async def test_an_answer_in_the_place_of_a_tool_reaches_the_model_and_not_the_server() -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("12"))
    async with FaultyMCPServer() as server:
        hooks = [Decide(AnswerCall(text="from the cache: 12")), later := Diary()]
        await Agent(model, tools=[MCPServer.http(server.url, name="calc")], hooks=hooks).run("add")
        assert server.calls("add") == []
    assert output_of(model.requests[1]) == "from the cache: 12"
    assert [line for line in later.lines if line.startswith("call_1")] == ["call_1 gave from the cache: 12"]


@async_test
async def test_a_refused_call_is_not_run_and_the_model_is_told_why() -> None:
    calls: list[str] = []

    @tool
    def delete(path: str) -> str:
        """Delete a file."""
        calls.append(path)
        return "deleted"

    model = ScriptedModel(call("delete", path="/etc"), say("I may not."))
    result = await Agent(model, tools=[delete], hooks=[Decide(RefuseCall(reason="Only in the evening."))]).run("go")
    assert (result.output, calls) == ("I may not.", [])
    assert output_of(model.requests[1]) == "Only in the evening."


@async_test
async def test_calls_with_wrong_arguments_never_reach_a_hook() -> None:
    diary = Diary()
    model = ScriptedModel(call_raw("add", '{"a": "one"}'), say("I see."))
    async with FaultyMCPServer() as server:
        await Agent(model, tools=[MCPServer.http(server.url, name="calc")], hooks=[diary]).run("add")
    assert not [line for line in diary.lines if line.startswith("call_1")]


@async_test
async def test_a_result_can_be_replaced_before_the_model_sees_it() -> None:
    class Hide(Hooks):
        async def after_call(self, ctx: RunContext[None], call: RequestedCall, result: ToolResult) -> ToolResult:
            return replace(result, content=(TextContent(text=result.text.replace("4711", "****")),))

    def pin() -> str:
        return "The PIN is 4711."

    model = ScriptedModel(call("pin"), say("ok"))
    await Agent(model, tools=[pin], hooks=[Hide()]).run("pin?")
    assert output_of(model.requests[1]) == "The PIN is ****."


@pytest.mark.parametrize(
    "method", ["before_run", "before_turn", "after_turn", "before_call", "after_call", "after_run"]
)
@pytest.mark.parametrize("calls", [1, 2], ids=["one call", "two calls at once"])
@async_test
async def test_an_exception_in_a_hook_fails_the_run_and_names_the_hook(method: str, calls: int) -> None:
    async def break_down(self: Any, *args: Any) -> None:
        raise LookupError("no such customer")

    broken: Hooks[Any] = type("Audit", (Hooks,), {method: break_down})()

    def pin() -> str:
        return "4711"

    agent = Agent(ScriptedModel([call("pin")] * calls, say("ok")), tools=[pin], hooks=[broken])
    result = await agent.run("pin?")
    failure = _failure_of(result)
    assert f"The hook 'Audit.{method}' failed: LookupError: no such customer (test_hooks.py, line" in failure.message
    with pytest.raises(RunFailedError, match=f"Audit.{method}"):
        _ = result.output


@pytest.mark.parametrize("method", ["before_turn", "before_call", "after_call"])
@async_test
async def test_a_hook_that_returns_something_else_fails_the_run(method: str) -> None:
    async def answer(self: Any, *args: Any) -> str:
        return "yes"

    wrong: Hooks[Any] = type("Guard", (Hooks,), {method: answer})()

    def pin() -> str:
        return "4711"

    result = await Agent(ScriptedModel(call("pin"), say("ok")), tools=[pin], hooks=[wrong]).run("pin?")
    assert f"The hook 'Guard.{method}' failed: it returned a str. Return None or" in _failure_of(result).message


@async_test
async def test_a_run_can_be_cancelled_while_a_hook_waits() -> None:
    is_waiting = asyncio.Event()

    class Wait(Hooks):
        async def before_turn(self, ctx: RunContext[None], request: ModelRequest) -> None:
            is_waiting.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(Agent(ScriptedModel(say("Hi.")), hooks=[Wait()]).run("Hello"))
    await is_waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@async_test
async def test_hooks_decide_before_a_person_is_asked_and_what_was_approved_is_what_runs(tmp_path: Path) -> None:
    asked: list[RequestedCall] = []

    def approve(ctx: RunContext[None], call: RequestedCall) -> bool:
        asked.append(call)
        return True

    model = ScriptedModel(call("add", a=1, b=2), say("7"))
    async with FaultyMCPServer() as server:
        file = write_agent(tmp_path, server.url, {"approval": "always"})
        hooks = [
            Decide(AskPerson(question="Is this sum allowed?")),
            Decide(ChangeArguments(arguments={"a": 3, "b": 4})),
        ]
        agent: Agent = Agent.from_file(file, model=model, hooks=hooks, on_approval=approve)
        await agent.run("add")
        assert [each.params["arguments"] for each in server.calls("add")] == [{"a": 3, "b": 4}]
    assert [(each.server, each.tool, each.arguments, each.question) for each in asked] == [
        ("calc", "add", {"a": 3, "b": 4}, "Is this sum allowed?")
    ]


@async_test
async def test_the_events_of_a_run_with_hooks_end_with_its_result() -> None:
    diary = Diary()
    agent = Agent(ScriptedModel(say("Hi.")), hooks=[diary])
    events = [event async for event in agent.stream("Hello")]
    last = events[-1]
    assert isinstance(last, RunFinished)
    assert last.result.output == "Hi."


@async_test
async def test_a_tool_learns_the_turn_the_tokens_and_the_id_of_its_call() -> None:
    seen: list[RunContext[str]] = []

    @tool
    def note(ctx: RunContext[str], text: str) -> str:
        """Write a note."""
        seen.append(ctx)
        return "ok"

    model = ScriptedModel([call("note", text="a"), spend(3, 4)], [call("note", text="b"), spend(1, 1)], say("ok"))
    await Agent(model, tools=[note], deps_type=str).run("go", deps="me", run_id="run_7")
    assert [(each.turn, each.usage.total_tokens, each.call_id) for each in seen] == [(1, 7, "call_1"), (2, 9, "call_2")]
    assert {(each.deps, each.run_id, each.agent) for each in seen} == {("me", "run_7", "agent")}
    assert [item.type for item in seen[1].items] == ["function_call", "function_call_output", "function_call"]


@async_test
async def test_a_run_without_the_deps_of_its_agent_starts_nothing() -> None:
    model = ScriptedModel(say("Hi."))
    with pytest.raises(ConfigError, match=r"deps_type str: give the run such an object, as in run\(question, deps="):
        await Agent(model, deps_type=str).run("Hello")
    assert model.requests == []


@async_test
async def test_a_call_of_a_function_of_the_program_ends_the_run_and_is_pending() -> None:
    agent = Agent(ScriptedModel([say("One moment."), call("sign", text="yes")]), output_type=int)
    result = await agent.run("Sign it", functions=[ToolSpec(name="sign")])
    assert (result.status, [each.name for each in result.pending]) == ("requires_action", ["sign"])
    with pytest.raises(RunPausedError, match="sign"):
        _ = result.output


@async_test
async def test_an_unknown_option_of_a_run_is_an_error() -> None:
    wrong: dict[str, Any] = {"max_turnz": 3}
    with pytest.raises(TypeError, match="no option 'max_turnz'"):
        await Agent(ScriptedModel(say("Hi."))).run("Hello", **wrong)


def _failure_of(result: RunResult[Any]) -> Failure:
    assert (result.status, result.error is not None) == ("failed", True)
    assert result.error is not None
    assert (result.error.code, result.error.is_retryable) == ("hook_failed", False)
    assert "Traceback" not in result.error.message
    return result.error


@async_test
async def test_instructions_may_be_a_function_of_the_run() -> None:
    async def greet(ctx: RunContext[str]) -> str:
        return f"You work for {ctx.deps}."

    model = ScriptedModel(say("one"), say("two"), say("three"))
    agent = Agent(model, instructions=greet, deps_type=str)
    await agent.run("q", deps="Ada")
    await agent.run("q", deps="Bo")
    await agent.with_(instructions="Be brief.").run("q", deps="Cy")
    assert [each.instructions for each in model.requests] == ["You work for Ada.", "You work for Bo.", "Be brief."]
    with pytest.raises(ConfigError, match="instructions that are a function"):
        agent.to_yaml()


@pytest.mark.parametrize(
    ("function", "words"), [(lambda ctx: ctx.nothing, "nothing"), (lambda ctx: 3, "returned a int")]
)
@async_test
async def test_instructions_that_fail_end_the_run_before_the_model_is_asked(function: Any, words: str) -> None:
    model = ScriptedModel(say("never"))
    result = await Agent(model, instructions=function).run("q")
    assert (result.status, model.requests) == ("failed", [])
    assert result.error is not None
    assert words in result.error.message

"""Approvals and questions of servers reach the callback of the run, and nothing runs without a yes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from agents.served_agent import output_of, write_agent
from async_tests import async_test

from holodeck import (
    Agent,
    AskPerson,
    Elicitation,
    Hooks,
    MCPServer,
    RefuseCall,
    RequestedCall,
    RunContext,
    ToolFinished,
)
from holodeck.testing import Era, FaultyMCPServer, ScriptedModel, call, say

APPROVAL = {"approval": "always"}


class AskAlways(Hooks[Any]):
    async def before_call(self, ctx: RunContext[Any], call: RequestedCall) -> AskPerson:
        return AskPerson(question="May it run?")


def adding_model() -> ScriptedModel:
    return ScriptedModel(call("add", a=1, b=2), say("done"))


@async_test
async def test_a_call_that_its_server_wants_approved_runs_after_a_yes(tmp_path: Path) -> None:
    asked: list[tuple[str, str, Mapping[str, Any], str]] = []

    async def approve(ctx: RunContext[None], call: RequestedCall) -> bool:
        asked.append((call.server, call.tool, call.arguments, ctx.call_id))
        return True

    model = adding_model()
    async with FaultyMCPServer() as server:
        agent: Agent = Agent.from_file(write_agent(tmp_path, server.url, APPROVAL), model=model, on_approval=approve)
        await agent.run("add")
    assert asked == [("calc", "add", {"a": 1, "b": 2}, "call_1")]
    assert output_of(model.requests[1]) == "3"


@async_test
async def test_the_time_that_a_person_takes_is_not_the_tools(tmp_path: Path) -> None:
    hesitation = 0.5  # seconds

    async def approve(ctx: RunContext[None], call: RequestedCall) -> bool:
        decided = asyncio.Event()
        asyncio.get_running_loop().call_later(hesitation, decided.set)
        return await decided.wait()

    model = ScriptedModel(call("add", a=1, b=2), say("done"), call("add", a=1, b=2), say("done"))
    async with FaultyMCPServer() as server:
        agent: Agent = Agent.from_file(write_agent(tmp_path, server.url, APPROVAL), model=model, on_approval=approve)
        # The first call of a server also connects to it.
        await agent.run("add")
        began = asyncio.get_running_loop().time()
        finished = [event async for event in agent.stream("add") if isinstance(event, ToolFinished)]
        whole = asyncio.get_running_loop().time() - began
    assert 0 < finished[0].seconds <= whole - hesitation


@pytest.mark.parametrize(
    ("answer", "told"),
    [(False, "did not approve"), (RefuseCall(reason="Not on Sundays."), "Not on Sundays.")],
    ids=["no", "a reason"],
)
@async_test
async def test_a_call_that_is_not_approved_does_not_run(tmp_path: Path, answer: bool | RefuseCall, told: str) -> None:
    model = adding_model()
    async with FaultyMCPServer() as server:
        agent: Agent = Agent.from_file(
            write_agent(tmp_path, server.url, APPROVAL), model=model, on_approval=lambda ctx, call: answer
        )
        result = await agent.run("add")
        assert server.calls("add") == []
    assert result.output == "done"
    assert told in output_of(model.requests[1])


@pytest.mark.parametrize("by_hook", [False, True], ids=["rule of the server", "hook"])
@async_test
async def test_without_a_callback_no_call_is_approved(tmp_path: Path, by_hook: bool) -> None:
    model = adding_model()
    async with FaultyMCPServer() as server:
        file = write_agent(tmp_path, server.url, {} if by_hook else APPROVAL)
        agent: Agent = Agent.from_file(file, model=model, hooks=[AskAlways()] if by_hook else [])
        await agent.run("add")
        assert server.calls("add") == []
    assert "needs a person's approval, and there is no one to ask" in output_of(model.requests[1])


@async_test
async def test_a_plain_function_is_asked_in_a_thread() -> None:
    threads: list[threading.Thread] = []

    def approve(ctx: RunContext[None], call: RequestedCall) -> bool:
        threads.append(threading.current_thread())
        return True

    model = adding_model()
    async with FaultyMCPServer() as server:
        tools = [MCPServer.http(server.url)]
        await Agent(model, tools=tools, hooks=[AskAlways()], on_approval=approve).run("add")
    assert [each is threading.current_thread() for each in threads] == [False]
    assert output_of(model.requests[1]) == "3"


@pytest.mark.parametrize(
    ("approve", "words"),
    [
        (lambda ctx, call: "sure", "The hook 'on_approval' failed: it returned 'sure'"),
        (lambda ctx, call: 1 / 0, "The hook 'on_approval' failed: ZeroDivisionError"),
    ],
    ids=["wrong answer", "exception"],
)
@async_test
async def test_a_callback_that_fails_runs_nothing_and_fails_the_run(approve: Any, words: str) -> None:
    async with FaultyMCPServer() as server:
        tools = [MCPServer.http(server.url)]
        agent = Agent(adding_model(), tools=tools, hooks=[AskAlways()], on_approval=approve)
        result = await agent.run("add")
        assert server.calls("add") == []
    assert result.error is not None
    assert words in result.error.message


@async_test
async def test_runs_at_the_same_time_ask_their_own_callbacks(tmp_path: Path) -> None:
    both_ask = asyncio.Barrier(2)
    asked: list[tuple[str, str]] = []

    def approver(name: str, *, answer: bool) -> Any:
        async def approve(ctx: RunContext[None], call: RequestedCall) -> bool:
            asked.append((name, ctx.run_id))
            await both_ask.wait()
            return answer

        return approve

    model = ScriptedModel(lambda request: say("done") if len(request.items) > 1 else call("add", a=1, b=2))
    async with FaultyMCPServer() as server:
        agent: Agent = Agent.from_file(
            write_agent(tmp_path, server.url, APPROVAL), model=model, on_approval=approver("agent", answer=False)
        )
        async with agent:
            yes, no = await asyncio.gather(
                agent.run("one", run_id="run_1", on_approval=approver("first", answer=True)),
                agent.run("two", run_id="run_2", on_approval=approver("second", answer=False)),
            )
    assert sorted(asked) == [("first", "run_1"), ("second", "run_2")]
    outputs = [each.items[1] for each in (yes, no)]
    assert [getattr(each, "is_error", None) for each in outputs] == [False, True]


ERAS: list[Era] = ["legacy", "modern"]


@pytest.mark.parametrize("era", ERAS)
@async_test
async def test_the_question_of_a_server_reaches_the_callback_of_the_run(era: Era) -> None:
    questions: list[Elicitation] = []

    async def answer(ctx: RunContext[str], question: Elicitation) -> Mapping[str, Any]:
        questions.append(question)
        return {"name": ctx.deps}

    model = ScriptedModel(call("ask_elicitation"), say("done"))
    async with FaultyMCPServer(era=era) as server:
        agent = Agent(model, tools=[MCPServer.http(server.url, name="forms")], deps_type=str)
        await agent.run("ask", deps="Ada", on_elicitation=answer)
    assert [(each.server, each.message, sorted(each.schema["properties"])) for each in questions] == [
        ("forms", "What is your name?", ["name"])
    ]
    assert "accept" in output_of(model.requests[1])
    assert "Ada" in output_of(model.requests[1])


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("has_callback", [False, True], ids=["no callback", "None"])
@async_test
async def test_a_question_without_an_answer_is_declined(era: Era, has_callback: bool) -> None:
    model = ScriptedModel(call("ask_elicitation", anyway=True), say("done"))
    async with FaultyMCPServer(era=era) as server:
        tools = [MCPServer.http(server.url)]
        agent = Agent(model, tools=tools, on_elicitation=(lambda ctx, question: None) if has_callback else None)
        await agent.run("ask")
    assert "decline" in output_of(model.requests[1])


@async_test
async def test_runs_at_the_same_time_are_asked_their_own_questions() -> None:
    both_ask = asyncio.Barrier(2)

    async def answer(ctx: RunContext[str], question: Elicitation) -> Mapping[str, Any]:
        await both_ask.wait()
        return {"name": ctx.deps}

    model = ScriptedModel(lambda request: say("done") if len(request.items) > 1 else call("ask_elicitation"))
    async with FaultyMCPServer(era="modern") as server:
        agent = Agent(model, tools=[MCPServer.http(server.url)], deps_type=str, on_elicitation=answer)
        async with agent:
            results = await asyncio.gather(agent.run("one", deps="Ada"), agent.run("two", deps="Bob"))
    texts = [str(each.items[1]) for each in results]
    assert ["Ada" in texts[0], "Bob" in texts[1]] == [True, True]


@async_test
async def test_a_question_that_may_belong_to_either_of_two_runs_is_put_to_neither() -> None:
    """A server of the older protocol over SSE does not say which call its question belongs to."""
    asked: list[str] = []

    async def answer(ctx: RunContext[str], question: Elicitation) -> Mapping[str, Any]:
        asked.append(ctx.deps)
        return {"name": ctx.deps}

    model = ScriptedModel(
        lambda request: say("done") if len(request.items) > 1 else call(str(getattr(request.items[0], "text", "")))
    )
    async with FaultyMCPServer(era="legacy") as server:
        agent = Agent(model, tools=[MCPServer.sse(server.url_for("sse"))], deps_type=str, on_elicitation=answer)
        async with agent:
            first = asyncio.create_task(agent.run("slow", deps="Ada"))
            await server.received("tools/call", count=1)
            second = await agent.run("ask_elicitation", deps="Bob")
            await agent.run("release", deps="Eve")
            await first
    assert asked == []
    assert "decline" in str(second.items[1])

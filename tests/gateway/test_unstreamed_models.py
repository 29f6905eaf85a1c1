"""A gateway and an agent ask the model for a stream if something reads the deltas, and else for one document."""

from __future__ import annotations

from pathlib import Path

from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from gateway.test_run_list import ALICE, BOB

from holodeck import LLM, Agent, RunLimits
from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.scripted import Received

MESSAGES = [{"role": "user", "content": "Go"}]


@async_test(30)
async def test_the_model_streams_for_requests_that_stream_or_can_be_followed_or_are_charged(tmp_path: Path) -> None:
    asked: list[bool] = []

    def answer(request: Received) -> object:
        asked.append(request.json["stream"])
        return say("Hello!")

    budget = {ALICE: {"amount": 1.5, "period": "month"}}
    price = {"input": 1.0, "output": 1.0}
    model = ScriptedModel(answer)  # type: ignore[arg-type]
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB], budgets=budget, price=price) as gateway:
        for path, body, key, is_streamed in (
            ("/v1/responses", {"input": "Go"}, BOB, False),
            ("/v1/responses", {"input": "Go", "stream": True}, BOB, True),
            ("/v1/responses", {"input": "Go"}, ALICE, True),
            ("/v1/chat/completions", {"messages": MESSAGES}, BOB, False),
            ("/v1/chat/completions", {"messages": MESSAGES, "stream": True}, BOB, True),
            ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9}, BOB, False),
            ("/v1/messages", {"messages": MESSAGES, "max_tokens": 9, "stream": True}, BOB, True),
        ):
            asked.clear()
            code, _ = await gateway.send("POST", path, {"model": MODEL, **body}, key=key)
            assert (code, asked) == (200, [is_streamed]), (path, body, key)


@async_test(30)
async def test_an_agent_streams_what_is_read_or_may_be_stopped_in_the_middle() -> None:
    async with ScriptedModel(*[say("Hello!")] * 3).serve() as server:
        async with Agent(LLM(provider="openai_compatible", name="m", endpoint=server.url)) as agent:
            assert (await agent.run("Go")).output == "Hello!"
            assert (await agent.run("Go", limits=RunLimits(seconds=60))).output == "Hello!"
            assert [event async for event in agent.stream("Go")]
        assert [each.json["stream"] for each in server.received] == [False, True, True]

"""Prompts grow at their end only, and with Anthropic's API what a turn has sent is read from the cache by the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from providers.model_exchange import collect_events, model_at, run_with_timeout

from holodeck import LLM, Agent, Price, RunLimits, Session, tool
from holodeck.models.items import Usage, text_message
from holodeck.models.model_io import ModelRequest
from holodeck.providers.anthropic import Anthropic
from holodeck.providers.base import ModelProvider
from holodeck.testing import FaultyMCPServer, PromptCache, ScriptedModel, call, call_raw, say, spend, think
from holodeck.testing.model.script import Turn, status
from holodeck.testing.model.scripted import DialectName, ScriptedServer

TURNS = 10
# The maker's rules for a price of 4 a million: a write costs 1.25 times the input, a read a tenth.
PRICE = Price(input=4, cached=0.4, cache_write=5, cache_write_1h=8, output=20)


def make_tools(count: int) -> list[Any]:
    """Tools whose descriptions are as long as those of real ones."""

    def make(number: int) -> Any:
        def look_up(word: str) -> str:
            return f"{word} is in volume {number}. " * 20

        look_up.__name__ = f"look_up_{number}"
        look_up.__doc__ = f"Look up a word in volume {number}. " + "Use it for words of that volume only. " * 8
        return tool(look_up)

    return [make(number) for number in range(count)]


def looped(answers: int = TURNS) -> ScriptedModel:
    """A model that looks up two words in each turn but the last."""
    turns: list[Turn] = [
        [think("Hm.", signature="s"), call("look_up_1", word=f"a{n}"), call("look_up_2", word=f"b{n}"), spend(0, 50)]
        for n in range(answers - 1)
    ]
    return ScriptedModel(*turns, [say("Done."), spend(0, 50)])


def anthropic_at(url: str, **more: Any) -> LLM:
    return LLM.model_validate(
        {"provider": "anthropic", "name": "claude-sonnet-4-5", "endpoint": url, "api_key": "k", "price": PRICE, **more}
    )


def count_marks(body: Any) -> int:
    return orjson.dumps(body).count(b'"cache_control"')


@async_test(60)
async def test_after_the_first_turn_nine_tenths_of_the_input_are_read_from_the_cache() -> None:
    cache = PromptCache(minimum=512)
    async with looped().serve("anthropic", prompt_cache=cache) as server:
        agent = Agent(model=anthropic_at(server.url), instructions="Be exact. " * 50, tools=make_tools(20))
        async with agent:
            result = await agent.run("Where are they?", limits=RunLimits(turns=TURNS))
    assert len(cache.billed) == TURNS
    later = cache.billed[1:]
    assert sum(each.cached_tokens for each in later) >= 0.9 * sum(each.input_tokens for each in later)
    assert all(each.cached_tokens for each in later)
    assert {count_marks(received.json) for received in server.received} == {3, 4}
    usage = sum(cache.billed, Usage(output_tokens=TURNS * 50))
    assert result.usage == usage
    plain = usage.input_tokens - usage.cached_tokens - usage.cache_write_tokens
    bill = plain * 4 + usage.cached_tokens * 0.4 + usage.cache_write_tokens * 5 + usage.output_tokens * 20
    assert result.cost == pytest.approx(bill / 1_000_000, rel=0.01)
    # Without a cache all of the input is paid in full.
    assert result.cost is not None
    assert result.cost < 0.35 * (usage.input_tokens * 4 + usage.output_tokens * 20) / 1e6


@pytest.mark.parametrize(("mode", "marks", "lifetimes"), [("off", 0, 0), ("1h", 3, 3), ("auto", 3, 0)])
def test_the_file_says_whether_and_how_long_prompts_are_cached(mode: str, marks: int, lifetimes: int) -> None:
    async def ask() -> tuple[ScriptedServer, PromptCache]:
        cache = PromptCache(minimum=512)
        async with ScriptedModel([say("Done."), spend(0, 9)]).serve("anthropic", prompt_cache=cache) as server:
            model = anthropic_at(server.url, cache=mode)
            async with Agent(model=model, instructions="Be exact. " * 50, tools=make_tools(9)) as agent:
                assert (await agent.run("Where?")).usage == cache.billed[0] + Usage(output_tokens=9)
        return server, cache

    server, cache = run_with_timeout(ask())
    text = orjson.dumps(server.received[0].json)
    assert (text.count(b'"cache_control"'), text.count(b'"ttl":"1h"')) == (marks, lifetimes)
    assert bool(cache.billed[0].cache_write_tokens) == (mode != "off")
    assert bool(cache.billed[0].cache_write_1h_tokens) == (mode == "1h")


def test_a_server_that_refuses_marks_gets_none() -> None:
    refusal = {"error": {"message": "messages.0.content.0.cache_control: Extra inputs are not permitted"}}

    def answer(received: Any) -> Turn:
        return [status(400, refusal)] if count_marks(received.json) else [say("Done.")]

    async def ask() -> list[int]:
        async with ScriptedModel(answer).serve("anthropic") as server:
            async with Agent(model=anthropic_at(server.url), instructions="Be exact. " * 200) as agent:
                assert (await agent.run("Where?")).text == (await agent.run("Where?")).text == "Done."
            return [count_marks(received.json) for received in server.received]

    assert run_with_timeout(ask()) == [2, 0, 0]


def list_blocks(body: dict[str, Any]) -> Iterator[list[bytes]]:
    """The tools, the instructions and the messages of a body, as rows of bytes without marks of the cache."""

    def without_marks(value: Any) -> Any:
        if isinstance(value, list):
            return [without_marks(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: without_marks(each) for name, each in value.items() if name != "cache_control"}

    def row(values: Any) -> list[bytes]:
        values = [{"type": "text", "text": values}] if isinstance(values, str) else values or []
        return [orjson.dumps(without_marks(value)) for value in values]

    yield row(body.get("tools"))
    yield row(body.get("system") or body.get("instructions"))
    messages = body.get("messages") or body.get("input") or []
    if "max_tokens" not in body:
        yield row(messages)
        return
    yield [
        role + block for message in messages for role in [message["role"].encode()] for block in row(message["content"])
    ]


def assert_grows(bodies: list[dict[str, Any]]) -> None:
    for before, after in itertools.pairwise(bodies):
        for part, (old, new) in enumerate(zip(list_blocks(before), list_blocks(after), strict=True)):
            assert new[: len(old)] == old, f"part {part} changed"


@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_prompts_of_a_run_and_of_a_session_grow_at_their_end(dialect: DialectName) -> None:
    opaque = {"signature": "s"} if dialect == "anthropic" else {"encrypted_content": "e"}
    tools = make_tools(6)
    thought = [] if dialect == "responses" else [think("Hm.", **opaque)]
    turns: list[Turn] = [
        *([[*thought, say(f"Look {n}."), call("look_up_1", word="a"), call("look_up_2", word="b")] for n in range(3)]),
        [*thought, say("First.")],
        [*thought, call("look_up_3", word="c")],
        [call("look_up_9", word="unknown")],
        [*thought, say("Second.")],
        [say("Third.")],
    ]

    async def ask() -> list[dict[str, Any]]:
        async with ScriptedModel(*turns).serve(dialect) as server:
            model: ModelProvider = model_at(server.url, dialect)
            session = Session()
            async with Agent(model=model, instructions="Be exact. " * 50, tools=tools) as agent:
                for question in ("Where?", "And then?", "And now?"):
                    await agent.run(question, session=session)
            return [received.json for received in server.received]

    bodies = run_with_timeout(ask())
    assert len(bodies) == len(turns)
    assert_grows(bodies)


@pytest.mark.parametrize("how", ["chain", "conversation", "background"])
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_prompts_of_a_conversation_of_the_gateway_grow_at_their_end(
    tmp_path: Path, dialect: DialectName, how: str
) -> None:
    """Responses after one another, of a stored conversation, and durable ones."""
    function = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}
    thought = [think("Hm.", signature="s")] if dialect == "anthropic" else []
    model = ScriptedModel(
        [*thought, call_raw("look_up", "{}", call_id="c1")], [*thought, say("Here.")], say("There."), say("Yes.")
    )
    asked = {"model": MODEL, "tools": [function], "instructions": "Be exact. " * 20}

    async def ask() -> list[dict[str, Any]]:
        async with run_gateway(
            tmp_path, model, dialect=dialect, background={"durable": how == "background"}
        ) as gateway:
            _, conversation = await gateway.send("POST", "/v1/conversations", {})
            previous: str | None = None
            for said in (
                [{"role": "developer", "content": "Rhyme."}, {"role": "user", "content": "Where?"}],
                [{"type": "function_call_output", "call_id": "c1", "output": "in volume 1"}],
                [{"role": "developer", "content": "Do not rhyme."}, {"role": "user", "content": "And then?"}],
                "And now?",
            ):
                body = {**asked, "input": said, "stream": True, "background": how == "background"}
                body |= {"conversation": conversation["id"]} if how == "conversation" else {}
                body |= {} if how == "conversation" else {"previous_response_id": previous}
                answer = (await gateway.stream("/v1/responses", body))[-1]["response"]
                assert answer["status"] == "completed", answer
                previous = answer["id"]
            return gateway.model_requests

    bodies = run_with_timeout(ask())
    assert len(bodies) == 4
    assert_grows(bodies)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("dialect", ["chat", "responses", "anthropic"])
def test_prompts_of_a_client_that_sends_all_again_begin_with_what_it_sent_before(
    tmp_path: Path, dialect: DialectName, path: str
) -> None:
    """It has seen the answers, and not the calls that the gateway made for them."""
    turns: list[Turn] = [
        each
        for word in ("one", "two", "three")
        for each in ([say("Let me see. "), call("echo", text=word)], say(f"It is {word}."))
    ]

    async def ask() -> list[dict[str, Any]]:
        async with (
            FaultyMCPServer() as server,
            run_gateway(tmp_path, ScriptedModel(*turns), mcp={"tools": server}, dialect=dialect) as gateway,
        ):
            messages: list[Any] = []
            for question in ("Where?", "And then?", "And now?"):
                messages.append({"role": "user", "content": question})
                body = {"model": MODEL, "messages": messages, "max_tokens": 100}
                code, answer = await gateway.send("POST", path, body)
                assert code == 200, answer
                is_chat = path == "/v1/chat/completions"
                said = answer["choices"][0]["message"]["content"] if is_chat else answer["content"]
                messages.append({"role": "assistant", "content": said})
            return gateway.model_requests

    bodies = run_with_timeout(ask())
    assert len(bodies) == len(turns)
    for first in range(0, len(bodies), 2):
        assert_grows(bodies[first : first + 2])
    assert_grows(bodies[::2])


def test_later_instructions_go_to_system_for_a_model_that_has_no_others() -> None:
    refusal = {"error": {"message": "messages.2: role 'system' is not supported on this model"}}

    def answer(received: Any) -> Turn:
        roles = [message["role"] for message in received.json["messages"]]
        return [status(400, refusal)] if "system" in roles else [say("Done.")]

    async def ask() -> list[Any]:
        async with ScriptedModel(answer).serve("anthropic") as server:
            model = Anthropic(model="m", base_url=server.url)
            items = (*(text_message(role, role) for role in ("user", "assistant", "developer", "user")),)
            for _ in range(2):
                await collect_events(model, ModelRequest(items=items, instructions="First."))
            await model.close()
            return [(len(each.json["messages"]), each.json["system"]) for each in server.received]

    both = "First.\n\ndeveloper"
    assert run_with_timeout(ask()) == [(4, "First."), (3, both), (3, both)]

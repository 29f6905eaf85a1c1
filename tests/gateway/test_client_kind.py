"""Reasoning events have two names: OpenAI's packages get OpenAI's, all other clients the open contract's."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.wire.open_responses_contract import event_contract_problems
from websockets.asyncio.client import connect

from holodeck.testing import ScriptedModel, say, think

OPENAI, OPEN = "response.reasoning_text.", "response.reasoning."


def thoughtful() -> ScriptedModel:
    return ScriptedModel(lambda _: [think("Hmm, let me see"), say("Yes.")])


def request_body(**more: Any) -> dict[str, Any]:
    return {"model": MODEL, "input": "Is it?", "stream": True, **more}


def thoughts(types: Sequence[str]) -> set[str]:
    """The prefixes of the names of reasoning events."""
    return {kind.rpartition(".")[0] + "." for kind in types if "reasoning" in kind}


def kinds(events: list[dict[str, Any]]) -> list[str]:
    assert not [problem for event in events for problem in event_contract_problems(event)]
    return [event["type"] for event in events]


async def package_stream(gateway: RunningGateway, **more: Any) -> list[str]:
    stream = await (await gateway.openai_client()).responses.create(model=MODEL, input="Is it?", stream=True, **more)
    return [event.type async for event in stream]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_stock_package_gets_the_names_that_it_knows_and_a_bare_client_those_of_the_open_contract(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, thoughtful()) as gateway:
        assert thoughts(await package_stream(gateway)) == {OPENAI}
        assert thoughts(kinds(await gateway.stream("/v1/responses", request_body()))) == {OPEN}


@async_test(30)
async def test_the_user_agent_of_an_openai_package_selects_its_event_names(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, thoughtful()) as gateway:
        session, data = await gateway.http_client(), orjson.dumps(request_body())
        agent = {"user-agent": "AsyncAzureOpenAI/Python 1.99.0"}
        async with session.post("/v1/responses", data=data, headers=agent) as answer:
            text = await answer.text()
        assert OPENAI in text
        assert f"event: {OPEN}" not in text


@async_test(30)
async def test_each_reader_of_a_stored_stream_gets_the_event_names_of_its_own_client_kind(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, thoughtful()) as gateway:
        openai = await gateway.openai_client()
        made = (await gateway.stream("/v1/responses", request_body()))[-1]["response"]["id"]
        read = [event.type async for event in await openai.responses.retrieve(made, stream=True)]
        assert thoughts(read) == {OPENAI}
        async with openai.responses.stream(model=MODEL, input="Is it?") as stream:
            own = (await stream.get_final_response()).id
        assert thoughts(kinds(await gateway.stream(f"/v1/responses/{own}?stream=true"))) == {OPEN}
        never_streamed = (await openai.responses.create(model=MODEL, input="Is it?")).id
        assert thoughts(kinds(await gateway.stream(f"/v1/responses/{never_streamed}?stream=true"))) == {OPEN}


@async_test(30)
async def test_background_responses_use_the_event_names_of_streams(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, thoughtful()) as gateway:
        assert thoughts(await package_stream(gateway, background=True)) == {OPENAI}
        assert thoughts(kinds(await gateway.stream("/v1/responses", request_body(background=True)))) == {OPEN}


@async_test(30)
async def test_sockets_use_the_event_names_of_streams(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, thoughtful()) as gateway:
        async with (await gateway.openai_client()).responses.connect() as connection:
            await connection.response.create(model=MODEL, input="Is it?")
            seen = [(await connection.recv()).type]
            while seen[-1] != "response.completed":
                seen.append((await connection.recv()).type)
        assert thoughts(seen) == {OPENAI}
        async with connect(gateway.url.replace("http", "ws", 1) + "/v1/responses") as socket:
            await socket.send(orjson.dumps({"type": "response.create", "model": MODEL, "input": "Is it?"}).decode())
            events = [orjson.loads(await socket.recv())]
            while events[-1]["type"] != "response.completed":
                events.append(orjson.loads(await socket.recv()))
        assert thoughts(kinds(events)) == {OPEN}

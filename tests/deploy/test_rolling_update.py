"""A gateway that is replaced while the stock client uses it through a balancer of connections, as on Kubernetes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from async_tests import async_test
from deploy.balancer import Balancer
from gateway.gateway_process import GatewayProcess, run_gateway_process, start_gateway, write_gateway_file
from openai import AsyncOpenAI

from holodeck.testing import ScriptedModel, say, wait

SECONDS = 120.0  # two processes start, on a machine that may have much to do


async def drains(served: GatewayProcess) -> None:
    """Wait until it says that it is leaving."""
    while (await served.send("GET", "/readyz"))[0] != 503:  # noqa: ASYNC110 - another process changes it
        await asyncio.sleep(0.02)


async def refuses(served: GatewayProcess) -> None:
    """Wait until it takes no connection."""
    with suppress(aiohttp.ClientConnectorError):
        while True:
            await served.send("GET", "/healthz", headers={"connection": "close"})


@async_test(SECONDS)
async def test_a_client_with_an_open_connection_to_a_gateway_that_leaves_is_answered_by_the_other(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    answers = [say("again")] * 10
    async with ScriptedModel(say("first"), [say("slowly "), wait(go), say("done")], *answers).serve() as scripted:
        limits = {"drain_seconds": SECONDS}
        file = write_gateway_file(tmp_path, scripted.url, background={"durable": False}, limits=limits)
        async with (
            run_gateway_process(file) as leaving,
            run_gateway_process(file) as staying,
            Balancer(leaving.url).serve() as balancer,
            AsyncOpenAI(base_url=f"{balancer.url}/v1", api_key="hd-anybody") as client,
            AsyncOpenAI(base_url=f"{leaving.url}/v1", api_key="hd-anybody") as other,
        ):
            made = await client.responses.create(model="demo", input="hi")  # from now on it has a connection
            stream = await other.responses.create(model="demo", input="hi", stream=True)
            await anext(aiter(stream))  # as long as this one goes on, the gateway drains
            balancer.gateways = [staying.url]
            leaving.stop()
            await drains(leaving)
            assert (await client.responses.retrieve(made.id)).id == made.id
            requests = [client.responses.create(model="demo", input="hi") for _ in range(4)]
            assert {answer.output_text for answer in await asyncio.gather(*requests)} == {"again"}
            go.set()
            assert [event.type async for event in stream][-1] == "response.completed"
            assert await leaving.wait_exit() == 0


@async_test(SECONDS)
async def test_a_refusal_of_a_gateway_that_leaves_ends_its_connection_and_says_when_to_come_back(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    limits = {"drain_seconds": SECONDS}
    async with (
        ScriptedModel([say("slowly "), wait(go), say("done")]).serve() as scripted,
        run_gateway_process(write_gateway_file(tmp_path, scripted.url, limits=limits)) as served,
    ):
        running = asyncio.create_task(served.create_response())
        while not scripted.received:  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.02)
        served.stop()
        await drains(served)
        for method, path in (("POST", "/v1/responses"), ("GET", "/readyz")):
            status, _, headers = await served.send(method, path)
            assert (status, headers["connection"], headers["retry-after"]) == (503, "close", "1"), path
        status, _, headers = await served.send("GET", "/v1/models")
        assert (status, headers["connection"]) == (200, "close"), "what costs nothing is answered, once"
        go.set()
        assert (await running)[0] == 200
        assert await served.wait_exit() == 0


@async_test(SECONDS)
async def test_a_socket_of_a_gateway_that_leaves_is_closed_and_none_is_opened(tmp_path: Path) -> None:
    go = asyncio.Event()
    limits = {"drain_seconds": SECONDS}
    async with (
        ScriptedModel([say("slowly "), wait(go), say("done")]).serve() as scripted,
        run_gateway_process(write_gateway_file(tmp_path, scripted.url, limits=limits)) as served,
        served.session.ws_connect(f"{served.url}/v1/responses") as socket,
    ):
        running = asyncio.create_task(served.create_response())
        while not scripted.received:  # noqa: ASYNC110 - another process asks
            await asyncio.sleep(0.02)
        served.stop()
        await drains(served)
        await socket.send_json({"type": "response.create", "model": "demo", "input": "hi"})
        assert (await socket.receive_json())["error"]["code"] == "shutting_down"
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1001
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await served.session.ws_connect(f"{served.url}/v1/responses")
        assert refused.value.status == 503
        go.set()
        assert (await running)[0] == 200
        assert await served.wait_exit() == 0


@async_test(SECONDS)
async def test_behind_a_balancer_without_checks_a_gateway_closes_first_and_no_request_is_refused(
    tmp_path: Path,
) -> None:
    go = asyncio.Event()
    answers = [say("again")] * 10
    async with ScriptedModel([say("slowly "), wait(go), say("done")], *answers).serve() as scripted:
        config: dict[str, Any] = {"limits": {"drain_seconds": SECONDS}, "listen": {"port": 0, "closes_first": True}}
        file = write_gateway_file(tmp_path, scripted.url, **config)
        async with (
            run_gateway_process(file) as leaving,
            run_gateway_process(file) as staying,
            Balancer(leaving.url, staying.url).serve() as balancer,
        ):
            running = asyncio.create_task(leaving.create_response())
            while not scripted.received:  # noqa: ASYNC110 - another process asks
                await asyncio.sleep(0.02)
            leaving.stop()
            await refuses(leaving)
            for _ in answers:
                async with AsyncOpenAI(base_url=f"{balancer.url}/v1", api_key="hd-anybody", max_retries=0) as client:
                    assert (await client.responses.create(model="demo", input="hi")).output_text == "again"
            assert balancer.refusals > 0
            go.set()
            assert (await running)[0] == 200, "what has begun goes on"
            assert await leaving.wait_exit() == 0
            assert "Traceback" not in "".join(leaving.stderr_lines)


@async_test(SECONDS)
async def test_a_gateway_that_is_still_starting_ends_on_sigterm(tmp_path: Path) -> None:
    """As the first process of a container it would not be ended by a signal that it does not catch."""
    was_requested = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        was_requested.set()
        try:
            with suppress(OSError):
                await reader.read()  # until it leaves
        finally:
            writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    port = silent.sockets[0].getsockname()[1]
    file = write_gateway_file(tmp_path, "http://127.0.0.1:9/v1", storage={"url": f"postgresql://me@127.0.0.1:{port}/x"})
    process = await start_gateway(file)
    try:
        await was_requested.wait()
        process.terminate()
        assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
        silent.close()
        await silent.wait_closed()

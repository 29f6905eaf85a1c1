"""All request bodies share a byte budget: many large ones cannot take more memory than the operator allows."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.config.gateway_loader import load_gateway_file
from holodeck.lib.errors import ConfigError
from holodeck.testing import ScriptedModel, say, wait

KIB = 1024
LIMITS = {"body_bytes": 64 * KIB, "bodies_bytes": 128 * KIB, "drain_seconds": 0}
SECONDS = 60.0
JSON = "Content-Type: application/json\r\n"


def large(text: str = "x") -> dict[str, str]:
    return {"model": MODEL, "input": text * 60 * KIB}


@async_test(SECONDS)
async def test_a_body_counts_against_the_byte_budget_until_its_response_is_sent(tmp_path: Path) -> None:
    go = asyncio.Event()
    slow = [[wait(go), say("done")]] * 2
    async with run_gateway(tmp_path, ScriptedModel(*slow, say("again")), limits=LIMITS) as gateway:
        running = [asyncio.create_task(gateway.send("POST", "/v1/responses", large())) for _ in slow]
        while len(gateway.model_requests) < 2:  # noqa: ASYNC110 - another task calls the model
            await asyncio.sleep(0.01)
        async with (await gateway.http_client()).post("/v1/responses", json=large()) as answer:
            body = await answer.json()
            assert (answer.status, body["error"]["type"]) == (429, "too_many_requests")
            assert answer.headers["retry-after"] == "1"
        assert (await gateway.send("POST", "/v1/responses", {"model": "unknown"}))[0] == 400, (
            "a small body fits the budget"
        )
        go.set()
        assert [(await each)[0] for each in running] == [200, 200]
        assert (await gateway.send("POST", "/v1/responses", large()))[0] == 200


@async_test(SECONDS)
async def test_a_partly_received_body_counts_against_the_byte_budget_until_the_client_disconnects(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("again")), limits=LIMITS) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        head = f"POST /v1/responses HTTP/1.1\r\nHost: {host}\r\n{JSON}Content-Length: {64 * KIB}\r\n\r\n".encode()
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(3)]
        for _, writer in opened:
            writer.write(head + b"x" * 60 * KIB)
        refused = [asyncio.create_task(reader.readline()) for reader, _ in opened]
        done, _ = await asyncio.wait(refused, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [b"HTTP/1.1 429 Too Many Requests\r\n"]
        for _, writer in opened:
            writer.transport.abort()
        await asyncio.gather(*refused, return_exceptions=True)
        while (await gateway.send("POST", "/v1/responses", large()))[0] != 200:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)


def encode_chunk(size: int) -> bytes:
    return b"%x\r\n%b\r\n" % (size, b"x" * size)


@async_test(SECONDS)
async def test_a_chunked_body_has_the_same_limits(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits=LIMITS) as gateway:
        host, port = gateway.url.removeprefix("http://").split(":")
        head = f"POST /v1/responses HTTP/1.1\r\nHost: {host}\r\n{JSON}Transfer-Encoding: chunked\r\n\r\n".encode()
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(4)]
        (reader, writer), *others = opened
        writer.write(head + encode_chunk(64 * KIB + 1))
        assert (await reader.readline()).startswith(b"HTTP/1.1 413")
        for _, each in others:
            each.write(head + encode_chunk(60 * KIB))
        waiting = [asyncio.create_task(each.readline()) for each, _ in others]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in done] == [b"HTTP/1.1 429 Too Many Requests\r\n"]
        for _, each in opened:
            each.transport.abort()
        await asyncio.gather(*waiting, return_exceptions=True)


def test_the_byte_budget_always_fits_one_body_of_the_largest_size(tmp_path: Path) -> None:
    file = tmp_path / "gateway.yaml"
    model = "models: [{name: m, model: {provider: rehearsal}}]\n"
    file.write_text(model + "limits: {body_bytes: 4096, bodies_bytes: 2048}\n")
    with pytest.raises(ConfigError, match="'bodies_bytes' must be at least 'body_bytes'"):
        load_gateway_file(file, environ={})
    file.write_text(model + "limits: {body_bytes: 1073741824}\n")
    assert load_gateway_file(file, environ={}).gateway.limits.body_budget == 1024 * KIB * KIB

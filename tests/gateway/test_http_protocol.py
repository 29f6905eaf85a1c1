"""Every use of a connection that HTTP allows gets each answer at once, complete and in order."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from counted_calls import CountedCalls
from gateway.running_gateway import MODEL, run_gateway
from gateway.test_keep_alive import open_raw_connection

from holodeck.gateway.server.http_protocol import MAX_HEAD_BYTES, MAX_HEADERS
from holodeck.testing import ScriptedModel, say, wait


def posted(body: bytes, *headers: str) -> bytes:
    usual = ("host: 127.0.0.1", "content-type: application/json", f"content-length: {len(body)}")
    lines = ["POST /v1/responses HTTP/1.1", *usual, *headers]
    return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def request_body(text: str, **more: Any) -> bytes:
    return orjson.dumps({"model": MODEL, "input": text, **more})


@pytest.mark.proves("D-25")
@async_test
async def test_a_stream_after_a_plain_answer_on_its_connection_is_not_buffered(tmp_path: Path) -> None:
    step = wait(asyncio.Event())
    async with run_gateway(tmp_path, ScriptedModel(say("one"), [say("two"), step])) as gateway:
        client = await open_raw_connection(gateway)
        assert (await client.ask(posted(request_body("hi")))).startswith(b"HTTP/1.1 200")
        assert (await client.ask(posted(request_body("hi", stream=True)))).startswith(b"HTTP/1.1 200")
        assert b"two" in await client.reader.readuntil(b'"delta":"two"')
        assert not step.until.is_set()
        step.until.set()
        assert (await client.reader.readuntil(b"[DONE]")).endswith(b"[DONE]")
        client.writer.close()


@pytest.mark.proves("D-25")
@async_test
async def test_pipelined_requests_are_answered_in_order(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(*[say(f"answer {number}") for number in range(3)])) as gateway:
        client = await open_raw_connection(gateway)
        client.writer.write(
            posted(request_body("a")) + posted(request_body("b")) + posted(request_body("c", stream=True))
        )
        for number in range(2):
            head = await client.reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            assert f"answer {number}".encode() in await client.reader.readexactly(size)
        assert b"answer 2" in await client.reader.readuntil(b"[DONE]")
        client.writer.close()


@pytest.mark.proves("D-25")
@async_test
async def test_a_large_body_can_be_followed_by_the_start_of_the_next_request(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(*[say("one"), say("two")] * 6)) as gateway:
        for size in range(2, 8):
            client = await open_raw_connection(gateway)
            second = posted(request_body("b"))
            assert (await client.ask(posted(request_body("x" * size * MAX_HEAD_BYTES)) + second[:20])).startswith(
                b"HTTP/1.1 200"
            )
            assert (await client.ask(second[20:])).startswith(b"HTTP/1.1 200")
            client.writer.close()


@pytest.mark.proves("D-25")
@async_test
async def test_a_chunked_body_with_extensions_and_a_trailer_is_read(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("one"), say("two"))) as gateway:
        client = await open_raw_connection(gateway)
        body = request_body("a")
        head = posted(b"", "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
        chunks = b"".join(b"%x;note=1\r\n%b\r\n" % (1, body[at : at + 1]) for at in range(len(body)))
        assert (await client.ask(head + chunks + b"0\r\nx-checksum: 1\r\n\r\n")).startswith(b"HTTP/1.1 200")
        assert (await client.ask(posted(request_body("b")))).startswith(b"HTTP/1.1 200")
        client.writer.close()


@pytest.mark.proves("D-25")
@async_test
async def test_headers_over_the_limit_are_refused(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        client = await open_raw_connection(gateway)
        head = b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\nx-more: "
        client.writer.write(head.ljust(MAX_HEAD_BYTES + 1, b"x"))
        assert (await client.head()).startswith(b"HTTP/1.1 431")
        assert await client.reader.read() == b""
        client.writer.close()


HEADS_OVER_A_LIMIT = {
    "10,000 headers": (b"/v1/models", b"x-one: 1\r\n" * 10_000),
    "one header too many": (b"/healthz", b"".join(b"x-%d: 1\r\n" % number for number in range(MAX_HEADERS))),
    "a long header": (b"/v1/models", b"x-long: %b\r\n" % (b"x" * MAX_HEAD_BYTES)),
    "a long URL": (b"/v1/models?q=" + b"x" * MAX_HEAD_BYTES, b""),
}


@async_test
async def test_a_whole_head_over_a_limit_is_refused_before_it_is_processed(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        for name, (url, headers) in HEADS_OVER_A_LIMIT.items():
            client, work = await open_raw_connection(gateway), CountedCalls()
            with work.counting():
                client.writer.write(b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\n%b\r\n" % (url, headers))
                reply = await client.reader.read()
            assert reply.startswith(b"HTTP/1.1 431"), name
            assert b'"code":"headers_too_large"' in reply, name
            # A few for each header that is read, and none for those after the limit.
            assert work.count < 30 * MAX_HEADERS, name
            client.writer.close()


@async_test
async def test_as_many_headers_as_are_allowed_are_read(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        client = await open_raw_connection(gateway)
        headers = b"".join(b"x-%d: 1\r\n" % number for number in range(MAX_HEADERS - 1))
        client.writer.write(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n" + headers + b"\r\n")
        assert (await client.head()).startswith(b"HTTP/1.1 200")
        client.writer.close()


@async_test
async def test_a_client_of_http_1_0_gets_its_stream_without_chunks_until_the_connection_ends(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("one"))) as gateway:
        client = await open_raw_connection(gateway)
        client.writer.write(posted(request_body("a", stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0", 1))
        head = (await client.reader.readuntil(b"\r\n\r\n")).lower()
        assert b"\r\nconnection: close\r\n" in head
        assert b"transfer-encoding" not in head
        body = await client.reader.read()
        assert body.startswith(b"event: response.created\n")
        assert body.endswith(b"data: [DONE]\n\n")
        client.writer.close()


@async_test
async def test_requests_behind_a_running_one_are_not_read_without_end(tmp_path: Path) -> None:
    step = wait(asyncio.Event())
    async with run_gateway(tmp_path, ScriptedModel([say("one"), step])) as gateway:
        client = await open_raw_connection(gateway)
        client.writer.write(posted(request_body("a")))
        await step.reached.wait()
        probe = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
        client.writer.transport.set_write_buffer_limits(high=0)
        sent = 0
        # More than the buffers of both sockets and of the gateway.
        while sent < 64 * 1024 * 1024:
            client.writer.write(probe * 20_000)
            sent += len(probe) * 20_000
            try:
                async with asyncio.timeout(0.2):
                    await client.writer.drain()
            except TimeoutError:
                break
        assert sent < 64 * 1024 * 1024
        step.until.set()
        assert (await client.head()).startswith(b"HTTP/1.1 200")
        client.writer.transport.abort()

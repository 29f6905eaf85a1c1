"""A model behind TLS: the same answers as without, and each way in which TLS fails has its sentence."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest
from providers.certificates import Authority
from providers.model_exchange import model_at, model_request
from providers.raw_server import (
    Peer,
    answer_body,
    ask_text,
    both_loops,
    chat_event,
    close_at_end,
    http_answer,
    serve_raw,
)

from holodeck.lib.errors import ModelError
from holodeck.models.model_io import TextDelta

MIB = 1024 * 1024
BIG = "x" * 10_000_000


def secure(url: str) -> str:
    return url.replace("http:", "https:")


async def echo(peer: Peer) -> None:
    while True:
        body = await peer.read_request()
        await peer.send(http_answer(body["messages"][0]["content"]))


@both_loops
async def test_requests_share_a_connection_over_tls(authority: Authority) -> None:
    tls = authority.server_context("127.0.0.1")
    async with serve_raw(echo, tls=tls) as server, close_at_end(model_at(secure(server.url))) as model:
        for number in range(3):
            assert await ask_text(model, f"q{number}") == f"q{number}"
        assert await ask_text(model, "y" * MIB) == "y" * MIB
        assert len(server.peers) == 1
        answers = await asyncio.gather(*(ask_text(model, f"q{number}") for number in range(20)))
        assert answers == [f"q{number}" for number in range(20)]


@both_loops
async def test_an_answer_over_tls_may_end_with_its_connection(authority: Authority) -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.0 200 OK\r\n\r\n", answer_body("a"))

    tls = authority.server_context("127.0.0.1")
    async with serve_raw(handler, tls=tls) as server, close_at_end(model_at(secure(server.url))) as model:
        assert [await ask_text(model), await ask_text(model)] == ["a", "a"]


@both_loops
async def test_a_refusal_over_tls_in_the_middle_of_a_big_request_is_reported(authority: Authority) -> None:
    refused = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_head()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await peer.send(http_answer("", status="413 Content Too Large", body=b"too big"))
        await refused.wait()

    tls = authority.server_context("127.0.0.1")
    async with serve_raw(handler, tls=tls) as server, close_at_end(model_at(secure(server.url))) as model:
        with pytest.raises(ModelError, match="413"):
            await ask_text(model, BIG)
        refused.set()


@both_loops
@pytest.mark.parametrize(
    "begun", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + chat_event("a", is_last=False)]
)
@pytest.mark.parametrize("text", ["hello", BIG])
async def test_cancelling_a_request_over_tls(authority: Authority, begun: bytes, text: str) -> None:
    reached, disconnected = asyncio.Event(), asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(begun)
        reached.set()
        await peer.wait_closed()
        disconnected.set()

    tls = authority.server_context("127.0.0.1")
    async with serve_raw(handler, tls=tls) as server, close_at_end(model_at(secure(server.url))) as model:
        task = asyncio.create_task(ask_text(model, text))
        await reached.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await disconnected.wait()


@both_loops
async def test_cancelling_in_any_iteration_of_the_loop_leaks_nothing_over_tls(authority: Authority) -> None:
    tls = authority.server_context("127.0.0.1")
    async with serve_raw(echo, tls=tls) as server:
        for turns in range(60):
            async with close_at_end(model_at(secure(server.url))) as model:
                task = asyncio.create_task(ask_text(model))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                assert await ask_text(model, f"q{turns}") == f"q{turns}"
        await server.wait_handlers()


@both_loops
async def test_a_big_answer_over_tls_waits_for_its_reader(authority: Authority) -> None:
    piece, sent = chat_event("x" * MIB, is_last=False), 0

    async def handler(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (40 * len(piece) + len(answer_body("end"))))
        for _ in range(40):
            await peer.send(piece)
            sent += 1
        await peer.send(answer_body("end"))
        await peer.wait_closed()

    tls = authority.server_context("127.0.0.1")
    async with serve_raw(handler, tls=tls) as server, close_at_end(model_at(secure(server.url))) as model:
        async with aclosing(model.stream(model_request())) as events:
            await anext(events)
            seen, idle = sent, 0
            while idle < 200:  # turns of the loop in which nothing moved
                await asyncio.sleep(0)
                idle = idle + 1 if sent == seen else 0
                seen = sent
            assert sent < 20
            texts = [each.text async for each in events if isinstance(each, TextDelta)]
        assert texts[-1] == "end"
        assert len(texts) == 40


@both_loops
async def test_a_closed_model_leaks_nothing_over_tls(authority: Authority) -> None:
    arrived = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        arrived.set()
        await peer.wait_closed()

    tls = authority.server_context("127.0.0.1")
    async with serve_raw(handler, tls=tls) as server:
        model = model_at(secure(server.url))
        task = asyncio.create_task(ask_text(model))
        await arrived.wait()
        await model.close()
        with pytest.raises(ModelError, match="connection was lost"):
            await task


@both_loops
async def test_a_certificate_for_another_name_is_refused(authority: Authority) -> None:
    tls = authority.server_context("other.example")
    async with serve_raw(echo, tls=tls) as server, close_at_end(model_at(secure(server.url))) as model:
        with pytest.raises(ModelError, match=r"TLS failed .*certificate is not valid for '127.0.0.1'") as found:
            await ask_text(model)
        assert "Check the endpoint and the certificates." in str(found.value)


@both_loops
async def test_a_certificate_of_an_unknown_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "stranger").mkdir()
    tls = Authority(tmp_path / "stranger").server_context("127.0.0.1")
    async with serve_raw(echo, tls=tls) as server, close_at_end(model_at(secure(server.url))) as model:
        with pytest.raises(ModelError, match=r"TLS failed .*CERTIFICATE_VERIFY_FAILED"):
            await ask_text(model)


@both_loops
async def test_tls_to_a_server_without_it_is_named(authority: Authority) -> None:
    async def handler(peer: Peer) -> None:
        await peer.reader.read(1)
        await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await peer.wait_closed()

    async with serve_raw(handler) as server, close_at_end(model_at(secure(server.url))) as model:
        with pytest.raises(ModelError, match=r"TLS failed .*Check the endpoint"):
            await ask_text(model)


@both_loops
async def test_a_server_that_disconnects_in_the_handshake_is_named(authority: Authority) -> None:
    async def handler(peer: Peer) -> None:
        await peer.reader.read(1)

    async with serve_raw(handler) as server, close_at_end(model_at(secure(server.url))) as model:
        with pytest.raises(ModelError, match="could not be reached") as found:
            await ask_text(model)
        assert found.value.is_retryable


@both_loops
async def test_no_tls_to_a_server_with_it_is_an_error(authority: Authority) -> None:
    tls = authority.server_context("127.0.0.1")
    async with serve_raw(echo, tls=tls) as server, close_at_end(model_at(server.url)) as model:
        with pytest.raises(ModelError, match=r"cannot be read: it is not HTTP|connection was lost"):
            await ask_text(model)


@both_loops
async def test_a_name_is_checked_by_the_name_in_the_url(authority: Authority) -> None:
    tls = authority.server_context("localhost")
    async with (
        serve_raw(echo, tls=tls) as server,
        close_at_end(model_at(f"https://localhost:{server.port}/v1")) as model,
    ):
        assert await ask_text(model) == "hello"
        assert server.peers[0].header("host") == f"localhost:{server.port}"

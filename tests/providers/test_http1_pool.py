"""A connection to a model is used again exactly when that is safe, and no answer ever reaches another question."""

from __future__ import annotations

import asyncio
import gc
import queue
import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import orjson
import pytest
from loopback import wait_full, wait_read
from providers.model_exchange import TIMEOUT, model_at
from providers.raw_server import (
    CHUNK,
    LOOPS,
    Peer,
    RawServer,
    answer_body,
    ask_text,
    both_loops,
    chat_event,
    chunked_body,
    close_at_end,
    http_answer,
    serve_raw,
)
from providers.test_wrappers import Pauses

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import HTTP_KEEPALIVE, HTTP_READ_CHUNK
from holodeck.lib.net.http1_pool import HTTP1Pool, failure_reason, send_once
from holodeck.lib.net.ip_policy import IPPolicy
from holodeck.providers.base import ModelProvider
from holodeck.providers.wrappers.guarded import GuardedModel
from holodeck.providers.wrappers.retry import RetryPolicy

BIG = "x" * 10_000_000


async def echo(peer: Peer) -> None:
    """Answer every request with its own text."""
    while True:
        body = await peer.read_request()
        await peer.send(http_answer(body["messages"][0]["content"]))


def replying(*replies: bytes) -> Any:
    """Answer the questions of each connection with these bytes, then wait for the client to leave."""

    async def handler(peer: Peer) -> None:
        for reply in replies:
            await peer.read_request()
            await peer.send(reply)
        await peer.wait_closed()

    return handler


@both_loops
async def test_requests_one_after_the_other_share_a_connection() -> None:
    async with serve_raw(echo) as server, close_at_end(model_at(server.url)) as model:
        for number in range(5):
            assert await ask_text(model, f"q{number}") == f"q{number}"
        assert len(server.peers) == 1


@both_loops
async def test_a_big_request_keeps_its_connection_too() -> None:
    async with serve_raw(echo) as server, close_at_end(model_at(server.url)) as model:
        assert await ask_text(model, "y" * 1_000_000) == "y" * 1_000_000
        assert await ask_text(model) == "hello"
        assert len(server.peers) == 1


@both_loops
async def test_a_hundred_requests_at_once_get_their_own_answers_and_share_connections_later() -> None:
    async with serve_raw(echo) as server, close_at_end(model_at(server.url)) as model:
        for _ in range(2):
            answers = await asyncio.gather(*(ask_text(model, f"q{number}") for number in range(100)))
            assert answers == [f"q{number}" for number in range(100)]
        assert len(server.peers) <= 100


@both_loops
@pytest.mark.parametrize("ending", ["Connection: close", "connection: Close"])
async def test_a_connection_that_the_server_closes_is_not_used_again(ending: str) -> None:
    async with serve_raw(replying(http_answer("a", ending))) as server, close_at_end(model_at(server.url)) as model:
        assert [await ask_text(model), await ask_text(model)] == ["a", "a"]
        assert len(server.peers) == 2


@both_loops
async def test_a_connection_that_is_not_used_again_is_closed_although_the_server_only_says_that_it_will() -> None:
    disconnected = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(http_answer("a", "Connection: close"))
        await peer.wait_closed()
        disconnected.set()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        assert await ask_text(model) == "a"
        await disconnected.wait()


@both_loops
async def test_an_unread_answer_does_not_stop_the_next_one() -> None:
    async def handler(peer: Peer) -> None:
        while True:
            await peer.read_request()
            # Only with its last byte is it more than is read ahead: nothing of it stays in the socket.
            await peer.send(http_answer("", body=b"x" * (HTTP_READ_CHUNK + 1)))
            await wait_read(peer.writer)
            answered.set()

    answered = asyncio.Event()
    async with serve_raw(handler) as server:
        poster = HTTP1Pool(server.url, connect_timeout=TIMEOUT)
        unread = await poster.send("POST", {}, b"{}")
        await answered.wait()
        unread.close()  # all of it has arrived, and the connection is free
        second = await poster.send("POST", {}, b"{}")
        assert await second.read()
        assert len(server.peers) == 1
        await poster.close()


@both_loops
async def test_an_old_server_keeps_its_connection_only_if_it_says_so() -> None:
    reusable = http_answer("a", "Connection: keep-alive", version="1.0")
    async with (
        serve_raw(replying(reusable, http_answer("b", version="1.0"))) as server,
        close_at_end(model_at(server.url)) as model,
    ):
        assert [await ask_text(model) for _ in range(3)] == ["a", "b", "a"]
        assert len(server.peers) == 2


@both_loops
@pytest.mark.parametrize("surplus", [b"garbage", http_answer("stolen"), b"H", b"\0"])
async def test_bytes_after_an_answer_are_never_the_answer_to_the_next_request(surplus: bytes) -> None:
    async with (
        serve_raw(replying(http_answer("mine") + surplus)) as server,
        close_at_end(model_at(server.url)) as model,
    ):
        assert [await ask_text(model), await ask_text(model)] == ["mine", "mine"]
        assert len(server.peers) == 2


@both_loops
async def test_bytes_after_an_answer_are_not_the_next_answer() -> None:
    arrived, sent = asyncio.Event(), asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(http_answer("mine"))
        await arrived.wait()
        await peer.send(http_answer("stolen"))
        sent.set()
        await peer.wait_closed()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        assert await ask_text(model) == "mine"
        arrived.set()
        await sent.wait()
        # The bytes are in the socket, but the loop may not have looked yet.
        assert await ask_text(model) == "mine"
        assert len(server.peers) == 2


@both_loops
async def test_a_connection_that_the_server_closed_while_it_was_idle_is_not_used() -> None:
    closing = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(http_answer("a"))
        if len(server.peers) == 1:
            closing.set()
        else:
            await peer.wait_closed()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        assert await ask_text(model) == "a"
        await closing.wait()
        await server.peers[0].writer.wait_closed()
        assert await ask_text(model) == "a"


@both_loops
async def test_a_connection_that_is_closed_instead_of_an_answer_can_be_retried() -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(http_answer("a"))
        await peer.read_request()  # and disconnects without an answer

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        assert await ask_text(model) == "a"
        with pytest.raises(ModelError, match="connection was lost") as found:
            await ask_text(model)
        assert found.value.is_retryable
        retrying = GuardedModel(model, retry=RetryPolicy(sleep=Pauses()))
        assert [await ask_text(retrying) for _ in range(4)] == ["a"] * 4


class Hurried(asyncio.SelectorEventLoop):
    """A loop whose clock a test moves."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_a_connection_that_was_idle_for_long_is_not_used_although_it_is_still_open() -> None:
    async def handler(peer: Peer) -> None:
        while await peer.read_request():
            await peer.send(http_answer("a"))

    async def exchange() -> None:
        async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, Hurried)
            await ask_text(model)
            loop.ahead = HTTP_KEEPALIVE / 2
            await ask_text(model)
            loop.ahead = HTTP_KEEPALIVE  # now it is looked whether it was idle for long enough to be closed
            await asyncio.sleep(0)
            assert len(server.peers) == 1
            loop.ahead = HTTP_KEEPALIVE * 1.75
            await ask_text(model)
            assert len(server.peers) == 2

    with asyncio.Runner(loop_factory=Hurried) as runner:
        runner.run(exchange())


def test_an_idle_connection_is_closed_after_a_while() -> None:
    async def exchange() -> None:
        disconnected = asyncio.Event()

        async def handler(peer: Peer) -> None:
            await peer.read_request()
            await peer.send(http_answer("a"))
            await peer.wait_closed()
            disconnected.set()

        async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
            await ask_text(model)
            loop = asyncio.get_running_loop()
            assert isinstance(loop, Hurried)
            loop.ahead = HTTP_KEEPALIVE + 1
            await disconnected.wait()
            await ask_text(model)
            assert len(server.peers) == 2

    with asyncio.Runner(loop_factory=Hurried) as runner:
        runner.run(exchange())


@both_loops
@pytest.mark.parametrize("then", ["waits", "ends", "resets"])
async def test_a_refusal_in_the_middle_of_a_big_request_is_reported(then: str) -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_head()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined] # or it reads on by itself
        await peer.send(http_answer("", status="413 Content Too Large", body=b'{"error": "too big"}'))
        if then == "ends":
            peer.writer.write_eof()
        if then != "resets":
            await refused.wait()

    refused = asyncio.Event()
    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        with pytest.raises(ModelError, match=r"413 .*too big"):
            await ask_text(model, BIG)
        refused.set()


def refuse_and_leave(listening: socket.socket) -> None:
    """Read the beginning of each request, refuse it, and close the connection with the rest unread."""
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection:
                connection.recv(CHUNK)
                connection.sendall(http_answer("", status="413 Content Too Large", body=b"too big"))


@both_loops
async def test_a_refusal_is_reported_although_the_server_disconnects_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=refuse_and_leave, args=(listening,))
        thread.start()
        refusals = 0
        try:
            for _ in range(20):
                async with close_at_end(model_at(f"http://127.0.0.1:{listening.getsockname()[1]}/v1")) as model:
                    with pytest.raises(ModelError) as found:
                        await ask_text(model, BIG[:1_000_000])
                refusals += found.value.status == 413
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()
    assert refusals > 15  # a reset may still overtake it between a look and a write


@both_loops
async def test_a_server_that_ends_in_the_middle_of_a_big_request_is_not_waited_for() -> None:
    failed = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_head()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        peer.writer.write_eof()
        await failed.wait()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        with pytest.raises(ModelError, match="connection was lost"):
            await ask_text(model, BIG)
        failed.set()


@both_loops
async def test_an_early_answer_of_a_server_that_reads_on_does_not_keep_the_connection() -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(http_answer("", status="413 Content Too Large", body=b"too big"))
        await peer.wait_closed()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        for _ in range(2):
            with pytest.raises(ModelError, match="413"):
                await ask_text(model, BIG)
        assert len(server.peers) == 2


@both_loops
async def test_a_big_request_is_sent_to_its_end_although_the_answer_has_begun() -> None:
    async def handler(peer: Peer) -> None:
        while True:
            size = await peer.read_head()
            await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"3\r\n:hi\r\n")
            body = orjson.loads(await peer.reader.readexactly(size))
            await peer.send(chunked_body(b"\n\n" + answer_body(str(len(body["messages"][0]["content"])))))

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        assert [await ask_text(model, BIG), await ask_text(model, BIG)] == [str(len(BIG))] * 2
        assert len(server.peers) == 1


@both_loops
async def test_a_server_that_disconnects_after_the_start_of_its_answer_is_not_waited_for() -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_head()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await wait_full(peer.writer)

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        with pytest.raises(ModelError, match="connection was lost") as found:
            await ask_text(model, BIG)
        assert found.value.is_retryable


@both_loops
async def test_a_refusal_in_the_middle_of_a_big_request_is_reported_as_soon_as_it_begins() -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_head()
        peer.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await wait_full(peer.writer)
        await peer.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 7\r\n\r\n")
        await is_received.wait()
        await peer.send(b"too big")
        await peer.wait_closed()

    is_received = asyncio.Event()
    async with serve_raw(handler) as server:
        poster = HTTP1Pool(server.url, connect_timeout=TIMEOUT)
        refusal = await poster.send("POST", {}, BIG.encode())
        is_received.set()
        assert (refusal.status, await refusal.read()) == (413, b"too big")
        await poster.close()


@both_loops
@pytest.mark.parametrize("turns", range(12))
async def test_a_request_cancelled_when_its_answer_has_arrived_harms_no_other(turns: int) -> None:
    """After one of these iterations of the loop the answer is complete, but its task has not run yet."""
    is_requested, answered = asyncio.Event(), asyncio.Event()

    async def handler(peer: Peer) -> None:
        while True:
            body = await peer.read_request()
            is_requested.set()
            await peer.send(http_answer(body["messages"][0]["content"]))
            answered.set()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        first = asyncio.create_task(ask_text(model, "one"))
        await is_requested.wait()
        await answered.wait()
        for _ in range(turns):
            await asyncio.sleep(0)
        first.cancel()
        assert await ask_text(model, "two") == "two"
        await asyncio.wait([first])


@both_loops
async def test_closing_cuts_off_answers_being_read_and_requests_being_sent() -> None:
    arrived = [asyncio.Event(), asyncio.Event()]

    async def handler(peer: Peer) -> None:
        number = len(server.peers) - 1
        await peer.read_request()
        if number == 0:
            await peer.send(
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunked_body(chat_event("a"))[:-5]
            )
        arrived[number].set()
        await peer.wait_closed()

    async with serve_raw(handler) as server:
        model = model_at(server.url)
        reading = asyncio.create_task(ask_text(model))
        await arrived[0].wait()
        waiting = asyncio.create_task(ask_text(model))
        await arrived[1].wait()
        dialling = asyncio.create_task(ask_text(model))
        await asyncio.sleep(0)
        await model.close()
        for task in (reading, waiting, dialling):
            with pytest.raises(ModelError, match="connection was lost") as found:
                await task
            assert found.value.is_retryable


@both_loops
async def test_a_closed_model_accepts_another_request() -> None:
    async with serve_raw(echo) as server, close_at_end(model_at(server.url)) as model:
        for _ in range(2):
            assert await ask_text(model) == "hello"
            await model.close()
        assert len(server.peers) == 2


@contextmanager
def serving_elsewhere() -> Iterator[RawServer]:
    """A server in a thread: it outlives the loops of the test."""
    started: queue.Queue[tuple[RawServer, asyncio.AbstractEventLoop, asyncio.Event]] = queue.Queue()

    async def serve() -> None:
        async with serve_raw(echo) as server:
            over = asyncio.Event()
            started.put((server, asyncio.get_running_loop(), over))
            await over.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    server, loop, over = started.get(timeout=TIMEOUT)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()


@pytest.mark.parametrize("first", list(LOOPS))
@pytest.mark.parametrize("second", list(LOOPS))
@pytest.mark.parametrize("is_reused", [True, False])
def test_a_model_is_used_in_one_loop_after_the_other(first: str, second: str, is_reused: bool) -> None:
    async def ask(model: ModelProvider) -> None:
        assert [await ask_text(model), await ask_text(model)] == ["hello", "hello"]

    async def ask_last(model: ModelProvider) -> None:
        if is_reused:
            await ask(model)
        await model.close()

    with serving_elsewhere() as server, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the connection of the first loop is still open
        model = model_at(server.url)
        with asyncio.Runner(loop_factory=LOOPS[first]) as runner:
            runner.run(ask(model))
        with asyncio.Runner(loop_factory=LOOPS[second]) as runner:
            runner.run(ask_last(model))
        assert len(server.peers) == 1 + is_reused
        del runner, model
        gc.collect()


@both_loops
async def test_a_single_request_closes_its_connection_and_says_why_it_failed() -> None:
    async def cut(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf")
        peer.writer.close()

    async def answer(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwhole")
        await peer.wait_closed()

    async def read(url: str, **options: Any) -> bytes | str:
        try:
            async with send_once("GET", url, connect_timeout=TIMEOUT, **options) as response:
                return await response.read_all(99)
        except OSError as error:
            return failure_reason(error)

    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        async with serve_raw(cut) as cutting, serve_raw(answer) as answering:
            assert await read(answering.url) == b"whole"
            assert await read(cutting.url) == "the connection was closed"
            assert await read(nobody) == "Connection refused"
            assert await read("http://a.example/", proxy=nobody) == "Connection refused"
            assert "only public ones are dialled" in str(await read(answering.url, ip_policy=IPPolicy()))

"""An answer is the same however HTTP frames and splits it; anything else is a clear error, in bounded memory."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from providers.model_exchange import model_at, model_request, run_with_timeout
from providers.raw_server import (
    DONE,
    LOOPS,
    Peer,
    answer_body,
    ask_text,
    both_loops,
    chat_event,
    chunked_body,
    close_at_end,
    http_answer,
    run_on_loop,
    serve_raw,
)

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import HTTP_READ_CHUNK
from holodeck.lib.net.http1 import MAX_HTTP_HEAD_BYTES
from holodeck.models.model_io import TextDelta

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = STREAM + b"Transfer-Encoding: chunked\r\n\r\n"
JSON = '{"choices":[{"message": {"content": "héllo"}, "finish_reason": "stop"}]}'.encode()
MIB = 1024 * 1024


def once(*parts: bytes, is_closed: bool = False) -> Any:
    """Answer a request with these bytes, and then disconnect, or wait for the client to disconnect."""

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(*parts)
        if not is_closed:
            await peer.wait_closed()

    return handler


async def read_answer(*parts: bytes, is_closed: bool = False) -> str:
    """The text that the model reads from these bytes."""
    async with serve_raw(once(*parts, is_closed=is_closed)) as server, close_at_end(model_at(server.url)) as model:
        return await ask_text(model)


async def read_error(*parts: bytes, is_closed: bool = False) -> ModelError:
    with pytest.raises(ModelError) as found:
        await read_answer(*parts, is_closed=is_closed)
    return found.value


ANSWERS = {
    "with its length": http_answer("héllo"),
    "in chunks": CHUNKED + chunked_body(chat_event("h", is_last=False), chat_event("éllo"), DONE),
    "in chunks with trailers": CHUNKED
    + chunked_body(answer_body("héllo"))[:-2]
    + b"X-Sum: 1\r\nContent-Length: 3\r\n\r\n",
    "in chunks with extensions": CHUNKED
    + b"%x;a=b\r\n%b\r\n0;c\r\n\r\n" % (len(answer_body("héllo")), answer_body("héllo")),
    "after others": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    + http_answer("héllo"),
    "after line ends": b"\n\n" + http_answer("", body=JSON).replace(b"text/event-stream", b"application/json"),
    "without a reason": http_answer("héllo", status="200"),
    "with odd names": b"HTTP/1.1 200 OK\r\ncOnTeNt-TyPe: text/event-stream\r\nTRANSFER-ENCODING: Chunked\r\n\r\n"
    + chunked_body(answer_body("héllo")),
    "with its type twice": http_answer("héllo", "Content-Type: text/event-stream"),
    "without a type": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
    % (len(answer_body("héllo")), answer_body("héllo")),
    "as JSON": http_answer("", body=JSON).replace(b"text/event-stream", b"application/json"),
}
UNTIL_CLOSED = {
    "old": b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + answer_body("héllo"),
    "new": STREAM + b"\r\n" + answer_body("héllo"),
    "closing": STREAM + b"Connection: close\r\n\r\n" + answer_body("héllo"),
    "identity": STREAM + b"Transfer-Encoding: identity\r\nConnection: close\r\n\r\n" + answer_body("héllo"),
}


@both_loops
@pytest.mark.parametrize("form", ANSWERS)
async def test_every_form_of_an_answer_is_read(form: str) -> None:
    assert await read_answer(ANSWERS[form]) == "héllo"


@both_loops
@pytest.mark.parametrize("form", UNTIL_CLOSED)
async def test_an_answer_may_end_with_its_connection(form: str) -> None:
    assert await read_answer(UNTIL_CLOSED[form], is_closed=True) == "héllo"


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(ANSWERS)), st.lists(st.integers(1, 9), max_size=80))
def test_an_answer_does_not_depend_on_how_its_bytes_are_cut(form: str, sizes: list[int]) -> None:
    async def exchange() -> None:
        rest, parts = ANSWERS[form], []
        for size in sizes:
            parts.append(rest[:size])
            rest = rest[size:]
        assert await read_answer(*(part for part in [*parts, rest] if part)) == "héllo"

    run_with_timeout(exchange())


@both_loops
async def test_an_answer_that_arrives_byte_by_byte_is_read() -> None:
    for form in ("in chunks with trailers", "after others"):
        whole = ANSWERS[form]
        assert await read_answer(*(whole[at : at + 1] for at in range(len(whole)))) == "héllo"


@both_loops
@pytest.mark.parametrize("form", ["with its length", "in chunks", "after others", "as JSON"])
async def test_an_answer_that_is_cut_off_is_an_error_that_can_be_retried(form: str) -> None:
    whole = ANSWERS[form]
    for at in range(1, len(whole) - len(DONE) - 20, 7):
        error = await read_error(whole[:at], is_closed=True)
        assert "before the answer was complete" in str(error)
        assert error.is_retryable


@both_loops
async def test_an_answer_without_a_body_is_a_refusal() -> None:
    error = await read_error(b"HTTP/1.1 204 No Content\r\n\r\n")
    assert "204 No Content" in str(error)


PACKERS: dict[str, Any] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "GZip": gzip.compress,
    "deflate": zlib.compress,
    " deflate": lambda data: zlib.compress(data, wbits=-zlib.MAX_WBITS),
    "identity": lambda data: data,
}


@both_loops
@pytest.mark.parametrize("encoding", PACKERS)
async def test_a_compressed_answer_is_decoded_although_it_was_not_requested(encoding: str) -> None:
    packed = PACKERS[encoding](answer_body("héllo"))
    assert await read_answer(http_answer("", f"Content-Encoding: {encoding}", body=packed)) == "héllo"
    cut = [packed[at : at + 1] for at in range(len(packed))]
    head = CHUNKED.replace(b"\r\n\r\n", f"\r\nContent-Encoding: {encoding}\r\n\r\n".encode())
    assert await read_answer(head, *(chunked_body(part)[:-5] for part in cut), b"0\r\n\r\n") == "héllo"


@both_loops
async def test_a_compressed_answer_is_read_to_its_last_byte() -> None:
    overhead = len(chat_event("")) + len(DONE)
    for size in (HTTP_READ_CHUNK, 2 * HTTP_READ_CHUNK):
        for around in range(-3, 4):
            text = "x" * (size - overhead + around)
            packed = gzip.compress(answer_body(text))
            assert await read_answer(http_answer("", "Content-Encoding: gzip", body=packed)) == text


@both_loops
async def test_the_end_of_a_compressed_answer_is_flushed_from_the_decompressor() -> None:
    end = b'"choices":[{"message":{"content":"hello"},"finish_reason":"stop"}]}'
    for beyond in range(1, len(end), 7):
        around = b'{"pad":"%b","before":{' + end + b"," + end
        body = around % (b"x" * (HTTP_READ_CHUNK + beyond - len(around) + len(b"%b")))
        packed = zlib.compress(body, wbits=-zlib.MAX_WBITS)  # its end is a repetition, and nothing follows it
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(packed)}\r\n".encode()
        assert await read_answer(head + b"Content-Encoding: deflate\r\n\r\n" + packed) == "hello"


@both_loops
async def test_a_compressed_refusal_is_decoded() -> None:
    body = gzip.compress(b'{"error": {"message": "not today"}}')
    error = await read_error(http_answer("", "Content-Encoding: gzip", status="403 Forbidden", body=body))
    assert "403 Forbidden: not today" in str(error)


@both_loops
@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
async def test_an_unknown_content_encoding_is_named(encoding: str) -> None:
    error = await read_error(http_answer("a", f"Content-Encoding: {encoding}"))
    assert f"its answer cannot be read: it came as '{encoding}', which nobody asked for." in str(error)
    refused = await read_error(http_answer("a", f"Content-Encoding: {encoding}", status="401 Unauthorized"))
    assert "401 Unauthorized. Check the key" in str(refused)


@both_loops
async def test_a_broken_content_encoding_is_named() -> None:
    error = await read_error(http_answer("", "Content-Encoding: gzip", body=b"this is no gzip"))
    assert "its answer cannot be read: its gzip is broken." in str(error)


@pytest.mark.parametrize("kind", ["text/event-stream", "application/json"])
def test_a_small_answer_that_unpacks_to_hundreds_of_megabytes_takes_little_memory(kind: str) -> None:
    packer = zlib.compressobj(9, wbits=zlib.MAX_WBITS | 16)
    bomb = b"".join(packer.compress(b" " * MIB) for _ in range(200)) + packer.flush()
    whole = http_answer("", "Content-Encoding: gzip", body=bomb).replace(b"text/event-stream", kind.encode())
    del packer

    async def exchange() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        tracemalloc.start()
        error = await read_error(whole)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        counting.cancel()
        await asyncio.wait([counting])
        assert "its answer is too big to be one" in str(error)
        assert peak < 160 * MIB  # twice the limit of a body, which is joined once, and the packed bytes
        assert turns > 100  # others got their turn

    run_on_loop(exchange, LOOPS["asyncio"])


@both_loops
@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX-Endless: ",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 100 Continue\r\nX-Endless: ",
        CHUNKED + b"0\r\nX-Endless: ",
        CHUNKED + b"0\r\n",
    ],
)
async def test_headers_without_end_are_an_error(head: bytes) -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(head)
        line = b"a: b\r\n" * 2_000 if head.endswith(b"\n") else b"x" * 12_000
        while True:
            await peer.send(line)

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        with pytest.raises(ModelError, match=f"its headers have more than {MAX_HTTP_HEAD_BYTES} bytes"):
            await ask_text(model)


@both_loops
async def test_endless_100_continue_responses_are_an_error() -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        while True:
            await peer.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 100)

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        with pytest.raises(ModelError, match="its headers have more than"):
            await ask_text(model)


@both_loops
@pytest.mark.parametrize(
    "garbage",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x15\x03\x03\x00\x02\x02\x46",  # a TLS server's refusal
        b"\x00\x00\x12\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x80",  # HTTP/2
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nabc",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\nabc",
        CHUNKED + b"zz\r\n",
    ],
)
async def test_an_answer_that_is_not_http_is_an_error_that_says_so(garbage: bytes) -> None:
    error = await read_error(garbage)
    assert "its answer cannot be read: it is not HTTP (" in str(error)
    assert "Check the endpoint and its port." in str(error)


@both_loops
async def test_a_server_that_does_not_speak_http_is_disconnected_at_once() -> None:
    disconnected = asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")
        await peer.wait_closed()
        disconnected.set()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        with pytest.raises(ModelError, match="it is not HTTP"):
            await ask_text(model)
        await disconnected.wait()


@both_loops
async def test_events_before_the_garbage_are_returned() -> None:
    handler = once(CHUNKED + chunked_body(chat_event("a", is_last=False))[:-5] + b"zz\r\n")
    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        events = model.stream(model_request())
        assert await anext(events) == TextDelta(text="a")
        with pytest.raises(ModelError, match="it is not HTTP"):
            await anext(events)


@both_loops
async def test_an_unread_answer_stays_with_its_server() -> None:
    """50 MB are offered; only what fits into a few buffers is read until the reader continues."""
    sent, total = 0, 50 * MIB
    part = chat_event("x" * (MIB - len(chat_event("", is_last=False))), is_last=False)
    going = asyncio.Event()

    async def handler(peer: Peer) -> None:
        nonlocal sent
        await peer.read_request()
        await peer.send(STREAM + b"Content-Length: %d\r\n\r\n" % (50 * len(part) + len(answer_body("end"))))
        peer.writer.transport.set_write_buffer_limits(0)
        for _ in range(50):
            await peer.send(part)
            sent += len(part)
            going.set()
        await peer.send(answer_body("end"))
        await peer.wait_closed()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        async with aclosing(model.stream(model_request())) as events:
            await anext(events)
            seen, idle = sent, 0
            while idle < 200:  # turns of the loop in which nothing moved
                await asyncio.sleep(0)
                idle = idle + 1 if sent == seen else 0
                seen = sent
            assert sent < total / 2
            texts = [each.text async for each in events if isinstance(each, TextDelta)]
        assert texts[-1] == "end"
        assert sum(map(len, texts)) > 48 * MIB


@both_loops
async def test_a_slow_reader_gets_a_big_answer_and_the_connection_is_reused() -> None:
    text = "y" * MIB

    async def handler(peer: Peer) -> None:
        while True:
            await peer.read_request()
            await peer.send(
                CHUNKED,
                *(chunked_body(chat_event(text, is_last=False))[:-5] for _ in range(4)),
                chunked_body(answer_body("z")),
            )

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        for _ in range(2):
            length = 0
            async for each in model.stream(model_request()):
                for _ in range(20):
                    await asyncio.sleep(0)
                length += len(each.text) if isinstance(each, TextDelta) else 0
            assert length == 4 * MIB + 1
        assert len(server.peers) == 1


@both_loops
async def test_an_answer_that_is_longer_than_it_says_is_read_as_it_says() -> None:
    assert await read_answer(http_answer("a") + answer_body("b")) == "a"


@both_loops
async def test_a_refusal_with_a_cut_body_is_reported() -> None:
    head = b"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 7\r\nContent-Length: 100\r\n\r\nslow"
    error = await read_error(head, is_closed=True)
    assert (error.status, error.retry_after) == (429, 7.0)
    assert "slow" in str(error)


def test_a_refusal_whose_body_never_comes_is_reported() -> None:
    class Hurried(asyncio.SelectorEventLoop):
        ahead = 0.0

        def time(self) -> float:
            return super().time() + self.ahead

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 100\r\n\r\nslow")
        running = asyncio.get_running_loop()
        assert isinstance(running, Hurried)
        while not is_refused.is_set():
            running.ahead += 1
            await asyncio.sleep(0)
        await peer.wait_closed()

    async def exchange() -> None:
        async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
            with pytest.raises(ModelError, match="429 Too Many Requests: slow"):
                await ask_text(model)
            is_refused.set()

    is_refused = asyncio.Event()
    run_on_loop(exchange, Hurried, limit=1_000_000)


@both_loops
async def test_the_headers_of_an_answer_are_not_those_of_the_next_one() -> None:
    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(
            http_answer("", "Content-Encoding: gzip", "Retry-After: 7", body=gzip.compress(answer_body("one")))
        )
        await peer.read_request()
        await peer.send(b"HTTP/1.1 103 Early Hints\r\nContent-Encoding: gzip\r\n\r\n", http_answer("two"))
        await peer.read_request()
        await peer.send(http_answer("", status="429 Too Many Requests", body=b"slow"))
        await peer.wait_closed()

    async with serve_raw(handler) as server, close_at_end(model_at(server.url)) as model:
        assert [await ask_text(model), await ask_text(model)] == ["one", "two"]
        with pytest.raises(ModelError, match="429") as found:
            await ask_text(model)
        assert found.value.retry_after is None
        assert len(server.peers) == 1


@both_loops
async def test_an_answer_is_complete_with_its_last_event_although_the_server_does_not_end_it() -> None:
    assert await read_answer(CHUNKED, chunked_body(answer_body("hello")).removesuffix(b"0\r\n\r\n")) == "hello"


@both_loops
async def test_repeated_headers_are_one() -> None:
    error = await read_error(
        http_answer("", "x-should-retry: true", "X-Other: 1", "X-OTHER: 2", status="400 Bad", body=b"{}")
    )
    assert error.is_retryable

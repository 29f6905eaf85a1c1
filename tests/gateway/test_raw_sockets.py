"""WebSockets of clients that keep to no rule: each is refused with the right code, and costs nobody else anything."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aio import aio
from gateway.clocks import hurried, later
from gateway.process import process_of, write_file
from gateway.raw_socket import CLOSE, PING, PONG, TEXT, asking, dial, frame, head, raw_socket, request
from gateway.stand import Stand, serving
from loopback import wait_read

from holodeck.gateway.socket_connections import BoundedSocket
from holodeck.lib.limits import MAX_QUEUED_MESSAGES
from holodeck.testing import ScriptedModel, say

KIB = 1024
SLOW = 12 * KIB  # in ten seconds
LIMITS = {"body_bytes": 64 * KIB, "bodies_bytes": 128 * KIB, "drain_seconds": 0}
CODE = b"\x03\xe8"  # 1000
FIN, RESERVED = 0x80, 0x40
CONTROL = 0x08
LONG = "x" * 9_000
WRONG = {
    "unmasked": head(FIN | TEXT, 50_000, is_masked=False),
    "reserved bit": head(FIN | RESERVED | TEXT, 50_000),
    "unknown opcode": head(FIN | 3, 50_000),
    "unknown control opcode": head(FIN | 11, 5),
    "long ping": head(FIN | PING, 126),
    "very long ping": head(FIN | PING, 50_000),
    "long close": head(FIN | CLOSE, 50_000),
    "half a ping": head(PING, 5),
}


async def _is_empty(stand: Stand) -> None:
    while stand.service.room.used > 0:  # noqa: ASYNC110 - it is told nowhere
        await asyncio.sleep(0.01)
    assert stand.service.room.used == 0


def _connections(stand: Stand) -> set[Any]:
    assert stand.service._server is not None
    return stand.service._server.server_state.connections


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@aio
async def test_what_no_frame_may_be_is_refused_at_its_head(tmp_path: Path, wrong: bytes) -> None:
    async with serving(tmp_path, limits=LIMITS) as stand:
        for before in (b"", frame(TEXT, b"x" * 100, is_last=False)):
            client = await raw_socket(stand.url)
            await client.send(before + wrong)
            assert await client.closed() == 1002
            assert await client.reader.read() == b"", "nor is its own goodbye waited for"
            client.leave()
        await _is_empty(stand)


@pytest.mark.parametrize("length", [64 * KIB + 1, 1 << 40, 1 << 63 | 5, (1 << 64) - 1])
@aio
async def test_a_frame_that_is_too_long_is_refused_at_its_head(tmp_path: Path, length: int) -> None:
    async with serving(tmp_path, limits=LIMITS) as stand:
        client = await raw_socket(stand.url)
        await client.send(head(FIN | TEXT, length) + b"more")
        assert await client.closed() == 1009
        client.leave()


@pytest.mark.parametrize("opcode", [TEXT, 2])
@aio
async def test_a_message_that_is_no_text_is_told_so_and_its_socket_closed(tmp_path: Path, opcode: int) -> None:
    async with serving(tmp_path, limits=LIMITS) as stand:
        client = await raw_socket(stand.url)
        await client.send(frame(opcode, b'{"type":"\xe2', is_last=False) + frame(0, b'\x82"}'))
        assert (await client.event())["error"]["message"] == "The message is not valid UTF-8."
        assert await client.closed() == 1007
        client.leave()
        await _is_empty(stand)


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        (request(f"authorization: Bearer {LONG}"), 431),
        (request(*["x-one-more: of many"] * 130), 431),
        (request(path=f"/v1/responses?long={LONG}"), 414),
        (request("content-length: 5") + b"hello" + frame(TEXT, b"{}"), 400),
    ],
    ids=["long header", "many headers", "long path", "body"],
)
@aio
async def test_a_request_for_a_socket_that_cannot_be_read_is_refused(tmp_path: Path, asked: bytes, status: int) -> None:
    async with serving(tmp_path) as stand:
        client = await dial(stand.url)
        await client.send(asked)
        assert (await client.answer()).startswith(f"HTTP/1.1 {status} ".encode())
        assert b"HTTP" not in await client.reader.read(), "there is one answer"
        client.leave()


@aio
async def test_what_comes_with_the_request_for_a_socket_is_heard_once_there_is_one(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedModel(say("Hi."))) as stand:
        client = await dial(stand.url)
        message = frame(TEXT, asking())
        await client.send(request() + message[:9])
        await client.send(message[9:])
        assert b" 101 " in await client.answer()
        assert (await client.event())["type"] == "response.completed"
        await client.send(frame(CLOSE, CODE))
        assert await client.closed() == 1000
        client.leave()


@pytest.mark.parametrize(
    "early", [frame(CLOSE, CODE), frame(PING, b"x"), WRONG["reserved bit"]], ids=str.split("close ping wrong")
)
@aio(90)
async def test_what_comes_too_early_is_no_error_of_the_gateway(tmp_path: Path, early: bytes) -> None:
    async with ScriptedModel().serve() as model, process_of(write_file(tmp_path, model.url)) as served:
        for path, status in (("/v1/responses", b" 101 "), ("/elsewhere", b" 404 ")):
            client = await dial(served.url)
            await client.send(request(path=path) + early)
            assert status in await client.answer()
            client.leave()
        served.stop()
        assert await served.ended() == 0
    assert not [line for line in served.said if "ERROR" in line or "Traceback" in line]


@aio
async def test_who_only_pings_in_the_middle_of_a_message_is_let_go(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={**LIMITS, "request_seconds": 0.2}) as stand:
        client = await raw_socket(stand.url)
        await client.send(frame(TEXT, b"x" * 60 * KIB, is_last=False))
        opcode = PONG
        while opcode == PONG:
            await client.send(frame(PING, b"x"))
            opcode, data = await client.frame()
        assert (opcode, int.from_bytes(data[:2])) == (CLOSE, 1008)
        client.leave()
        await _is_empty(stand)


@hurried
async def test_who_sends_a_long_message_slowly_answers_pings_when_it_is_sent(tmp_path: Path) -> None:
    async with serving(tmp_path, ScriptedModel(say("Hi."))) as stand:
        client = await raw_socket(stand.url)
        message = frame(TEXT, asking("x" * 22 * SLOW))
        for at in range(20):
            await client.send(message[at * SLOW : (at + 1) * SLOW])
            await wait_read(client.writer)
            await later(10)
        await client.send(message[20 * SLOW :])
        assert (await client.event())["type"] == "response.completed"
        client.leave()


@hurried
async def test_who_sends_a_message_byte_by_byte_is_let_go_before_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as stand:
        client = await raw_socket(stand.url)
        message = frame(TEXT, asking("x" * 100))
        for piece, seconds in ((message[:8], 10), (message[8:16], 15)):
            await client.send(piece)
            await wait_read(client.writer)
            await later(seconds)
        opcode = PING
        while opcode == PING:
            opcode, data = await client.frame()
        assert (opcode, int.from_bytes(data[:2]), b"too slowly" in data) == (CLOSE, 1008, True)
        client.leave()


@hurried
async def test_who_answers_no_ping_is_gone(tmp_path: Path) -> None:
    async with serving(tmp_path) as stand:
        client = await raw_socket(stand.url)
        for _ in range(5):
            await later(10)
        assert await client.closed() == 1011
        client.leave()


@aio(90)
async def test_any_number_of_empty_frames_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model, process_of(write_file(tmp_path, model.url)) as served:
        client = await raw_socket(served.url)
        await client.send(frame(TEXT, b"", is_last=False))
        sending = asyncio.create_task(client.send(frame(0, b"", is_last=False) * 1_500_000))
        for _ in range(20):
            assert (await served.send("GET", "/healthz"))[0] == 200
        assert not sending.done()
        client.leave()
        await asyncio.gather(sending, return_exceptions=True)


@aio(120)
async def test_to_who_pings_and_does_not_read_only_the_last_answer_is_owed(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model, process_of(write_file(tmp_path, model.url)) as served:
        client = await raw_socket(served.url, is_reading=False)
        times = 60_000
        await client.send(b"".join(frame(PING, str(at).encode().rjust(125)) for at in range(times)))
        answers = 0
        opcode, data = PING, b""
        # A gateway pings, too, if all of this takes some time.
        while opcode == PING or int(data) < times - 1:
            opcode, data = await client.frame()
            answers += opcode == PONG
        assert answers < times
        client.leave()


@aio
async def test_messages_that_come_faster_than_they_are_answered_are_answered_in_order(tmp_path: Path) -> None:
    model = ScriptedModel(lambda asked: say(asked.json["messages"][-1]["content"]))
    async with serving(tmp_path, model, limits=LIMITS) as stand:
        client = await raw_socket(stand.url)
        texts = [f"number {at}" for at in range(10)]
        await client.send(b"".join(frame(TEXT, asking(text)) + frame(PING, text.encode()) for text in texts))
        pongs: list[str] = []
        said: list[str] = []
        while len(said) < len(texts):
            opcode, data = await client.frame()
            if opcode == PONG:
                pongs.append(data.decode())
            elif b'"type":"response.output_text.done"' in data:
                said.append(data.partition(b'"text":"')[2].partition(b'"')[0].decode())
        assert said == texts == pongs
        client.leave()
        await _is_empty(stand)


@aio(30)
async def test_a_socket_that_is_closed_and_takes_nothing_any_more_is_let_go(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={"drain_seconds": 0, "reader_seconds": 0.3}) as stand:
        client = await raw_socket(stand.url, is_reading=False)
        connections = _connections(stand)
        (served,) = connections
        while not served.transport.get_write_buffer_size():
            await client.send(frame(PING, b"x" * 125) * 10)  # few at a time, so that it is not too much already
            await asyncio.sleep(0)
        await client.send(frame(CLOSE, CODE))
        while connections:  # noqa: ASYNC110 - it is told nowhere
            await asyncio.sleep(0.01)
        client.leave()


@aio(30)
async def test_a_socket_that_was_left_unread_does_not_make_the_end_an_error(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: say("x" * 12_000_000), chunk=100_000)
    async with serving(tmp_path, model) as stand:
        client = await raw_socket(stand.url, is_reading=False)
        (served,) = _connections(stand)
        assert isinstance(served, BoundedSocket)
        await client.send(frame(TEXT, asking()))
        while served.writable.is_set():  # noqa: ASYNC110 - it is told nowhere
            await asyncio.sleep(0.01)
        await client.send(frame(CLOSE, CODE))
        while served.conn.close_rcvd is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    client.leave()


@aio(90)
async def test_who_sends_far_too_much_hears_why_it_is_shown_out(tmp_path: Path) -> None:
    async with (
        ScriptedModel(say("Yes.")).serve() as model,
        process_of(write_file(tmp_path, model.url, limits=LIMITS)) as served,
    ):
        for _ in range(5):
            client = await raw_socket(served.url)
            await client.send(head(FIN | TEXT, 8_000_000) + bytes(8_000_000))
            assert await client.closed() == 1009
            client.leave()
        assert (await served.ask("Still there?"))[0] == 200


@aio
async def test_what_is_sent_to_a_socket_that_we_have_closed_takes_no_room(tmp_path: Path) -> None:
    async with serving(tmp_path, limits={**LIMITS, "socket_seconds": 0.01}) as stand:
        client = await raw_socket(stand.url)
        assert await client.closed() == 1001
        await client.send(frame(TEXT, asking("x" * 50 * KIB)) + frame(CLOSE, CODE))
        assert await client.reader.read() == b""
        client.leave()
        await _is_empty(stand)


@aio(30)
async def test_messages_that_nobody_came_to_take_give_their_room_back(tmp_path: Path) -> None:
    answer = 12_000_000
    model = ScriptedModel(lambda _: say("x" * answer), chunk=100_000)
    async with serving(tmp_path, model, limits={**LIMITS, "bodies_bytes": 2 * answer}) as stand:
        client = await raw_socket(stand.url, is_reading=False)
        (served,) = _connections(stand)
        assert isinstance(served, BoundedSocket)
        await client.send(frame(TEXT, asking()))
        # It is told nowhere that the client takes no more, and that the model has said all of it.
        while served.writable.is_set() or stand.service.room.used > 50 * KIB:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        waiting = [frame(TEXT, b"{}")] * (MAX_QUEUED_MESSAGES + 1)  # one too many, of which it does not hear
        await client.send(b"".join(waiting) + frame(TEXT, asking("x" * 50 * KIB)))
        while stand.service.room.used < 50 * KIB:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert served.queue.qsize() == 1
        client.leave()
        await _is_empty(stand)


@aio(30)
async def test_who_reads_again_gets_the_answer_that_it_is_owed(tmp_path: Path) -> None:
    async with serving(tmp_path) as stand:
        client = await raw_socket(stand.url, is_reading=False)
        (served,) = _connections(stand)
        assert isinstance(served, BoundedSocket)
        while served.writable.is_set():
            await client.send(frame(PING, b"x" * 125) * 100)
            await asyncio.sleep(0)
        await client.send(frame(PING, b"last"))
        while not served._pong.endswith(b"last"):  # noqa: ASYNC110 - it is told nowhere
            await asyncio.sleep(0.01)
        while (await client.frame()) != (PONG, b"last"):
            pass
        client.leave()

"""WebSocket clients that violate the protocol: each gets the right code, and no other client is affected."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.movable_clock import advance_clock, with_movable_clock
from gateway.raw_websocket import (
    CLOSE,
    PING,
    PONG,
    TEXT,
    create_message,
    encode_frame,
    frame_head,
    open_connection,
    open_raw_socket,
    upgrade_request,
)
from gateway.running_gateway import RunningGateway, run_gateway
from loopback import wait_read, wait_read_elsewhere

from holodeck.gateway.endpoints.responses_ws import MAX_QUEUED_MESSAGES
from holodeck.gateway.server.ws_protocol import GatewayWebSocketProtocol
from holodeck.testing import ScriptedModel, say

KIB = 1024
SLOW = 12 * KIB  # in ten seconds
LIMITS = {"body_bytes": 64 * KIB, "bodies_bytes": 128 * KIB, "drain_seconds": 0}
CODE = b"\x03\xe8"  # 1000
FIN, RESERVED = 0x80, 0x40
CONTROL = 0x08
LONG = "x" * 9_000
WRONG = {
    "unmasked": frame_head(FIN | TEXT, 50_000, is_masked=False),
    "reserved bit": frame_head(FIN | RESERVED | TEXT, 50_000),
    "unknown opcode": frame_head(FIN | 3, 50_000),
    "unknown control opcode": frame_head(FIN | 11, 5),
    "long ping": frame_head(FIN | PING, 126),
    "very long ping": frame_head(FIN | PING, 50_000),
    "long close": frame_head(FIN | CLOSE, 50_000),
    "half a ping": frame_head(PING, 5),
}


async def _wait_budget_released(gateway: RunningGateway) -> None:
    while gateway.service.budget.used > 0:  # noqa: ASYNC110 - no event says it
        await asyncio.sleep(0.01)
    assert gateway.service.budget.used == 0


def _connections(gateway: RunningGateway) -> set[Any]:
    assert gateway.service._server is not None
    return gateway.service._server.server_state.connections


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
@async_test
async def test_an_invalid_frame_header_closes_the_websocket_with_code_1002(tmp_path: Path, wrong: bytes) -> None:
    async with run_gateway(tmp_path, limits=LIMITS) as gateway:
        for before in (b"", encode_frame(TEXT, b"x" * 100, is_last=False)):
            client = await open_raw_socket(gateway.url)
            await client.send(before + wrong)
            assert await client.wait_close_code() == 1002
            assert await client.reader.read() == b"", "the close frame of the client is not awaited"
            client.abort()
        await _wait_budget_released(gateway)


@pytest.mark.parametrize("length", [64 * KIB + 1, 1 << 40, 1 << 63 | 5, (1 << 64) - 1])
@async_test
async def test_a_frame_that_is_too_long_is_refused_at_its_header(tmp_path: Path, length: int) -> None:
    async with run_gateway(tmp_path, limits=LIMITS) as gateway:
        client = await open_raw_socket(gateway.url)
        await client.send(frame_head(FIN | TEXT, length) + b"more")
        assert await client.wait_close_code() == 1009
        client.abort()


@pytest.mark.parametrize("opcode", [TEXT, 2])
@async_test
async def test_a_message_that_is_not_utf8_gets_an_error_and_close_code_1007(tmp_path: Path, opcode: int) -> None:
    async with run_gateway(tmp_path, limits=LIMITS) as gateway:
        client = await open_raw_socket(gateway.url)
        await client.send(encode_frame(opcode, b'{"type":"\xe2', is_last=False) + encode_frame(0, b'\x82"}'))
        assert (await client.read_final_event())["error"]["message"] == "The message is not valid UTF-8."
        assert await client.wait_close_code() == 1007
        client.abort()
        await _wait_budget_released(gateway)


@pytest.mark.parametrize(
    ("upgrade", "status"),
    [
        (upgrade_request(f"authorization: Bearer {LONG}"), 431),
        (upgrade_request(*["x-one-more: of many"] * 130), 431),
        (upgrade_request(path=f"/v1/responses?long={LONG}"), 414),
        (upgrade_request("content-length: 5") + b"hello" + encode_frame(TEXT, b"{}"), 400),
    ],
    ids=["long header", "many headers", "long path", "body"],
)
@async_test
async def test_an_invalid_upgrade_request_is_refused(tmp_path: Path, upgrade: bytes, status: int) -> None:
    async with run_gateway(tmp_path) as gateway:
        client = await open_connection(gateway.url)
        await client.send(upgrade)
        assert (await client.read_head()).startswith(f"HTTP/1.1 {status} ".encode())
        assert b"HTTP" not in await client.reader.read(), "there is one answer"
        client.abort()


@async_test
async def test_a_message_sent_with_the_upgrade_request_is_answered_after_the_upgrade(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        client = await open_connection(gateway.url)
        message = encode_frame(TEXT, create_message())
        await client.send(upgrade_request() + message[:9])
        await client.send(message[9:])
        assert b" 101 " in await client.read_head()
        assert (await client.read_final_event())["type"] == "response.completed"
        await client.send(encode_frame(CLOSE, CODE))
        assert await client.wait_close_code() == 1000
        client.abort()


@pytest.mark.parametrize(
    "early",
    [encode_frame(CLOSE, CODE), encode_frame(PING, b"x"), WRONG["reserved bit"]],
    ids=str.split("close ping wrong"),
)
@async_test(90)
async def test_frames_sent_before_the_upgrade_is_accepted_are_not_logged_as_errors(
    tmp_path: Path, early: bytes
) -> None:
    async with ScriptedModel().serve() as model, run_gateway_process(write_gateway_file(tmp_path, model.url)) as served:
        for path, status in (("/v1/responses", b" 101 "), ("/elsewhere", b" 404 ")):
            client = await open_connection(served.url)
            await client.send(upgrade_request(path=path) + early)
            assert status in await client.read_head()
            client.abort()
        served.stop()
        assert await served.wait_exit() == 0
    assert not [line for line in served.stderr_lines if "ERROR" in line or "Traceback" in line]


@async_test
async def test_a_client_that_only_pings_in_the_middle_of_a_message_is_closed_with_code_1008(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits={**LIMITS, "request_seconds": 0.2}) as gateway:
        client = await open_raw_socket(gateway.url)
        await client.send(encode_frame(TEXT, b"x" * 60 * KIB, is_last=False))
        opcode = PONG
        while opcode == PONG:
            await client.send(encode_frame(PING, b"x"))
            opcode, data = await client.read_frame()
        assert (opcode, int.from_bytes(data[:2])) == (CLOSE, 1008)
        client.abort()
        await _wait_budget_released(gateway)


@with_movable_clock
async def test_a_slow_upload_is_not_taken_for_an_unanswered_ping(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        client = await open_raw_socket(gateway.url)
        message = encode_frame(TEXT, create_message("x" * 22 * SLOW))
        for at in range(20):
            await client.send(message[at * SLOW : (at + 1) * SLOW])
            await wait_read(client.writer)
            await advance_clock(10)
        await client.send(message[20 * SLOW :])
        assert (await client.read_final_event())["type"] == "response.completed"
        client.abort()


@with_movable_clock
async def test_a_message_sent_byte_by_byte_is_cut_off_before_its_end(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        client = await open_raw_socket(gateway.url)
        message = encode_frame(TEXT, create_message("x" * 100))
        for chunk, seconds in ((message[:8], 10), (message[8:16], 15)):
            await client.send(chunk)
            await wait_read(client.writer)
            await advance_clock(seconds)
        opcode = PING
        while opcode == PING:
            opcode, data = await client.read_frame()
        assert (opcode, int.from_bytes(data[:2]), b"too slowly" in data) == (CLOSE, 1008, True)
        client.abort()


@with_movable_clock
async def test_a_client_that_answers_no_ping_is_disconnected(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        client = await open_raw_socket(gateway.url)
        for _ in range(5):
            await advance_clock(10)
        assert await client.wait_close_code() == 1011
        client.abort()


@async_test(90)
async def test_many_empty_frames_do_not_block_other_clients(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model, run_gateway_process(write_gateway_file(tmp_path, model.url)) as served:
        client = await open_raw_socket(served.url)
        await client.send(encode_frame(TEXT, b"", is_last=False))
        sending = asyncio.create_task(client.send(encode_frame(0, b"", is_last=False) * 1_500_000))
        for _ in range(20):
            assert (await served.send("GET", "/healthz"))[0] == 200
        assert not sending.done()
        client.abort()
        await asyncio.gather(sending, return_exceptions=True)


@async_test(120)
async def test_only_the_last_pong_is_queued_for_a_client_that_does_not_read(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model, run_gateway_process(write_gateway_file(tmp_path, model.url)) as served:
        client = await open_raw_socket(served.url, is_reading=False)
        times = 60_000
        await client.send(b"".join(encode_frame(PING, str(at).encode().rjust(125)) for at in range(times)))
        # A gateway that has not read them all would find a client that reads again.
        await wait_read_elsewhere(client.writer)
        answers = 0
        opcode, data = PING, b""
        # A gateway pings, too, if all of this takes some time.
        while opcode == PING or int(data) < times - 1:
            opcode, data = await client.read_frame()
            answers += opcode == PONG
        assert answers < times
        client.abort()


@async_test
async def test_messages_that_come_faster_than_they_are_answered_are_answered_in_order(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: say(request.json["messages"][-1]["content"]))
    async with run_gateway(tmp_path, model, limits=LIMITS) as gateway:
        client = await open_raw_socket(gateway.url)
        texts = [f"number {at}" for at in range(10)]
        await client.send(
            b"".join(encode_frame(TEXT, create_message(text)) + encode_frame(PING, text.encode()) for text in texts)
        )
        pongs: list[str] = []
        answers: list[str] = []
        while len(answers) < len(texts):
            opcode, data = await client.read_frame()
            if opcode == PONG:
                pongs.append(data.decode())
            elif b'"type":"response.output_text.done"' in data:
                answers.append(data.partition(b'"text":"')[2].partition(b'"')[0].decode())
        assert answers == texts == pongs
        client.abort()
        await _wait_budget_released(gateway)


@async_test(30)
async def test_a_closing_websocket_whose_client_does_not_read_is_disconnected(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits={"drain_seconds": 0, "reader_seconds": 0.3}) as gateway:
        client = await open_raw_socket(gateway.url, is_reading=False)
        connections = _connections(gateway)
        (served,) = connections
        while not served.transport.get_write_buffer_size():
            await client.send(encode_frame(PING, b"x" * 125) * 10)  # few at a time, so that it is not too much already
            await asyncio.sleep(0)
        await client.send(encode_frame(CLOSE, CODE))
        while connections:  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
        client.abort()


@async_test(30)
async def test_an_unread_websocket_does_not_make_the_shutdown_fail(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: say("x" * 12_000_000), chunk=100_000)
    async with run_gateway(tmp_path, model) as gateway:
        client = await open_raw_socket(gateway.url, is_reading=False)
        (served,) = _connections(gateway)
        assert isinstance(served, GatewayWebSocketProtocol)
        await client.send(encode_frame(TEXT, create_message()))
        while served.writable.is_set():  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
        await client.send(encode_frame(CLOSE, CODE))
        while served.conn.close_rcvd is None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    client.abort()


@async_test(90)
async def test_a_client_that_sends_an_oversized_frame_gets_close_code_1009(tmp_path: Path) -> None:
    async with (
        ScriptedModel(say("Yes.")).serve() as model,
        run_gateway_process(write_gateway_file(tmp_path, model.url, limits=LIMITS)) as served,
    ):
        for _ in range(5):
            client = await open_raw_socket(served.url)
            await client.send(frame_head(FIN | TEXT, 8_000_000) + bytes(8_000_000))
            assert await client.wait_close_code() == 1009
            client.abort()
        assert (await served.create_response("Still there?"))[0] == 200


@async_test
async def test_data_sent_to_a_closed_websocket_does_not_count_against_the_byte_budget(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, limits={**LIMITS, "socket_seconds": 0.01}) as gateway:
        client = await open_raw_socket(gateway.url)
        assert await client.wait_close_code() == 1001
        await client.send(encode_frame(TEXT, create_message("x" * 50 * KIB)) + encode_frame(CLOSE, CODE))
        assert await client.reader.read() == b""
        client.abort()
        await _wait_budget_released(gateway)


@async_test(30)
async def test_queued_messages_of_a_disconnected_client_are_released_from_the_byte_budget(tmp_path: Path) -> None:
    answer = 12_000_000
    model = ScriptedModel(lambda _: say("x" * answer), chunk=100_000)
    async with run_gateway(tmp_path, model, limits={**LIMITS, "bodies_bytes": 2 * answer}) as gateway:
        client = await open_raw_socket(gateway.url, is_reading=False)
        (served,) = _connections(gateway)
        assert isinstance(served, GatewayWebSocketProtocol)
        await client.send(encode_frame(TEXT, create_message()))
        # No event says that the client reads no more and that the model has finished.
        while served.writable.is_set() or gateway.service.budget.used > 50 * KIB:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        waiting = [encode_frame(TEXT, b"{}")] * (MAX_QUEUED_MESSAGES + 1)  # one too many; its error is not read
        await client.send(b"".join(waiting) + encode_frame(TEXT, create_message("x" * 50 * KIB)))
        while gateway.service.budget.used < 50 * KIB:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert served.queue.qsize() == 1
        client.abort()
        await _wait_budget_released(gateway)


@async_test(30)
async def test_a_client_that_resumes_reading_gets_the_last_pong(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        client = await open_raw_socket(gateway.url, is_reading=False)
        (served,) = _connections(gateway)
        assert isinstance(served, GatewayWebSocketProtocol)
        while served.writable.is_set():
            await client.send(encode_frame(PING, b"x" * 125) * 100)
            await asyncio.sleep(0)
        await client.send(encode_frame(PING, b"last"))
        while not served._owed_pong.endswith(b"last"):  # noqa: ASYNC110 - no event says it
            await asyncio.sleep(0.01)
        while (await client.read_frame()) != (PONG, b"last"):
            pass
        client.abort()

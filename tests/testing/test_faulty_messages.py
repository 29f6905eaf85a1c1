"""Each fault of messages, seen as the bytes that a server process really writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from testing.raw_pipes import RawPipes, start_raw_pipes

from holodeck.testing import Era, Fault

ERAS: list[Era] = ["legacy", "modern"]


def in_both_eras(mode: Fault, act: Callable[[RawPipes], Awaitable[None]], **options: Any) -> None:
    """Act once against a server of each era, after its handshake."""

    async def main() -> None:
        for era in ERAS:
            async with start_raw_pipes(mode, era, **options) as server:
                await server.shake_hands()
                await act(server)

    asyncio.run(main())


def test_an_answer_comes_twice() -> None:
    async def act(server: RawPipes) -> None:
        server.call()
        assert await server.read_line() == await server.read_line()

    in_both_eras(Fault.ANSWERS_TWICE, act)


def test_an_answer_has_the_id_of_no_request() -> None:
    async def act(server: RawPipes) -> None:
        number = server.call()
        assert (await server.read_message())["id"] == f"not-{number}"

    in_both_eras(Fault.WRONG_ID, act)


def test_an_answer_to_no_request_comes_before_the_real_one() -> None:
    async def act(server: RawPipes) -> None:
        number = server.call()
        assert [(await server.read_message())["id"] for _ in range(3)] == ["never-asked", "9" * 5_000, [1]]
        assert (await server.read_message())["id"] == number

    in_both_eras(Fault.STRAY_ANSWER, act)


def test_an_error_has_no_id() -> None:
    async def act(server: RawPipes) -> None:
        server.call()
        message = await server.read_message()
        assert (message["id"], message["error"]["code"]) == (None, -32700)

    in_both_eras(Fault.ERROR_ID_NULL, act)


def test_garbage_comes_before_the_answer() -> None:
    async def act(server: RawPipes) -> None:
        number = server.call()
        assert (await server.read_line()).startswith(b"npm warn")
        for _ in range(6):
            await server.read_line()
        assert (await server.read_message())["id"] == number

    in_both_eras(Fault.GARBAGE, act)


def test_one_byte_of_an_answer_is_not_utf8() -> None:
    async def act(server: RawPipes) -> None:
        server.call()
        line = await server.read_line()
        with pytest.raises(UnicodeDecodeError):
            line.decode()
        assert json.loads(line.decode(errors="replace"))["result"]["content"][0]["text"] == "a caf\ufffd"

    in_both_eras(Fault.INVALID_UTF8, act)


def test_half_a_surrogate_pair_is_in_an_answer() -> None:
    async def act(server: RawPipes) -> None:
        server.call()
        assert "\ud83d" in (await server.read_message())["result"]["content"][0]["text"]

    in_both_eras(Fault.LONE_SURROGATE, act)


def test_an_answer_is_nested_two_thousand_deep() -> None:
    async def act(server: RawPipes) -> None:
        server.call()
        assert b"[" * 2_000 + b"]" * 2_000 in await server.read_line()

    in_both_eras(Fault.DEEP_NESTING, act)


def test_an_answer_is_spread_over_lines() -> None:
    async def act(server: RawPipes) -> None:
        number = server.call()
        lines = b""
        while not lines.endswith(b"\n}\n"):
            lines += await server.read_line()
        assert lines.count(b"\n") > 5
        assert json.loads(lines)["id"] == number

    in_both_eras(Fault.PRETTY_PRINTED, act)


def test_an_answer_is_in_a_batch() -> None:
    async def act(server: RawPipes) -> None:
        number = server.call()
        (answer,) = json.loads(await server.read_line())
        assert answer["id"] == number

    in_both_eras(Fault.BATCH, act)


def test_half_a_line_comes_and_then_the_server_still_lives() -> None:
    async def act(server: RawPipes) -> None:
        server.call()
        assert server.process.stdout is not None
        assert (await server.process.stdout.readexactly(20)).startswith(b'{"jsonrpc"')
        number = server.send("tools/list")
        line = await server.read_line()
        assert b"result" in line
        assert f'"id":{number}'.encode() in line

    in_both_eras(Fault.UNFINISHED, act)


def test_fifty_megabytes_come_in_one_line() -> None:
    async def act(server: RawPipes) -> None:
        server.call()
        assert len(await server.read_line()) > 50_000_000

    in_both_eras(Fault.HUGE_LINE, act)


def test_fifty_megabytes_of_stderr_come_before_the_answer() -> None:
    async def act(server: RawPipes) -> None:
        number = server.call()
        assert server.process.stderr is not None
        await server.process.stderr.readexactly(50_000_000)
        assert (await server.read_message())["id"] == number

    in_both_eras(Fault.HUGE_STDERR, act)


def test_a_listener_gets_ten_thousand_notices() -> None:
    async def act(server: RawPipes) -> None:
        if server.era == "modern":
            server.send("subscriptions/listen", notifications={"toolsListChanged": True})
            assert (await server.read_message())["method"] == "notifications/subscriptions/acknowledged"
        number = server.call()
        for _ in range(10_000):
            assert (await server.read_message())["method"] == "notifications/tools/list_changed"
        assert (await server.read_message())["id"] == number

    in_both_eras(Fault.FLOOD, act)


def test_the_protocol_version_is_an_unknown_one() -> None:
    async def main() -> None:
        async with start_raw_pipes(Fault.UNKNOWN_VERSION, "legacy") as server:
            assert (await server.shake_hands())["result"]["protocolVersion"] == "1999-01-01"
        async with start_raw_pipes(Fault.UNKNOWN_VERSION, "modern") as server:
            error = (await server.shake_hands())["error"]
            assert (error["code"], error["data"]["supported"]) == (-32022, ["2999-01-01"])

    asyncio.run(main())


RESULTS: list[tuple[Fault, Callable[[Any], bool]]] = [
    (Fault.UNKNOWN_CONTENT, lambda result: result["content"][1]["type"] == "hologram"),
    (Fault.EMPTY_CONTENT, lambda result: result["content"] == []),
    (Fault.MISSING_CONTENT, lambda result: "content" not in result),
    (Fault.NULL_CONTENT, lambda result: result["content"] is None),
    (Fault.ERROR_RESULT, lambda result: result["isError"] is True),
    (Fault.NOT_A_RESULT, lambda result: result == "a string"),
    (Fault.SCHEMA_MISMATCH, lambda result: result["structuredContent"] == {"total": "three"}),
    (Fault.UNKNOWN_RESULT_TYPE, lambda result: result["resultType"] == "x-unheard-of"),
    (Fault.ENDLESS_INPUT, lambda result: result["resultType"] == "input_required"),
]


@pytest.mark.parametrize(("mode", "is_wrong"), RESULTS, ids=[str(mode) for mode, _ in RESULTS])
def test_a_result_is_wrong_in_the_way_of_its_mode(mode: Fault, is_wrong: Callable[[Any], bool]) -> None:
    async def act(server: RawPipes) -> None:
        server.call("structured")
        assert is_wrong((await server.read_message())["result"])

    in_both_eras(mode, act)


def test_a_fault_can_be_aimed_at_one_tool_and_begin_late_and_end() -> None:
    async def act(server: RawPipes) -> None:
        outcomes = []
        for tool in ("add", "echo", "echo", "echo", "echo"):
            server.call(tool, a=1, b=2, text="x")
            outcomes.append("error" in await server.read_message())
        assert outcomes == [False, False, True, True, False]

    in_both_eras(Fault.PROTOCOL_ERROR, act, on="tools/call:echo", after=1, times=2)


def test_an_answer_comes_late_or_when_it_is_released() -> None:
    async def act(server: RawPipes) -> None:
        late, release = server.call("echo"), server.call("release")
        assert [(await server.read_message())["id"] for _ in range(2)] == [release, late]

    in_both_eras(Fault.LATE, act, on="tools/call:echo")


def test_unknown_requests_and_notices_come_before_the_answer() -> None:
    async def act(server: RawPipes) -> None:
        number = server.call()
        messages = [await server.read_message() for _ in range(3)]
        assert [message.get("method") for message in messages] == ["unheard/of", "notifications/unheard_of", None]
        assert messages[2]["id"] == number

    in_both_eras(Fault.UNASKED, act)

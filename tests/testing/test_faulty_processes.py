"""Each fault of processes, with real processes: exits, signals, helpers that stay, wrappers, journals."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from mcp import Client
from testing.raw_pipes import TIMEOUT, start_raw_command, start_raw_pipes

from holodeck.testing import Era, Fault, FaultyMCPServer, Journal, read_pids, stand_in, stand_in_calls

both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


def is_alive(pid: int) -> bool:
    """Tell whether the process runs; one that only waits to be reaped does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


async def until_gone(pid: int) -> None:
    """Wait for the end of a process that may not be our child."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    gone = asyncio.Event()
    asyncio.get_running_loop().add_reader(handle, gone.set)
    try:
        await asyncio.wait_for(gone.wait(), TIMEOUT)
    finally:
        asyncio.get_running_loop().remove_reader(handle)
        os.close(handle)


def holds_pipe(pid: int) -> bool:
    """Tell whether the standard output of a process is a pipe."""
    return Path(f"/proc/{pid}/fd/1").readlink().name.startswith("pipe:")


@pytest.mark.parametrize(
    ("mode", "code", "said"),
    [(Fault.DIES_AT_START, 1, b"FATAL: API_KEY is not set\n"), (Fault.DIES_AT_START_SILENTLY, 3, b"")],
)
def test_it_dies_at_start(mode: Fault, code: int, said: bytes) -> None:
    async def main() -> None:
        async with start_raw_pipes(mode) as server:
            assert (await server.read_line(), await server.read_stderr(), await server.wait_exit_code()) == (
                b"",
                said,
                code,
            )

    asyncio.run(main())


@both_eras
def test_it_dies_right_after_the_handshake(era: Era) -> None:
    async def main() -> None:
        async with start_raw_pipes(Fault.DIES_AFTER_INIT, era) as server:
            assert "result" in await server.shake_hands()
            assert await server.read_line() == b""
            assert await server.wait_exit_code() == 1

    asyncio.run(main())


@both_eras
def test_it_dies_in_the_middle_of_a_call(era: Era) -> None:
    async def main() -> None:
        async with start_raw_pipes(Fault.DIES_MID_CALL, era) as server:
            await server.shake_hands()
            server.call()
            assert await server.read_line() == b""
            assert b"out of luck" in await server.read_stderr()
            assert await server.wait_exit_code() == 1

    asyncio.run(main())


def test_it_dies_on_every_third_call() -> None:
    async def main() -> None:
        async with start_raw_pipes(Fault.CRASH_LOOP) as server:
            await server.shake_hands()
            for _ in range(2):
                server.call()
                assert "result" in await server.read_message()
            server.call()
            assert await server.read_line() == b""

    asyncio.run(main())


def test_it_exits_on_the_probe_of_a_modern_client() -> None:
    async def main() -> None:
        async with start_raw_pipes(Fault.EXITS_ON_DISCOVER) as server:
            server.send("server/discover")
            assert await server.read_line() == b""
            assert b"ExpectedInitializeRequest" in await server.read_stderr()

    asyncio.run(main())


def test_it_never_answers_the_probe_and_all_else() -> None:
    async def main() -> None:
        async with start_raw_pipes(Fault.SILENT_ON_DISCOVER) as server:
            server.send("server/discover")
            assert (await server.shake_hands())["id"] == 2

    asyncio.run(main())


@pytest.mark.parametrize("mode", [Fault.HANGS, Fault.HANGS_AT_START])
def test_it_reads_and_never_answers(mode: Fault, tmp_path: Path) -> None:
    async def main() -> None:
        journal = Journal(tmp_path / "journal")
        async with start_raw_pipes(mode, journal=journal.path) as server:
            if mode is Fault.HANGS:
                await server.shake_hands()
            server.call()
            await journal.received("tools/call")
            server.end_input()
            assert await server.read_line() == b""
            assert await server.wait_exit_code() == 0

    asyncio.run(main())


@pytest.mark.parametrize(("mode", "ends"), [(Fault.IGNORES_TERM, signal.SIGKILL), (Fault.IGNORES_EOF, signal.SIGTERM)])
def test_it_goes_on_until_it_is_forced(mode: Fault, ends: signal.Signals) -> None:
    async def main() -> None:
        async with start_raw_pipes(mode) as server:
            await server.shake_hands()
            if mode is Fault.IGNORES_TERM:
                server.process.terminate()
                server.send("tools/list")
                assert "result" in await server.read_message()
            server.end_input()
            assert is_alive(server.process.pid)
            server.process.send_signal(ends)
            assert await server.wait_exit_code() == -ends

    asyncio.run(main())


@pytest.mark.parametrize(("mode", "holds"), [(Fault.LEAVES_CHILD, False), (Fault.CHILD_HOLDS_PIPE, True)])
def test_a_helper_stays_when_the_server_ends(mode: Fault, holds: bool, tmp_path: Path) -> None:
    async def main() -> None:
        async with start_raw_pipes(mode, pid_file=tmp_path / "pids") as server:
            await server.shake_hands()
            leader, helper = read_pids(tmp_path / "pids")
            assert leader == server.process.pid
            assert os.getpgid(helper) == os.getpgid(0)
            assert holds_pipe(helper) is holds
            server.end_input()
            await until_gone(leader)
            assert is_alive(helper)
            os.kill(helper, signal.SIGKILL)

    asyncio.run(main())


@pytest.mark.parametrize("wrapped", [True, False], ids=["any mode behind a parent", "the mode of that name"])
def test_the_real_server_is_a_grandchild_that_outlives_its_parent(wrapped: bool, tmp_path: Path) -> None:
    async def main() -> None:
        mode = Fault.NORMAL if wrapped else Fault.WRAPPER
        async with start_raw_pipes(mode, pid_file=tmp_path / "pids", wrapped=wrapped) as server:
            await server.shake_hands()
            parent, real = read_pids(tmp_path / "pids")
            server.process.kill()
            await until_gone(parent)
            server.call()
            assert "result" in await server.read_message()
            server.end_input()
            await until_gone(real)

    asyncio.run(main())


def test_a_journal_tells_of_all_starts_and_limits_the_strikes_over_them(tmp_path: Path) -> None:
    async def main() -> None:
        journal = Journal(tmp_path / "journal")
        outcomes = []
        for _ in range(3):
            async with start_raw_pipes(Fault.DIES_AT_START, times=2, journal=journal.path) as server:
                server.send("initialize", protocolVersion="2025-11-25", capabilities={})
                outcomes.append(await server.read_line() == b"")
        assert outcomes == [True, True, False]
        assert len(set(journal.pids)) == 3
        assert [one.method for one in journal.requests] == ["initialize"]

    asyncio.run(main())


@pytest.mark.parametrize("replaces_itself", [True, False])
def test_a_fake_npx_starts_the_server_and_records_its_arguments(replaces_itself: bool, tmp_path: Path) -> None:
    async def main() -> None:
        command = FaultyMCPServer.command(Fault.DIES_MID_CALL, pid_file=tmp_path / "pids")
        env = {**os.environ, **stand_in(tmp_path / "bin", command, replaces_itself=replaces_itself)}
        async with start_raw_command(["/usr/bin/env", "npx", "-y", "a server", ""], env=env) as server:
            await server.shake_hands()
            assert (read_pids(tmp_path / "pids") == [server.process.pid]) is replaces_itself
            server.call()
            assert await server.wait_exit_code() == 1
        assert stand_in_calls(tmp_path / "bin") == [["-y", "a server", ""]]

    asyncio.run(main())


def test_a_fake_docker_serves_only_the_run_command(tmp_path: Path) -> None:
    async def main() -> None:
        env = {**os.environ, **stand_in(tmp_path, FaultyMCPServer.command(), name="docker")}
        async with start_raw_command(["/usr/bin/env", "docker", "rm", "-f", "box"], env=env) as removal:
            assert (await removal.read_line(), await removal.wait_exit_code()) == (b"", 0)
        async with start_raw_command(["/usr/bin/env", "docker", "run", "-i", "image"], env=env) as server:
            assert "result" in await server.shake_hands()
        assert [call[0] for call in stand_in_calls(tmp_path, "docker")] == ["rm", "run"]

    asyncio.run(main())


def test_a_network_server_is_a_process_that_ends_with_its_input() -> None:
    async def main() -> None:
        async with start_raw_pipes(Fault.NORMAL, "modern", transport="http") as server:
            url = (await server.read_line()).decode().strip()
            async with Client(url) as client:
                assert not (await client.call_tool("add", {"a": 2, "b": 3})).is_error
            server.end_input()
            assert await server.wait_exit_code() == 0

    asyncio.run(main())

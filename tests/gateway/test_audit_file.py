"""The file of an audit log survives kills, restarts, rotation and full disks, and belongs to one gateway."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.audit_entries import AUDIT_FILE, SEAL_KEY, read_audit
from gateway.audit_entries import verify_audit as verify
from gateway.gateway_process import GatewayProcess, run_gateway_process, wait_refused, write_gateway_file
from gateway.running_gateway import MODEL, run_gateway

from holodeck.gateway.audit.entry import ChainPosition
from holodeck.gateway.audit.verify import verify_files
from holodeck.gateway.sealing import AUDIT_PURPOSE, SealKeys
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

SECONDS = 120.0  # processes start, possibly on a busy machine
AUDIT = {"file": AUDIT_FILE}
WITH_KEY = {"SEAL_KEY": SEAL_KEY}
# A gateway none of whose files can become larger than this. Python would cut the compiled modules that it caches.
LIMITED = (
    "import resource, runpy, sys; sys.dont_write_bytecode = True; "
    "resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); runpy.run_module('holodeck')"
)


def server_entry(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": url, **more}


async def wait_readiness(served: GatewayProcess, status: int) -> Any:
    """Wait until `/readyz` has this status, and return its body."""
    while True:
        found, body, _ = await served.send("GET", "/readyz")
        if found == status:
            return body
        await asyncio.sleep(0.02)


async def wait_logged(served: GatewayProcess, *words: str) -> None:
    """Wait until a line of the log has these words: lines come after the answers that they are about."""
    while not any(all(word in line for word in words) for line in served.stderr_lines):  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def wait_ended(served: GatewayProcess, response_id: str) -> Any:
    while True:
        _, found, _ = await served.send("GET", f"/v1/responses/{response_id}")
        if found["status"] not in ("queued", "in_progress"):
            return found
        await asyncio.sleep(0.02)


@async_test(SECONDS)
async def test_a_gateway_killed_in_a_call_leaves_a_whole_chain_that_its_restart_continues(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), say("I will look first."))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[server_entry(mcp.url)], background={"durable": True}, audit=AUDIT
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await mcp.received("tools/call")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        killed = verify(tmp_path)
        assert killed.is_good
        assert [entry["event"] for entry in read_audit(tmp_path)] == ["start", "tool_call"]
        async with run_gateway_process(file) as served:
            await wait_ended(served, begun["id"])
            served.stop()
            assert await served.wait_exit() == 0
    entries = read_audit(tmp_path)
    assert [entry["event"] for entry in entries] == [
        "start",
        "tool_call",
        "start",
        "taken_over",
        "tool_result",
        "stop",
    ]
    assert (entries[4]["outcome"], entries[4]["call_id"]) == ("unknown", entries[1]["call_id"])
    assert {entries[index]["response_id"] for index in (1, 3, 4)} == {begun["id"]}
    assert entries[2]["prev"] == killed.last_hash
    assert verify(tmp_path).is_good


@async_test(SECONDS)
async def test_a_call_that_is_repeated_after_a_kill_is_recorded_again(tmp_path: Path) -> None:
    model = ScriptedModel(call("slow", seconds=60), say("Done."))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        server = server_entry(mcp.url, idempotent_tools=["slow"], request_timeout=2)
        file = write_gateway_file(
            tmp_path, scripted.url, mcp_servers=[server], background={"durable": True}, audit=AUDIT
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            await mcp.received("tools/call")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            await wait_ended(served, begun["id"])
    first, second = read_audit(tmp_path, "tool_call")
    assert first["call_id"] == second["call_id"]
    (ended,) = read_audit(tmp_path, "tool_result")
    assert ended["outcome"] == "unknown", "the server did not answer in time"


@async_test(SECONDS)
async def test_a_torn_last_line_stays_and_the_next_start_mentions_it(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, audit=AUDIT):
        pass
    file = tmp_path / AUDIT_FILE
    whole = file.read_bytes()
    torn = b'{"seq":3,"time":"2026-11-17T10:0'
    file.write_bytes(whole + torn)
    cut = verify(tmp_path)
    assert cut.is_good
    assert "torn" in cut.notes[0]
    async with run_gateway(tmp_path, audit=AUDIT):
        pass
    lines = file.read_bytes().splitlines()
    assert lines[2] == torn
    assert b'"event":"recovered","torn_bytes":33' in lines[3]
    assert verify(tmp_path).is_good
    file.write_bytes(file.read_bytes().replace(torn, torn.replace(b"17", b"18")))
    assert not verify(tmp_path).is_good, "also what was torn cannot be changed"


@async_test(SECONDS)
async def test_two_gateways_cannot_write_one_file(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as scripted:
        first = write_gateway_file(tmp_path, scripted.url, audit=AUDIT)
        other = tmp_path / "other"
        other.mkdir()
        second = write_gateway_file(other, scripted.url, audit={"file": f"../{AUDIT_FILE}"})
        for folder in (tmp_path, other):
            (folder / "holodeck.db.key").write_text(SEAL_KEY)
        async with run_gateway_process(first):
            code, words = await wait_refused(second)
            assert code == 1
            assert "Another process writes the audit log" in words
            assert "Each gateway has a file of its own" in words
        async with run_gateway_process(second):
            pass
    assert verify(tmp_path).is_good


@async_test(SECONDS)
async def test_a_file_that_is_no_audit_log_is_not_written(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, audit={"file": "gateway.yaml"})
        before = file.read_bytes()
        code, words = await wait_refused(file)
    assert (code, file.read_bytes()) == (1, before)
    assert "it is not an audit log" in words


@async_test(SECONDS)
async def test_a_renamed_file_is_followed_by_a_new_one_that_continues_its_chain(tmp_path: Path) -> None:
    model = ScriptedModel(*(step for _ in range(3) for step in (call("echo", text="x"), say("Done."))))
    async with (
        FaultyMCPServer() as mcp,
        run_gateway(tmp_path, model, mcp={"tools": mcp}, audit=AUDIT) as gateway,
    ):
        for name in (f"{AUDIT_FILE}.2", f"{AUDIT_FILE}.1", ""):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go"})
            if name:
                (tmp_path / AUDIT_FILE).rename(tmp_path / name)
    names = (f"{AUDIT_FILE}.2", f"{AUDIT_FILE}.1", AUDIT_FILE)
    found = verify(tmp_path, *names)
    assert found.is_good
    assert found.entries == found.last_seq == 1 + 3 * 2 + 2 + 1
    assert read_audit(tmp_path)[0]["event"] == "rotated"
    assert verify(tmp_path).is_good, "the newest file alone is whole, too"
    assert "continues an earlier file" in verify(tmp_path).notes[0]
    without_middle = verify(tmp_path, names[0], names[2])
    assert without_middle.broken is not None
    assert "3 lines before it are missing" in without_middle.broken.reason
    assert not verify(tmp_path, names[1], names[0], names[2]).is_good


@async_test(SECONDS)
async def test_while_the_file_cannot_be_written_calls_are_refused_and_readiness_says_so(tmp_path: Path) -> None:
    model = ScriptedModel(*(step for _ in range(12) for step in (call("echo", text="x"), say("Done."))))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path,
            scripted.url,
            mcp_servers=[server_entry(mcp.url)],
            audit=AUDIT,
            storage={"url": "sqlite://:memory:"},
            seal_key="${SEAL_KEY}",
        )
        # Room for the start and some calls; the last line is torn at the limit.
        program = ("-c", LIMITED.format(limit=4_000))
        async with run_gateway_process(file, program=program, environ=WITH_KEY) as served:
            while not (tool_error := await _find_tool_error(served)):
                assert len(mcp.calls()) < 12
            calls = len(mcp.calls())
            assert "cannot write its audit log" in tool_error
            assert (await wait_readiness(served, 503)) == {"status": "no audit log"}
            await _find_tool_error(served)
            assert len(mcp.calls()) == calls, "nothing is called without an entry"
            assert (tmp_path / AUDIT_FILE).stat().st_size <= 4_000
            await wait_logged(served, "audit.failed", "ulimit -f")
            assert verify(tmp_path).is_good
            (tmp_path / AUDIT_FILE).rename(tmp_path / "full.jsonl")
            await wait_readiness(served, 200)
            assert not await _find_tool_error(served)
            served.stop()
            assert await served.wait_exit() == 0
    assert len(read_audit(tmp_path, "tool_call")) == 1
    found = verify(tmp_path, "full.jsonl", AUDIT_FILE)
    assert found.is_good
    assert any("entries could not be written" in note for note in found.notes)


@async_test(SECONDS)
async def test_an_operator_can_choose_to_continue_without_entries(tmp_path: Path) -> None:
    model = ScriptedModel(*(step for _ in range(12) for step in (call("echo", text="x"), say("Done."))))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        file = write_gateway_file(
            tmp_path,
            scripted.url,
            mcp_servers=[server_entry(mcp.url)],
            audit={**AUDIT, "on_failure": "continue"},
            storage={"url": "sqlite://:memory:"},
            seal_key="${SEAL_KEY}",
        )
        program = ("-c", LIMITED.format(limit=2_000))
        async with run_gateway_process(file, program=program, environ=WITH_KEY) as served:
            for _ in range(12):
                assert not await _find_tool_error(served)
            assert len(mcp.calls()) == 12
            assert (await served.send("GET", "/readyz"))[0] == 200
            await wait_logged(served, "audit.failed")
    assert verify(tmp_path).is_good


async def _find_tool_error(served: GatewayProcess) -> str:
    """Ask once, and return the error of the call that the model makes; empty if it succeeded."""
    status, answer, _ = await served.create_response(store=False)
    assert status == 200, answer
    (item,) = (item for item in answer["output"] if item["type"] == "mcp_call")
    return str(item["error"]) if item["error"] else ""


@async_test(SECONDS)
async def test_only_its_owner_can_read_the_file(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, audit={**AUDIT, "durability": "safe"}):
        assert (tmp_path / AUDIT_FILE).stat().st_mode & 0o777 == 0o600
    assert [entry["event"] for entry in read_audit(tmp_path)] == ["start", "stop"]


@async_test(SECONDS)
async def test_an_end_that_was_cut_off_while_the_gateway_was_stopped_is_reported_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_gateway(tmp_path, audit=AUDIT):
        pass
    async with run_gateway(tmp_path, audit=AUDIT) as gateway:
        assert not read_audit(tmp_path, "end_missing"), "a file that is whole is not reported"
        name = str((tmp_path / AUDIT_FILE).resolve())
        stored = await gateway.service.store.read_audit_end(name)
        assert stored is not None
        assert stored[0] == 2, "the end of the first gateway was stored when it stopped"
        # That of this one is stored while it runs.
        while await gateway.service.store.read_audit_end(name) == stored:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    file = tmp_path / AUDIT_FILE
    whole = file.read_bytes().splitlines(keepends=True)
    last = json.loads(whole[-1])
    file.write_bytes(b"".join(whole[:-1]))
    assert verify(tmp_path).is_good, "the file alone does not show it"
    cut = verify(tmp_path, stored_end=ChainPosition(seq=last["seq"], hash=last["hash"]))
    assert cut.broken is not None
    assert "lines up to 4, which the storage has as the last number, are missing" in cut.broken.reason
    async with run_gateway(tmp_path, audit=AUDIT):
        pass
    (entry,) = read_audit(tmp_path, "end_missing")
    assert (entry["expected_seq"], entry["expected_hash"]) == (4, last["hash"])
    assert "audit.end_missing" in caplog.text
    found = verify(tmp_path)
    assert found.broken is not None
    assert (found.broken.line, "lines up to 4 were missing" in found.broken.reason) == (4, True)
    assert found.entries == 6, "what follows is checked all the same"


@async_test(SECONDS)
async def test_a_replaced_seal_key_verifies_beside_the_old_one_and_a_lost_one_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    new = "another-seal-key-of-a-gateway-in-tests"
    for seal_key in (["${SEAL_KEY}"], ["${NEW_KEY}", "${SEAL_KEY}"]):
        async with run_gateway(tmp_path, audit=AUDIT, seal_key=seal_key, environ={**WITH_KEY, "NEW_KEY": new}):
            pass
    keys = SealKeys([new.encode(), SEAL_KEY.encode()]).derive_mac_keys(AUDIT_PURPOSE)
    assert verify_files([tmp_path / AUDIT_FILE], keys=keys).is_good
    broken = verify_files([tmp_path / AUDIT_FILE], keys=keys[:1]).broken
    assert broken is not None
    assert (broken.line, "written with another seal key" in broken.reason) == (1, True)
    assert "audit.key" not in caplog.text
    # A gateway without storage and without a key in its file: its key ends with it.
    async with run_gateway(tmp_path, audit=AUDIT, storage={"url": "sqlite://:memory:"}):
        assert read_audit(tmp_path)[-2]["event"] == "key_changed"
    assert [entry["seq"] for entry in read_audit(tmp_path)] == list(range(1, 8)), "it goes on with the chain"
    assert "audit.key_is_temporary" in caplog.text
    assert "audit.key_unknown" in caplog.text

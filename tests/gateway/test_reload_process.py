"""`holodeck serve` reads its files again on SIGHUP and when they change, and its log says what came of it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import ALICE, BOB, keys, server
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from pty_terminal import TypingTerminal

from holodeck.config.actions import list_actions
from holodeck.runtime import read_gateway
from holodeck.testing import FaultyMCPServer, ScriptedModel, say
from holodeck.trust import open_trust_store, save_trust

NOWHERE = "http://127.0.0.1:9/v1"
SECONDS = 90.0  # a process starts and ends in one, on a machine with nothing else to do
AS_JSON = "--log-format=json"
WATCHED: dict[str, Any] = {"reload": {}}


async def wait_event(served: GatewayProcess, event: str, *, times: int = 1) -> dict[str, Any]:
    """Wait for a line of the log, and return its fields. The time limit of the test bounds it."""
    while True:
        found = [fields for line in served.stderr_lines if (fields := orjson.loads(line))["event"] == event]
        if len(found) >= times:
            return dict(found[times - 1])
        await asyncio.sleep(0.02)


async def status_for(served: GatewayProcess, key: str) -> int:
    return (await served.send("GET", "/v1/models", headers={"authorization": f"Bearer {key}"}))[0]


@pytest.mark.proves("D-39")
@async_test(SECONDS)
async def test_a_service_reads_its_file_again_on_sighup_and_names_what_changed(tmp_path: Path) -> None:
    async with FaultyMCPServer() as mcp:
        file = write_gateway_file(tmp_path, NOWHERE, keys=keys(ALICE, BOB))
        async with run_gateway_process(file, AS_JSON) as served:
            write_gateway_file(
                tmp_path,
                NOWHERE,
                keys=[*keys(BOB, limits={"in_flight": 2}), *keys("hd-carol")],
                mcp_servers=[server("added", mcp.url)],
                limits={"drain_seconds": 1},
            )
            served.stop(signal.SIGHUP)
            fields = await wait_event(served, "gateway.reloaded")
            assert {name: value for name, value in fields.items() if isinstance(value, list)} == {
                "keys_added": ["hd-carol"],
                "keys_removed": [ALICE],
                "keys_changed": [BOB],
                "servers_added": ["added"],
                "settings_changed": ["limits.drain_seconds"],
            }
            assert [await status_for(served, key) for key in (ALICE, BOB, "hd-carol")] == [401, 200, 200]
            assert (await wait_event(served, "gateway.revoked"))["callers"] == [f"key:{ALICE}"]
            served.stop()
            assert await served.wait_exit() == 0


@async_test(SECONDS)
async def test_at_a_terminal_sighup_ends_the_gateway_in_order(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NOWHERE)
    async with TypingTerminal("serve", file, cwd=tmp_path, env={"HOLODECK_TRUST": "all"}) as terminal:
        await terminal.wait_for("Serving demo at ")
        terminal.process.send_signal(signal.SIGHUP)
        await terminal.wait_for("gateway.draining signal=SIGHUP")
        assert await terminal.wait_exit() == 0
    assert "gateway.reloaded" not in terminal.text


def save_by_rename(file: Path, content: bytes) -> None:
    draft = file.with_name(".gateway.yaml.swp")
    draft.write_bytes(content)
    draft.replace(file)


def swap_link(file: Path, content: bytes) -> None:
    """Replace the folder behind the file, as Kubernetes does with a mounted ConfigMap."""
    later = file.parent / "..later"
    later.mkdir()
    (later / file.name).write_bytes(content)
    (file.parent / "..data_tmp").symlink_to("..later")
    (file.parent / "..data_tmp").replace(file.parent / "..data")


@pytest.mark.proves("D-39")
@pytest.mark.parametrize("save", [save_by_rename, Path.write_bytes, swap_link])
@async_test(SECONDS)
async def test_a_changed_file_is_noticed_however_it_is_saved(
    tmp_path: Path, save: Callable[[Path, bytes], object]
) -> None:
    first = tmp_path / "..first"
    first.mkdir()
    write_gateway_file(first, NOWHERE, keys=keys(ALICE), **WATCHED)
    file = tmp_path / "gateway.yaml"
    if save is swap_link:
        (tmp_path / "..data").symlink_to("..first")
        file.symlink_to("..data/gateway.yaml")
    else:
        (first / "gateway.yaml").replace(file)
    async with run_gateway_process(file, AS_JSON) as served:
        changed = write_gateway_file(first, NOWHERE, keys=keys(ALICE, BOB), **WATCHED).read_bytes()
        if save is not swap_link:
            assert await status_for(served, BOB) == 401
        save(file, changed)
        assert (await wait_event(served, "gateway.reloaded"))["keys_added"] == [BOB]
        assert await status_for(served, BOB) == 200


@async_test(SECONDS)
async def test_variables_in_an_env_file_are_read_again(tmp_path: Path) -> None:
    entries = [{"name": "alice", "hash": "${ALICE_HASH}"}]
    (tmp_path / ".env").write_text(f"ALICE_HASH={keys(ALICE)[0]['hash']}")
    file = write_gateway_file(tmp_path, NOWHERE, keys=entries, **WATCHED)
    # Trusted for what it does at the start: the hash of a key is no part of that.
    trusted = {"HOLODECK_TRUST": "", "HOME": str(tmp_path)}
    async with run_gateway_process(file, AS_JSON, "--trust", environ=trusted) as served:
        (tmp_path / ".env").write_text(f"ALICE_HASH={keys(BOB)[0]['hash']}")
        assert (await wait_event(served, "gateway.reloaded"))["keys_changed"] == ["alice"]
        assert [await status_for(served, key) for key in (ALICE, BOB)] == [401, 200]


@async_test(SECONDS)
async def test_without_watch_only_a_signal_makes_it_read(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NOWHERE, keys=keys(ALICE), **WATCHED)
    unwatched = {"HOLODECK_RELOAD__WATCH": "false"}
    async with (
        run_gateway_process(file, AS_JSON) as watching,
        run_gateway_process(file, AS_JSON, environ=unwatched) as other,
    ):
        for times, names in enumerate([(ALICE, BOB), (BOB,)], start=1):
            write_gateway_file(tmp_path, NOWHERE, keys=keys(*names), **WATCHED)
            await wait_event(watching, "gateway.reloaded", times=times)
        assert await status_for(other, BOB) == 401
        other.stop(signal.SIGHUP)
        await wait_event(other, "gateway.reloaded")
        assert await status_for(other, BOB) == 200


@async_test(SECONDS)
async def test_a_bad_file_is_refused_with_its_problems_and_the_next_good_one_is_applied(tmp_path: Path) -> None:
    secret = "sk-never-to-be-shown"
    file = write_gateway_file(tmp_path, NOWHERE, keys=keys(ALICE), **WATCHED)
    async with run_gateway_process(file, AS_JSON) as served:
        bad = orjson.loads(file.read_bytes())
        bad["models"][0]["model"]["api_key"] = secret
        bad["keys"] = [{"name": "bob", "hash": "wrong"}]
        file.write_bytes(orjson.dumps(bad))
        problems = (await wait_event(served, "gateway.reload_refused"))["problems"]
        assert any("keys[0].hash" in each for each in problems)
        assert any("a secret must not be written into this file" in each for each in problems)
        file.write_text("keys: [")
        assert (await wait_event(served, "gateway.reload_refused", times=2))["problems"]
        assert await status_for(served, ALICE) == 200
        write_gateway_file(tmp_path, NOWHERE, keys=keys(ALICE, BOB), **WATCHED)
        await wait_event(served, "gateway.reloaded")
        assert await status_for(served, BOB) == 200
    assert secret not in "".join(served.stderr_lines)


@pytest.mark.proves("D-39")
@async_test(SECONDS)
async def test_what_the_file_does_needs_new_trust_and_keys_do_not(tmp_path: Path) -> None:
    environ = {"HOLODECK_TRUST": "", "HOME": str(tmp_path)}
    async with FaultyMCPServer() as mcp:
        file = write_gateway_file(tmp_path, NOWHERE, keys=keys(ALICE), **WATCHED)
        async with run_gateway_process(file, AS_JSON, "--trust", environ=environ) as served:
            write_gateway_file(tmp_path, NOWHERE, keys=keys(ALICE, BOB), **WATCHED)
            await wait_event(served, "gateway.reloaded")
            added = [server("added", mcp.url)]
            write_gateway_file(tmp_path, NOWHERE, keys=keys(BOB), mcp_servers=added, **WATCHED)
            [problem] = (await wait_event(served, "gateway.reload_refused"))["problems"]
            assert f"holodeck trust {file}" in problem
            assert [await status_for(served, key) for key in (ALICE, BOB)] == [200, 200]
            save_trust(file, list_actions(read_gateway(file)), open_trust_store(tmp_path))
            fields = await wait_event(served, "gateway.reloaded", times=2)
            assert (fields["servers_added"], fields["keys_removed"]) == (["added"], [ALICE])
            assert await status_for(served, ALICE) == 401


@async_test(SECONDS)
async def test_what_only_a_restart_changes_is_named_and_the_rest_is_applied(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("Hi.")).serve() as model:
        file = write_gateway_file(tmp_path, model.url, keys=keys(ALICE))
        async with run_gateway_process(file, AS_JSON) as served:
            write_gateway_file(
                tmp_path,
                model.url,
                keys=keys(ALICE, BOB),
                listen={"port": 1},
                storage={"url": "sqlite:///other.db", "retention_days": 3},
                log={"format": "text"},
                limits={"drain_seconds": 0, "body_bytes": 2048},
            )
            served.stop(signal.SIGHUP)
            named = (await wait_event(served, "gateway.reload_needs_restart"))["keys"]
            assert named == ["listen.port", "storage.url", "limits.body_bytes"]
            fields = await wait_event(served, "gateway.reloaded")
            assert (fields["keys_added"], fields["settings_changed"]) == ([BOB], ["storage.retention_days"])
            assert await status_for(served, BOB) == 200
            body = {"model": "demo", "input": "x" * 4096}
            answered, _, _ = await served.send("POST", "/v1/responses", body, {"authorization": f"Bearer {BOB}"})
            assert answered == 200, "the limit of before is in force"
    assert not (tmp_path / "other.db").exists()


@async_test(SECONDS)
async def test_changed_python_files_of_an_agent_wait_for_a_restart(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("Hi.")).serve() as model:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": model.url}
        tool = {"type": "function", "name": "add", "description": "Adds.", "file": "sums.py", "function": "add"}
        agent = {"name": "helper", "model": llm, "instructions": {"inline": "A."}, "tools": [tool]}
        (tmp_path / "agent.yaml").write_bytes(orjson.dumps(agent))
        (tmp_path / "sums.py").write_text("def add(a: int) -> int:\n    return a\n")
        file = write_gateway_file(tmp_path, model.url, agents=[{"file": "agent.yaml"}])
        async with run_gateway_process(file, AS_JSON) as served:
            (tmp_path / "sums.py").write_text("def add(a: int) -> int:\n    return a + 1\n")
            (tmp_path / "agent.yaml").write_bytes(orjson.dumps(agent | {"instructions": {"inline": "B."}}))
            served.stop(signal.SIGHUP)
            named = (await wait_event(served, "gateway.reload_needs_restart"))["keys"]
            assert named == ["Python files of agent helper"]
            await wait_event(served, "gateway.reloaded")
            await served.send("POST", "/v1/responses", {"model": "helper", "input": "hi"})
            assert model.received[-1].json["messages"][0]["content"] == "A.", "the agent is as it was, whole"
            (tmp_path / "sums.py").write_text("def add(a: int) -> int:\n    return a\n")
            served.stop(signal.SIGHUP)
            await wait_event(served, "gateway.reloaded", times=2)
            await served.send("POST", "/v1/responses", {"model": "helper", "input": "hi"})
            assert model.received[-1].json["messages"][0]["content"] == "B."


@async_test(SECONDS)
async def test_a_second_sighup_during_a_reload_is_not_lost(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NOWHERE, keys=keys(ALICE))
    async with run_gateway_process(file, AS_JSON) as served:
        for number in range(5):
            write_gateway_file(tmp_path, NOWHERE, keys=keys(ALICE, f"hd-{number}"))
            served.stop(signal.SIGHUP)
        while await status_for(served, "hd-4") != 200:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)

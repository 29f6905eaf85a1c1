"""The configuration of a running gateway changes as a whole: new requests see it, what runs goes on as it began."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import ALICE, ASK, BOB, keys, server, wait_asked
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from gateway.scraped_metrics import parse_metrics
from websockets.asyncio.client import connect

from holodeck.lib.errors import ConfigError
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, read_pids, say, stand_in, wait


def stdio_server(name: str, folder: Path, mode: str = "normal") -> tuple[dict[str, Any], Path]:
    """A server that is a process, and the file with the ids of its processes."""
    pids = folder / f"{name}.pids"
    path = stand_in(folder / name, FaultyMCPServer.command(mode, pid_file=pids))
    entry = {"name": name, "type": "mcp", "description": name, "command": "npx", "args": ["x"], "env": path}
    return entry | {"allow_unsafe_args": True}, pids


async def wait_gone(pid: int) -> None:
    """Wait until there is no such process."""
    while True:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        await asyncio.sleep(0.02)


async def tools_of(gateway: RunningGateway, **more: Any) -> set[str]:
    """The names of the tools that the model is offered for a new request."""
    status, said = await gateway.send("POST", "/v1/responses", ASK | more)
    assert status == 200, said
    return {tool["function"]["name"] for tool in gateway.model_requests[-1].get("tools", [])}


@async_test
async def test_models_are_added_removed_and_changed(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi."))) as gateway:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": gateway.model.url}
        named = {"name": MODEL, "model": llm}
        assert await gateway.reload(models=[named | {"instructions": "Be kind."}, named | {"name": "second"}])
        _, listed = await gateway.send("GET", "/v1/models")
        assert [each["id"] for each in listed["data"]] == [MODEL, "second"]
        assert (await gateway.send("POST", "/v1/responses", ASK))[0] == 200
        assert gateway.model_requests[-1]["messages"][0]["content"] == "Be kind."
        assert await gateway.reload(models=[named | {"name": "second"}])
        status, said = await gateway.send("POST", "/v1/responses", ASK)
        assert (status, said["error"]["code"]) == (404, "model_not_found")
        assert (await gateway.send("POST", "/v1/responses", ASK | {"model": "second"}))[0] == 200


@async_test
async def test_the_instructions_file_of_an_agent_is_read_again(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("Hi.")).serve() as model:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": model.url}
        agent = {"name": "helper", "model": llm, "instructions": {"file": "how.md"}}
        (tmp_path / "agent.yaml").write_bytes(orjson.dumps(agent))
        (tmp_path / "how.md").write_text("Be kind.")
        async with run_gateway(tmp_path, agents=[{"file": "agent.yaml"}]) as gateway:
            for instructions in ("Be kind.", "Be brief."):
                (tmp_path / "how.md").write_text(instructions)
                assert await gateway.reload()
                assert (await gateway.send("POST", "/v1/responses", ASK | {"model": "helper"}))[0] == 200
                assert model.received[-1].json["messages"][0]["content"] == instructions


@async_test
async def test_a_server_that_is_added_is_offered_and_one_that_is_removed_is_not(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as one,
        FaultyMCPServer() as two,
        run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), mcp={"one": one}) as gateway,
    ):
        assert await tools_of(gateway)
        assert await gateway.reload(mcp_servers=[server("two", two.url)])
        await tools_of(gateway)
        _, listed = await gateway.send("GET", "/v1/mcp/servers")
        assert [each["name"] for each in listed["data"]] == ["two"]
        assert await gateway.reload(mcp_servers=[])
        assert not await tools_of(gateway)


@pytest.mark.proves("D-39")
@async_test
async def test_unchanged_servers_keep_their_connections(tmp_path: Path) -> None:
    stdio, pids = stdio_server("process", tmp_path)
    async with (
        FaultyMCPServer() as http,
        FaultyMCPServer() as other,
        run_gateway(
            tmp_path,
            ScriptedModel(lambda _: say("Hi.")),
            mcp_servers=[stdio, server("http", http.url)],
            allow_stdio=True,
        ) as gateway,
    ):
        await tools_of(gateway)
        before = read_pids(pids)
        for extra in range(5):
            entries = [stdio, server("http", http.url), server(f"other{extra}", other.url)]
            assert await gateway.reload(mcp_servers=entries, limits={"drain_seconds": 0, "in_flight": 10 + extra})
            await tools_of(gateway)
        assert read_pids(pids) == before, "no process was started anew"
        assert len([one for one in http.requests if one.method == "initialize"]) == 1
        assert len([one for one in other.requests if one.method == "initialize"]) == 5


@async_test
async def test_servers_of_an_agent_are_kept_when_only_its_instructions_change(tmp_path: Path) -> None:
    async with FaultyMCPServer() as mcp, ScriptedModel(lambda _: say("Hi.")).serve() as model:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": model.url}
        agent = {"name": "helper", "model": llm, "instructions": {"inline": "A."}, "tools": [server("tools", mcp.url)]}
        file = tmp_path / "agent.yaml"
        file.write_bytes(orjson.dumps(agent))
        async with run_gateway(tmp_path, agents=[{"file": "agent.yaml"}]) as gateway:
            for instructions in ("A.", "B."):
                file.write_bytes(orjson.dumps(agent | {"instructions": {"inline": instructions}}))
                assert await gateway.reload()
                await gateway.send("POST", "/v1/responses", ASK | {"model": "helper"})
            assert len([one for one in mcp.requests if one.method == "initialize"]) == 1
            file.write_bytes(orjson.dumps(agent | {"model": llm | {"name": "larger"}}))
            assert await gateway.reload()
            await gateway.send("POST", "/v1/responses", ASK | {"model": "helper"})
            assert len([one for one in mcp.requests if one.method == "initialize"]) == 2, "it may ask the new model"


@pytest.mark.proves("D-39")
@async_test
async def test_a_run_finishes_with_the_server_that_was_removed_and_then_the_server_is_closed(tmp_path: Path) -> None:
    go = asyncio.Event()
    stdio, pids = stdio_server("process", tmp_path)
    model = ScriptedModel([say("Wait."), wait(go), call("echo", text="late")], say("Done."))
    async with run_gateway(
        tmp_path, model, mcp_servers=[stdio], allow_stdio=True, limits={"drain_seconds": 60}
    ) as gateway:
        running = asyncio.create_task(gateway.stream("/v1/responses", ASK | {"stream": True}))
        await wait_asked(gateway, 1)
        assert await gateway.reload(mcp_servers=[])
        [pid] = read_pids(pids)
        os.kill(pid, 0)
        go.set()
        done = (await running)[-1]["response"]
        calls = [item for item in done["output"] if item["type"] == "mcp_call"]
        assert (calls[0]["output"], calls[0]["error"]) == ("late", None)
        await wait_gone(pid)


@async_test
async def test_a_removed_server_that_a_run_does_not_let_go_of_is_closed_after_the_drain_period(tmp_path: Path) -> None:
    stdio, pids = stdio_server("process", tmp_path, "hangs")
    model = ScriptedModel(call("echo", text="x"), say("It failed."))
    async with run_gateway(
        tmp_path, model, mcp_servers=[stdio], allow_stdio=True, limits={"drain_seconds": 0.2}
    ) as gateway:
        running = asyncio.create_task(gateway.stream("/v1/responses", ASK | {"stream": True}))
        await wait_asked(gateway, 1)
        [pid] = read_pids(pids)
        assert await gateway.reload(mcp_servers=[])
        await wait_gone(pid)
        done = (await running)[-1]["response"]
        assert done["status"] == "completed"
        assert next(item for item in done["output"] if item["type"] == "mcp_call")["error"]


@async_test
async def test_a_changed_server_is_started_anew_for_new_requests(tmp_path: Path) -> None:
    stdio, pids = stdio_server("process", tmp_path)
    async with run_gateway(
        tmp_path, ScriptedModel(lambda _: say("Hi.")), mcp_servers=[stdio], allow_stdio=True
    ) as gateway:
        await tools_of(gateway)
        [first] = read_pids(pids)
        assert await gateway.reload(mcp_servers=[stdio | {"env": {**stdio["env"], "MORE": "1"}}])
        await wait_gone(first)
        await tools_of(gateway)
        assert len(read_pids(pids)) == 2


@async_test
async def test_metrics_count_calls_of_a_new_server_by_its_name(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="x"), say("Done."))
    async with FaultyMCPServer() as mcp, run_gateway(tmp_path, model) as gateway:
        assert await gateway.reload(mcp_servers=[server("added", mcp.url)])
        assert (await gateway.send("POST", "/v1/responses", ASK))[0] == 200
        _, text = await gateway.send("GET", "/metrics")
        assert parse_metrics(text).value("holodeck_tool_calls_total", server="added", tool="echo", outcome="ok") == 1


@pytest.mark.proves("D-39")
@async_test
async def test_limits_that_shrink_hold_for_new_requests_also_on_an_open_socket(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([say("First."), wait(go), say(" Last.")], lambda _: say("Hi."))
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB]) as gateway:
        address = gateway.url.replace("http", "ws", 1) + "/v1/responses"
        async with connect(address, additional_headers={"authorization": f"Bearer {ALICE}"}) as socket:
            running = asyncio.create_task(gateway.stream("/v1/responses", ASK | {"stream": True}, key=ALICE))
            await wait_asked(gateway, 1)
            assert await gateway.reload(keys=[*keys(ALICE, limits={"in_flight": 1}), *keys(BOB)])
            status, said = await gateway.send("POST", "/v1/responses", ASK, key=ALICE)
            assert (status, said["error"]["message"]) == (429, "This key is at its limit of 1 requests at once.")
            await socket.send(orjson.dumps({"type": "response.create", **ASK}).decode())
            refused = orjson.loads(await socket.recv())
            assert (refused["type"], refused["status"]) == ("error", 429)
            assert (await gateway.send("POST", "/v1/responses", ASK, key=BOB))[0] == 200
            go.set()
            assert (await running)[-1]["response"]["output"][0]["content"][0]["text"] == "First. Last."


@async_test
async def test_a_scope_that_shrinks_holds_for_the_next_message_of_an_open_socket(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE]) as gateway:
        address = gateway.url.replace("http", "ws", 1) + "/v1/responses"
        message = orjson.dumps({"type": "response.create", **ASK}).decode()
        async with connect(address, additional_headers={"authorization": f"Bearer {ALICE}"}) as socket:
            await socket.send(message)
            while orjson.loads(await socket.recv())["type"] != "response.completed":
                pass
            assert await gateway.reload(keys=keys(ALICE, allow={"models": ["other"]}))
            await socket.send(message)
            refused = orjson.loads(await socket.recv())
            assert (refused["status"], refused["error"]["code"]) == (404, "model_not_found")


@async_test
async def test_limits_of_the_gateway_and_allowed_origins_apply_at_once(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE]) as gateway:
        assert await gateway.reload(
            limits={"drain_seconds": 0, "key": {"requests_per_minute": 1}}, cors_origins=["https://good.example"]
        )
        session = await gateway.http_client(ALICE)
        headers = {"origin": "https://good.example"}
        async with session.post("/v1/responses", data=orjson.dumps(ASK), headers=headers) as answer:
            assert answer.status == 200
            assert answer.headers["access-control-allow-origin"] == "https://good.example"
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=ALICE)
        assert (status, said["error"]["message"]) == (429, "This key is at its limit of 1 requests a minute.")


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"keys": [{"name": "carol", "hash": "plain"}], "mcp_servers": []}, "keys[0].hash"),
        ({"models": [], "mcp_servers": []}, "the file serves nothing"),
        ({"limit": {}}, "limits"),
    ],
)
@async_test
async def test_a_file_with_errors_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: dict[str, Any], said: str
) -> None:
    async with (
        FaultyMCPServer() as mcp,
        run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), mcp={"tools": mcp}, keys=[ALICE]) as gateway,
    ):
        assert not await gateway.reload(**wrong)
        [line] = [record.getMessage() for record in caplog.records if "gateway.reload_refused" in record.getMessage()]
        assert said in line
        status, answer = await gateway.send("POST", "/v1/responses", ASK, key=ALICE)
        assert (status, answer["status"]) == (200, "completed")
        assert gateway.model_requests[-1]["tools"]


@async_test
async def test_a_file_cut_before_its_keys_keeps_the_keys_in_force(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_gateway(tmp_path, admins=[ALICE], keys=[BOB]) as gateway:
        whole = orjson.loads(gateway.file.read_bytes())
        cut = {section: whole[section] for section in whole if section != "keys"}
        for number, written in enumerate((cut, cut | {"keys": []}, cut | {"auth": "none"}), start=1):
            gateway.file.write_bytes(orjson.dumps(written))
            assert not await gateway.reload()
            assert (await gateway.send("GET", "/v1/config", key="hd-stranger"))[0] == 401
            _, config = await gateway.send("GET", "/v1/config", key=ALICE)
            assert "a reload never ends authentication" in config["problems"][0]["message"]
            assert "write 'auth: none' and restart" in config["problems"][0]["fix"]
            assert caplog.text.count("gateway.reload_refused") == number
        gateway.file.write_bytes(orjson.dumps(whole))
        assert await gateway.reload(keys=keys(ALICE))


@async_test
async def test_a_gateway_that_had_callers_starts_without_keys_only_by_a_word_in_its_file(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), keys=[ALICE]) as gateway:
        assert (await gateway.send("POST", "/v1/responses", ASK, key=ALICE))[0] == 200
    with pytest.raises(ConfigError, match="write 'auth: none'"):
        async with run_gateway(tmp_path):
            pass
    async with run_gateway(tmp_path, auth="none") as gateway:
        assert (await gateway.send("GET", "/v1/config"))[0] == 200
        assert not await gateway.reload(keys=keys(ALICE)), "it contradicts the word"


@async_test
async def test_restrictions_that_are_gone_from_the_file_are_named_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limits = {"drain_seconds": 0, "key": {"requests_per_minute": 9}}
    entry = keys(ALICE, allow={"models": [MODEL]}, limits={"in_flight": 3})
    listen = {"port": 0, "allowed_hosts": ["gateway.example"]}
    asking = server("tools", "http://127.0.0.1:9/mcp", approval="always")
    config: dict[str, Any] = {"listen": listen, "limits": limits, "mcp_servers": [asking], "mcp_connect": "first_use"}
    async with run_gateway(tmp_path, keys=[ALICE], **config) as gateway:
        assert await gateway.reload(keys=[*entry, *keys(BOB, limits={"in_flight": 3})])
        assert await gateway.reload(keys=entry)
        assert "gateway.reload_allows_more" not in caplog.text, "one caller less may do less"
        del asking["approval"]
        cut = {"keys": keys(ALICE), "listen": {"port": 0}, "limits": {"drain_seconds": 0}, "mcp_servers": [asking]}
        assert await gateway.reload(**cut)
        [line] = [text for each in caplog.records if "reload_allows_more" in (text := each.getMessage())]
        names = ("limits.key", "listen.allowed_hosts", f"keys.{ALICE}.allow", f"keys.{ALICE}.limits")
        assert all(name in line for name in (*names, "mcp_servers.tools.approval")), line


@pytest.mark.proves("D-39")
@async_test(150)
async def test_twenty_reloads_under_load_fail_no_request_of_unaffected_callers(tmp_path: Path) -> None:
    def answer(_: Any) -> Any:
        return call("echo", text="x") if _.json["messages"][-1]["role"] == "user" else [say("Do"), say("ne.")]

    async with (
        FaultyMCPServer() as kept,
        FaultyMCPServer() as moving,
        run_gateway(tmp_path, ScriptedModel(answer), mcp={"kept": kept}, keys=[ALICE, BOB]) as gateway,
    ):
        is_over = asyncio.Event()
        outcomes: list[str] = []

        async def ask_again_and_again() -> None:
            while not is_over.is_set():
                events = await gateway.stream("/v1/responses", ASK | {"stream": True}, key=ALICE)
                outcomes.append(events[-1]["response"]["status"])

        async with asyncio.TaskGroup() as group:
            for _ in range(64):
                group.create_task(ask_again_and_again())
            for turn in range(20):
                more = [server("moving", moving.url, request_timeout=10 + turn)] if turn % 2 else []
                others = keys(ALICE, BOB) if turn % 3 else keys(ALICE)
                seen = len(outcomes)
                assert await gateway.reload(mcp_servers=[server("kept", kept.url), *more], keys=others)
                while len(outcomes) < seen + 8:  # noqa: ASYNC110 - no event to wait for
                    await asyncio.sleep(0)
            is_over.set()
        assert set(outcomes) == {"completed"}
        assert len([one for one in kept.requests if one.method == "initialize"]) == 1

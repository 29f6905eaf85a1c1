"""Operators make, change, replace and revoke keys over HTTP: they are in the store, and in force at once."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.config_entries import ALICE, ASK, BOB
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.gateway.auth.callers import RevokedCallers
from holodeck.testing import ScriptedModel, say, spend

OPS = "hd-ops"
MCP_HEADERS = {"accept": "application/json, text/event-stream"}
MCP_START = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


async def make(gateway: RunningGateway, name: str, **settings: Any) -> str:
    """Make a key, and return it."""
    status, made = await gateway.send("POST", "/v1/keys", {"name": name, **settings}, key=OPS)
    assert status == 200, made
    key: str = made["key"]
    return key


def assert_stored_nowhere(folder: Path, key: str) -> None:
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert any(file.suffix == ".db" for file in files)
    assert not any(key.encode() in file.read_bytes() for file in files)


@async_test
async def test_a_new_key_works_at_once_and_only_its_hash_is_stored(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        before = gateway.file.read_bytes()
        status, made = await gateway.send("POST", "/v1/keys", {"name": "carol"}, key=OPS)
        assert (status, made["name"], made["role"]) == (200, "carol", None)
        assert (made["source"], made["made_by"]) == ("store", f"key:{OPS}")
        assert abs(made["made_at"] - time.time()) < 600
        assert (await gateway.send("POST", "/v1/responses", ASK, key=made["key"]))[0] == 200
        _, listed = await gateway.send("GET", "/v1/keys", key=OPS)
        sources = [(each["name"], each["source"]) for each in listed["data"]]
        assert sources == [(ALICE, "file"), (BOB, "file"), (OPS, "file"), ("carol", "store")]
        assert not any("key" in each for each in listed["data"])
        assert "sha256" not in str(listed)
        assert gateway.file.read_bytes() == before
    assert_stored_nowhere(tmp_path, made["key"])
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), admins=[OPS]) as gateway:
        assert (await gateway.send("POST", "/v1/responses", ASK, key=made["key"]))[0] == 200, "after a restart"


@async_test
async def test_keys_of_the_file_are_changed_in_the_file_only_and_it_is_said(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS]) as gateway:
        for method, path, body in (
            ("POST", "/v1/keys/update", {"name": ALICE, "role": "viewer"}),
            ("POST", "/v1/keys/rotate", {"name": ALICE}),
            ("DELETE", f"/v1/keys/{ALICE}", None),
        ):
            status, said = await gateway.send(method, path, body, key=OPS)
            assert (status, said["error"]["code"]) == (409, "key_in_file")
            assert "is in the gateway's file" in said["error"]["message"]
        assert (await gateway.send("GET", "/v1/models", key=ALICE))[0] == 200


@async_test
async def test_a_key_with_a_scope_may_use_only_that(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), admins=[OPS]) as gateway:
        key = await make(gateway, "narrow", allow={"models": ["other-*"]})
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=key)
        assert (status, said["error"]["code"]) == (404, "model_not_found")


@async_test
async def test_a_revoked_key_is_refused_at_once(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[BOB], admins=[OPS]) as gateway:
        key = await make(gateway, "alice")
        assert (await gateway.send("GET", "/v1/models", key=key))[0] == 200
        assert (await gateway.send("DELETE", "/v1/keys/alice", key=OPS))[0] == 200
        assert (await gateway.send("GET", "/v1/models", key=key))[0] == 401
        assert (await gateway.send("GET", "/v1/models", key=BOB))[0] == 200
        status, said = await gateway.send("DELETE", "/v1/keys/alice", key=OPS)
        assert (status, said["error"]["code"]) == (404, "not_found")


@async_test
async def test_a_paused_key_is_refused_with_the_reason_until_it_goes_on(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), admins=[OPS]) as gateway:
        key = await make(gateway, "alice")
        for is_paused, status, code in ((True, 401, "key_paused"), (False, 200, None)):
            _, changed = await gateway.send("POST", "/v1/keys/update", {"name": "alice", "paused": is_paused}, key=OPS)
            assert changed["paused"] is is_paused
            got, said = await gateway.send("GET", "/v1/models", key=key)
            assert (got, said.get("error", {}).get("code")) == (status, code)


@async_test
async def test_a_key_that_expires_is_refused_and_what_is_open_for_it_ends(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), admins=[OPS]) as gateway:
        soon = (datetime.now(UTC) + timedelta(seconds=2)).isoformat()
        key = await make(gateway, "alice", expires=soon)
        ended: asyncio.Future[RevokedCallers] = asyncio.get_running_loop().create_future()
        gateway.service.callers.add_revocation_listener(ended.set_result)
        assert [name.startswith("key:alice#") for name in (await ended).names] == [True]
        status, said = await gateway.send("GET", "/v1/models", key=key)
        assert (status, said["error"]["code"]) == (401, "key_expired")


@async_test
async def test_with_a_grace_period_both_keys_work_after_a_rotation(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), admins=[OPS]) as gateway:
        for name, grace, old_status in (("ann", 3600, 200), ("ben", 0, 401)):
            old = await make(gateway, name)
            body = {"name": name, "grace_seconds": grace}
            _, made = await gateway.send("POST", "/v1/keys/rotate", body, key=OPS)
            assert (await gateway.send("GET", "/v1/models", key=made["key"]))[0] == 200
            assert (await gateway.send("GET", "/v1/models", key=old))[0] == old_status


@async_test
async def test_a_narrowed_key_is_refused_the_model_that_it_lost_at_its_next_request(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[BOB], admins=[OPS]) as gateway:
        key = await make(gateway, "alice")
        assert (await gateway.send("POST", "/v1/responses", ASK, key=key))[0] == 200
        body: dict[str, Any] = {"name": "alice", "allow": {"models": ["other-*"]}, "limits": {"in_flight": 3}}
        status, updated = await gateway.send("POST", "/v1/keys/update", body, key=OPS)
        assert (status, updated["allow"], updated["limits"]) == (200, {"models": ["other-*"]}, {"in_flight": 3})
        assert "hash" not in updated
        assert "key" not in updated
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=key)
        assert (status, said["error"]["code"]) == (404, "model_not_found")
        assert (await gateway.send("POST", "/v1/responses", ASK, key=BOB))[0] == 200
        status, updated = await gateway.send("POST", "/v1/keys/update", {"name": "alice", "allow": None}, key=OPS)
        assert (status, updated["allow"], updated["limits"]) == (200, None, {"in_flight": 3}), "what is absent stays"
        assert (await gateway.send("POST", "/v1/responses", ASK, key=key))[0] == 200


@async_test
async def test_roles_are_given_and_taken_and_budgets_count_from_then_on(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("Hi."), spend(1_000_000, 0)])
    price = {"input": 1.0, "output": 1.0}
    async with run_gateway(tmp_path, model, admins=[OPS], price=price) as gateway:
        key = await make(gateway, "alice")
        for role, status in (("operator", 200), (None, 403)):
            _, updated = await gateway.send("POST", "/v1/keys/update", {"name": "alice", "role": role}, key=OPS)
            assert updated["role"] == role, updated
            assert (await gateway.send("GET", "/metrics", key=key))[0] == status
        assert (await gateway.send("POST", "/v1/responses", ASK, key=key))[0] == 200
        budget = {"amount": 0.5, "period": "month"}
        _, updated = await gateway.send("POST", "/v1/keys/update", {"name": "alice", "budget": budget}, key=OPS)
        assert updated["budget"] == budget
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=key)
        assert (status, said["error"]["code"]) == (429, "budget_exceeded")
        _, listed = await gateway.send("GET", "/v1/keys?text=ALI", key=OPS)
        assert [(each["name"], each["spending"]["spent"]) for each in listed["data"]] == [("alice", 1.0)]


@async_test
async def test_the_list_comes_in_pages_and_says_when_keys_were_used(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS]) as gateway:
        keys = {name: await make(gateway, name) for name in ("cy", "bo", "al")}
        await gateway.send("GET", "/v1/models", key=keys["bo"])
        found: list[dict[str, Any]] = []
        after = ""
        while True:
            _, page = await gateway.send("GET", f"/v1/keys?limit=2{after}", key=OPS)
            assert len(page["data"]) <= 2
            found += page["data"]
            if not page["has_more"]:
                break
            after = f"&after={page['data'][-1]['caller_id']}".replace("#", "%23")
        assert [each["name"] for each in found] == [ALICE, OPS, "al", "bo", "cy"]
        used = {each["name"]: each["last_used_at"] for each in found}
        assert used["al"] is None
        assert abs(used["bo"] - time.time()) < 600
        assert used[OPS] is not None
        status, said = await gateway.send("GET", "/v1/keys?after=key:nobody", key=OPS)
        assert (status, said["error"]["param"]) == (400, "after")


@async_test
async def test_a_wrong_update_changes_nothing_and_says_where_it_is_wrong(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, admins=[OPS]) as gateway:
        await make(gateway, "alice")
        own = await make(gateway, "boss", role="operator")
        changes: tuple[tuple[dict[str, Any], int, str, str | None], ...] = (
            ({"name": "alice"}, 400, "missing_required_parameter", "role"),
            ({"allow": {}}, 400, "missing_required_parameter", "name"),
            ({"name": "alicia", "role": "operator"}, 404, "not_found", None),
            ({"name": "alice", "role": "admin"}, 400, "invalid_value", "role"),
            ({"name": "alice", "allow": {"modles": []}}, 400, "invalid_value", "allow.modles"),
            ({"name": "alice", "allow": {"tools": ["read"]}}, 400, "invalid_value", "allow.tools"),
            ({"name": "alice", "limits": {"in_flight": 0}}, 400, "invalid_value", "limits.in_flight"),
            ({"name": "alice", "expires": "tomorrow"}, 400, "invalid_value", "expires"),
            ({"name": "alice", "expires": "2030-01-01T00:00:00"}, 400, "invalid_value", "expires"),
            ({"name": "alice", "paused": "yes"}, 400, "invalid_value", "paused"),
            ({"name": "alice", "hash": "sha256:0", "role": "operator"}, 400, "unknown_parameter", "hash"),
            # The model has no price.
            ({"name": "alice", "budget": {"amount": 5, "period": "day"}}, 400, "invalid_value", "budget"),
            ({"name": "alice", "allow": {"models": ["${SECRET}"]}}, 400, "invalid_value", "allow"),
            ({"name": "boss", "role": "viewer"}, 409, "key_in_use", "role"),
            ({"name": "boss", "role": None}, 409, "key_in_use", "role"),
            ({"name": "boss", "allow": {"models": [MODEL]}}, 409, "key_in_use", "allow"),
            ({"name": "boss", "paused": True}, 409, "key_in_use", "paused"),
            ({"name": "boss", "expires": "2030-01-01T00:00:00Z"}, 409, "key_in_use", "expires"),
        )
        _, before = await gateway.send("GET", "/v1/keys?text=a", key=OPS)
        for body, status, code, param in changes:
            got, said = await gateway.send("POST", "/v1/keys/update", body, key=own)
            error = said["error"]
            assert (got, error["code"], error["param"]) == (status, code, param), said
        for name in ("budget", "allow"):
            value = {"amount": 5, "period": "day"} if name == "budget" else {"models": ["${SECRET}"]}
            got, said = await gateway.send("POST", "/v1/keys", {"name": "dan", name: value}, key=own)
            assert (got, said["error"]["param"]) == (400, name), said
        got, said = await gateway.send("DELETE", "/v1/keys/boss", key=own)
        assert (got, said["error"]["code"]) == (409, "key_in_use")
        assert (await gateway.send("GET", "/v1/keys?text=a", key=OPS))[1] == before
        assert (await gateway.send("POST", "/v1/keys/update", {"name": "boss", "limits": {}}, key=own))[0] == 200


@async_test
async def test_an_update_is_logged_with_the_names_of_what_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_gateway(tmp_path, admins=[OPS]) as gateway:
        await make(gateway, "alice")
        body = {"name": "alice", "allow": {"models": ["private-*"]}, "limits": None}
        await gateway.send("POST", "/v1/keys/update", body, key=OPS)
    (logged,) = [text for record in caplog.records if "key.updated" in (text := record.getMessage())]
    assert "name=alice fields='allow, limits'" in logged
    assert "private-" not in logged


@async_test
async def test_wrong_requests_change_nothing_and_say_why(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE], admins=[OPS]) as gateway:
        await make(gateway, "eve")
        for body, status, code in (
            ({"name": ALICE}, 409, "key_exists"),
            ({"name": "eve"}, 409, "key_exists"),
            ({"name": "a b"}, 400, "invalid_value"),
            ({"name": "dan", "allow": {"modles": []}}, 400, "invalid_value"),
            ({"name": "dan", "scope": "all"}, 400, "unknown_parameter"),
            ({}, 400, "missing_required_parameter"),
        ):
            got, said = await gateway.send("POST", "/v1/keys", body, key=OPS)
            assert (got, said["error"]["code"]) == (status, code), said


@async_test
async def test_only_operators_may_see_and_change_keys(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        for method, path, body in (
            ("GET", "/v1/keys", None),
            ("POST", "/v1/keys", {"name": "mallory", "role": "operator"}),
            ("POST", "/v1/keys/rotate", {"name": OPS}),
            ("POST", "/v1/keys/update", {"name": ALICE, "role": "operator"}),
            ("DELETE", f"/v1/keys/{OPS}", None),
            ("GET", "/v1/config", None),
        ):
            assert (await gateway.send(method, path, body, key=ALICE))[0] == 403


@async_test
async def test_an_operator_with_a_scope_makes_no_keys(tmp_path: Path) -> None:
    """It could give itself one without a scope."""
    scopes = {"hd-scoped": {"models": ["demo"]}}
    async with run_gateway(tmp_path, admins=["hd-scoped", OPS], scopes=scopes) as gateway:
        for method, path, body in (
            ("POST", "/v1/keys", {"name": "mine", "role": "operator"}),
            ("POST", "/v1/keys/rotate", {"name": OPS}),
            ("POST", "/v1/keys/update", {"name": "hd-scoped", "allow": None}),
            ("GET", "/v1/config", None),
        ):
            status, said = await gateway.send(method, path, body, key="hd-scoped")
            assert (status, said["error"]["code"]) == (403, "forbidden")


@async_test
async def test_a_gateway_without_keys_makes_none(tmp_path: Path) -> None:
    """The page of a person would be locked out by it, and the key would be shown to whoever asked first."""
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi."))) as gateway:
        status, said = await gateway.send("POST", "/v1/keys", {"name": "ops", "role": "operator"})
        assert (status, said["error"]["code"]) == (409, "no_keys")
        assert "holodeck keys create" in said["error"]["message"]


@async_test
async def test_the_configuration_names_the_problems_of_a_file_that_was_changed(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        _, before = await gateway.send("GET", "/v1/config", key=OPS)
        assert (before["problems"], before["settings"]["keys"][0]["name"]) == ([], ALICE)
        assert "sha256:" not in str(before["settings"])
        assert not await gateway.reload(modles=[])
        _, after = await gateway.send("GET", "/v1/config", key=OPS)
        assert [(each["key"], each["severity"]) for each in after["problems"]] == [("modles", "error")]
        assert after["settings"] == before["settings"], "what runs is what was read before"
        assert (await gateway.send("POST", "/v1/keys", {"name": "erin"}, key=OPS))[0] == 200, "keys are in the store"


@async_test
async def test_the_configuration_shows_no_literal_secret(tmp_path: Path) -> None:
    far = {"name": "far", "transport": "http", "url": "https://m.example/mcp?api_key=letmein12&mode=fast"}
    local = {"name": "near", "command": "npx", "args": ["-y", "server@1.0.0", "--token=letmein12", "--level=3"]}
    servers = [each | {"description": "d", "enabled": False} for each in (far, local)]
    model = ScriptedModel(lambda _: say("Hi."))
    async with run_gateway(
        tmp_path, model, keys=[ALICE], admins=[OPS], mcp_servers=servers, allow_stdio=True
    ) as gateway:
        _, shown = await gateway.send("GET", "/v1/config", key=OPS)
    assert "letmein12" not in str(shown)
    first, second = shown["settings"]["mcp_servers"]
    assert first["url"] == "https://m.example/mcp?api_key=***&mode=fast"
    assert second["args"] == ["-y", "server@1.0.0", "--token=***", "--level=3"]


@async_test
async def test_the_configuration_has_what_is_in_force_for_keys_that_need_a_restart(tmp_path: Path) -> None:
    start: dict[str, Any] = {"listen": {"port": 0, "trusted_proxies": ["10.0.0.1"]}, "log": {"format": "text"}}
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS], **start) as gateway:

        async def read_settings(*restart_keys: str) -> dict[str, Any]:
            _, config = await gateway.send("GET", "/v1/config", key=OPS)
            assert config["restart_keys"] == list(restart_keys)
            settings: dict[str, Any] = config["settings"]
            return settings

        before = await read_settings()
        proxies = ["10.0.0.1", "10.0.0.2"]
        storage = {"url": "sqlite:///other.db"}
        changed = {"port": 8099, "host": "127.0.0.2", "trusted_proxies": proxies}
        assert await gateway.reload(listen=changed, storage=storage, log={"format": "json"})
        after = await read_settings("listen.host", "listen.port", "storage.url", "log")
        assert after == {**before, "listen": {"port": 0, "trusted_proxies": proxies}}
        assert await gateway.reload(mcp_connect="start")
        assert await read_settings("listen.host", "listen.port", "storage.url", "log") == {
            **after,
            "mcp_connect": "start",
        }
        assert await gateway.reload(**start, storage={})
        assert (await read_settings())["listen"] == start["listen"]


@async_test
async def test_a_new_key_under_an_old_name_is_another_caller(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("Hi."), spend(1_000_000, 0)])
    price, metrics = {"input": 1.0, "output": 1.0}, {"by_caller": True}
    body = {"name": "eve", "budget": {"amount": 0.5, "period": "month"}}
    async with run_gateway(tmp_path, model, admins=[OPS], price=price, metrics=metrics) as gateway:
        _, first = await gateway.send("POST", "/v1/keys", body, key=OPS)
        _, response = await gateway.send("POST", "/v1/responses", ASK, key=first["key"])
        _, conversation = await gateway.send("POST", "/v1/conversations", {}, key=first["key"])
        old = [
            f"/v1/responses/{response['id']}",
            f"/v1/runs/{response['id']}",
            f"/v1/conversations/{conversation['id']}",
        ]
        session = await gateway.http_client(first["key"])
        async with session.post("/mcp", json=MCP_START, headers=MCP_HEADERS) as started:
            mcp_session = {**MCP_HEADERS, "mcp-session-id": started.headers["mcp-session-id"]}
        # The same caller with another key has its things, and has spent its budget.
        _, rotated = await gateway.send("POST", "/v1/keys/rotate", {"name": "eve"}, key=OPS)
        assert rotated["id"] == first["id"]
        assert [(await gateway.send("GET", path, key=rotated["key"]))[0] for path in old] == [200, 200, 200]
        assert (await gateway.send("POST", "/v1/responses", ASK, key=rotated["key"]))[0] == 429
        assert (await gateway.send("DELETE", "/v1/keys/eve", key=OPS))[0] == 200
        _, second = await gateway.send("POST", "/v1/keys", body, key=OPS)
        new = second["key"]
        assert second["id"] != first["id"]
        assert [(await gateway.send("GET", path, key=new))[0] for path in old] == [404, 404, 404]
        assert (await gateway.send("GET", "/v1/conversations", key=new))[1]["data"] == []
        assert (await gateway.send("GET", "/v1/runs", key=new))[1]["data"] == []
        for field, owned in (("previous_response_id", response["id"]), ("conversation", conversation["id"])):
            assert (await gateway.send("POST", "/v1/responses", ASK | {field: owned}, key=new))[0] in (400, 404)
        session = await gateway.http_client(new)
        async with session.post("/mcp", json={**MCP_START, "method": "ping"}, headers=mcp_session) as pinged:
            assert pinged.status == 404
        assert (await gateway.send("POST", "/v1/responses", ASK, key=new))[0] == 200, "nothing is spent of its budget"
        # An operator finds the caller of now by its name, and the one that is gone by its id.
        for named, key_id in (("eve", second["id"]), ("key:eve", second["id"]), (f"eve%23{first['id']}", first["id"])):
            _, runs = await gateway.send("GET", f"/v1/runs?caller={named}", key=OPS)
            assert [run["caller"] for run in runs["data"]] == [f"key:eve#{key_id}"]
            _, usage = await gateway.send("GET", f"/v1/usage?caller={named}&group_by=caller&bucket=day", key=OPS)
            assert {row["caller"] for row in usage["data"]} == {f"key:eve#{key_id}"}
        assert (await gateway.send("GET", "/v1/runs?caller=eve", key=new))[0] == 200, "its own name"
        _, boss = await gateway.send("POST", "/v1/keys", {"name": "boss", "role": "operator"}, key=OPS)
        status, said = await gateway.send("DELETE", "/v1/keys/boss", key=boss["key"])
        assert (status, said["error"]["code"]) == (409, "key_in_use")
        assert b'holodeck_runs_total{caller="key:eve",' in (await gateway.send("GET", "/metrics", key=OPS))[1]

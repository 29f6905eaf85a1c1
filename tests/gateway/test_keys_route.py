"""An operator makes, changes, replaces and revokes keys over HTTP; the file has them, and they are in force at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from async_tests import async_test
from gateway.config_entries import ALICE, ASK, BOB
from gateway.running_gateway import MODEL, run_gateway

from holodeck.gateway.auth.callers import hash_key
from holodeck.testing import ScriptedModel, say, spend

OPS = "hd-ops"


@async_test
async def test_a_new_key_works_at_once_and_the_file_has_only_its_hash(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        status, made = await gateway.send("POST", "/v1/keys", {"name": "carol"}, key=OPS)
        assert (status, made["name"], made["admin"]) == (200, "carol", False)
        assert (await gateway.send("POST", "/v1/responses", ASK, key=made["key"]))[0] == 200
        assert made["key"] not in gateway.file.read_text()
        _, listed = await gateway.send("GET", "/v1/keys", key=OPS)
        assert [each["name"] for each in listed["data"]] == [ALICE, BOB, OPS, "carol"]
        assert not any("key" in each for each in listed["data"])


@async_test
async def test_a_key_with_a_scope_may_use_only_that(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), admins=[OPS]) as gateway:
        body = {"name": "narrow", "allow": {"models": ["other-*"]}}
        _, made = await gateway.send("POST", "/v1/keys", body, key=OPS)
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=made["key"])
        assert (status, said["error"]["code"]) == (404, "model_not_found")


@async_test
async def test_a_revoked_key_is_refused_at_once(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        assert (await gateway.send("DELETE", f"/v1/keys/{ALICE}", key=OPS))[0] == 200
        assert (await gateway.send("GET", "/v1/models", key=ALICE))[0] == 401
        assert (await gateway.send("GET", "/v1/models", key=BOB))[0] == 200
        status, said = await gateway.send("DELETE", f"/v1/keys/{ALICE}", key=OPS)
        assert (status, said["error"]["code"]) == (404, "not_found")


@async_test
async def test_with_a_grace_period_both_keys_work_after_a_rotation(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        for name, grace, old_status in ((ALICE, 3600, 200), (BOB, 0, 401)):
            body = {"name": name, "grace_seconds": grace}
            _, made = await gateway.send("POST", "/v1/keys/rotate", body, key=OPS)
            assert (await gateway.send("GET", "/v1/models", key=made["key"]))[0] == 200
            assert (await gateway.send("GET", "/v1/models", key=name))[0] == old_status


@async_test
async def test_a_narrowed_key_is_refused_the_model_that_it_lost_at_its_next_request(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        assert (await gateway.send("POST", "/v1/responses", ASK, key=ALICE))[0] == 200
        _, before = await gateway.send("GET", "/v1/keys", key=OPS)
        assert "sha256" not in str(before), "the hash of a key is for the file alone"
        body: dict[str, Any] = {"name": ALICE, "allow": {"models": ["other-*"]}, "limits": {"in_flight": 3}}
        status, updated = await gateway.send("POST", "/v1/keys/update", body, key=OPS)
        assert (status, updated["allow"], updated["limits"]) == (200, {"models": ["other-*"]}, {"in_flight": 3})
        assert "hash" not in updated
        assert "key" not in updated
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=ALICE)
        assert (status, said["error"]["code"]) == (404, "model_not_found")
        assert (await gateway.send("POST", "/v1/responses", ASK, key=BOB))[0] == 200
        status, updated = await gateway.send("POST", "/v1/keys/update", {"name": ALICE, "allow": None}, key=OPS)
        assert (status, updated["allow"], updated["limits"]) == (200, None, {"in_flight": 3}), "what is absent stays"
        assert (await gateway.send("POST", "/v1/responses", ASK, key=ALICE))[0] == 200


@async_test
async def test_operator_rights_are_given_and_taken_and_budgets_count_from_then_on(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("Hi."), spend(1_000_000, 0)])
    price = {"input": 1.0, "output": 1.0}
    async with run_gateway(tmp_path, model, keys=[ALICE], admins=[OPS], price=price) as gateway:
        for is_admin, status in ((True, 200), (False, 403)):
            body: dict[str, Any] = {"name": ALICE, "admin": is_admin}
            _, updated = await gateway.send("POST", "/v1/keys/update", body, key=OPS)
            assert updated["admin"] is is_admin, updated
            assert (await gateway.send("GET", "/metrics", key=ALICE))[0] == status
        assert (await gateway.send("POST", "/v1/responses", ASK, key=ALICE))[0] == 200
        budget = {"amount": 0.5, "period": "month"}
        _, updated = await gateway.send("POST", "/v1/keys/update", {"name": ALICE, "budget": budget}, key=OPS)
        assert updated["budget"] == budget
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=ALICE)
        assert (status, said["error"]["code"]) == (429, "budget_exceeded")


@async_test
async def test_an_update_keeps_comments_order_and_variables_of_the_file(tmp_path: Path) -> None:
    environ = {"ALICE_HASH": hash_key(ALICE)}
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS], environ=environ) as gateway:
        rest = orjson.loads(gateway.file.read_bytes())
        del rest["keys"]
        head = "# The gateway of the team\n" + yaml.safe_dump(rest, sort_keys=False)
        keys = f"""keys:
  # of sales
  - name: {ALICE}
    allow:  # asked for by Alice
      models: [{MODEL}, big]  # not the huge one
      # reading only
      tools: ["files.read_*"]
    hash: "${{ALICE_HASH}}"  # in .env
    limits: {{requests_per_minute: 60}}
  - {{name: {OPS}, hash: "{hash_key(OPS)}", admin: true}}
# End
"""
        gateway.file.write_text(head + keys)
        body = {"name": ALICE, "allow": {"models": [MODEL], "tools": ["files.read_*"]}, "limits": None, "admin": True}
        status, said = await gateway.send("POST", "/v1/keys/update", body, key=OPS)
        assert status == 200, said
        expected = keys.replace(f"[{MODEL}, big]", f'["{MODEL}"]')
        expected = expected.replace("    limits: {requests_per_minute: 60}\n", "    admin: true\n")
        assert gateway.file.read_text() == head + expected
        assert (await gateway.send("GET", "/metrics", key=ALICE))[0] == 200


@async_test
async def test_a_wrong_update_changes_nothing_and_says_where_it_is_wrong(tmp_path: Path) -> None:
    environ = {"SECRET": "do-not-show"}
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS], environ=environ) as gateway:
        before = gateway.file.read_bytes()
        changes: tuple[tuple[dict[str, Any], int, str, str | None], ...] = (
            ({"name": ALICE}, 400, "missing_required_parameter", "admin"),
            ({"allow": {}}, 400, "missing_required_parameter", "name"),
            ({"name": "hd-nobody", "admin": True}, 404, "not_found", None),
            ({"name": ALICE, "admin": "yes"}, 400, "invalid_value", "admin"),
            ({"name": ALICE, "allow": {"modles": []}}, 400, "invalid_value", "allow.modles"),
            ({"name": ALICE, "allow": {"tools": ["read"]}}, 400, "invalid_value", "allow.tools"),
            ({"name": ALICE, "limits": {"in_flight": 0}}, 400, "invalid_value", "limits.in_flight"),
            ({"name": ALICE, "hash": "sha256:0", "admin": True}, 400, "unknown_parameter", "hash"),
            # The model has no price, so a gateway with this file would not start.
            ({"name": ALICE, "budget": {"amount": 5, "period": "day"}}, 400, "invalid_value", "budget"),
            # The list of keys would have its value.
            ({"name": ALICE, "allow": {"models": ["${SECRET}"]}}, 400, "invalid_value", "allow"),
            ({"name": OPS, "admin": False}, 409, "key_in_use", "admin"),
            ({"name": OPS, "admin": None}, 409, "key_in_use", "admin"),
            ({"name": OPS, "allow": {"models": [MODEL]}}, 409, "key_in_use", "allow"),
        )
        for body, status, code, param in changes:
            got, said = await gateway.send("POST", "/v1/keys/update", body, key=OPS)
            error = said["error"]
            assert (got, error["code"], error["param"]) == (status, code, param), said
        for name in ("budget", "allow"):
            value = {"amount": 5, "period": "day"} if name == "budget" else {"models": ["${SECRET}"]}
            got, said = await gateway.send("POST", "/v1/keys", {"name": "dan", name: value}, key=OPS)
            assert (got, said["error"]["param"]) == (400, name), said
        assert gateway.file.read_bytes() == before
        assert (await gateway.send("POST", "/v1/keys/update", {"name": OPS, "limits": {}}, key=OPS))[0] == 200


@async_test
async def test_an_update_is_logged_with_the_names_of_what_changed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS]) as gateway:
        body = {"name": ALICE, "allow": {"models": ["private-*"]}, "limits": None}
        await gateway.send("POST", "/v1/keys/update", body, key=OPS)
    (logged,) = [text for record in caplog.records if "key.updated" in (text := record.getMessage())]
    assert f"name={ALICE} fields='allow, limits'" in logged
    assert "private-" not in logged


@async_test
async def test_wrong_requests_change_nothing_and_say_why(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        before = gateway.file.read_bytes()
        for body, status, code in (
            ({"name": ALICE}, 409, "key_exists"),
            ({"name": "a b"}, 400, "invalid_value"),
            ({"name": "dan", "allow": {"modles": []}}, 400, "invalid_value"),
            ({"name": "dan", "scope": "all"}, 400, "unknown_parameter"),
            ({}, 400, "missing_required_parameter"),
        ):
            got, said = await gateway.send("POST", "/v1/keys", body, key=OPS)
            assert (got, said["error"]["code"]) == (status, code), said
        got, said = await gateway.send("DELETE", f"/v1/keys/{OPS}", key=OPS)
        assert (got, said["error"]["code"]) == (409, "key_in_use")
        assert gateway.file.read_bytes() == before


@async_test
async def test_the_only_key_of_the_file_is_not_removed_although_another_is_in_force(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS]) as gateway:
        # As while another operator removes this one's key.
        written = orjson.loads(gateway.file.read_bytes())
        written["keys"] = [entry for entry in written["keys"] if entry["name"] == ALICE]
        gateway.file.write_bytes(orjson.dumps(written))
        status, said = await gateway.send("DELETE", f"/v1/keys/{ALICE}", key=OPS)
        assert (status, said["error"]["code"]) == (409, "key_in_use")
        assert orjson.loads(gateway.file.read_bytes()) == written


@async_test
async def test_only_operators_may_see_and_change_keys(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        for method, path, body in (
            ("GET", "/v1/keys", None),
            ("POST", "/v1/keys", {"name": "mallory", "admin": True}),
            ("POST", "/v1/keys/rotate", {"name": OPS}),
            ("POST", "/v1/keys/update", {"name": ALICE, "admin": True}),
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
            ("POST", "/v1/keys", {"name": "mine", "admin": True}),
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
        status, said = await gateway.send("POST", "/v1/keys", {"name": "ops", "admin": True})
        assert (status, said["error"]["code"]) == (409, "not_changeable")
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
        status, said = await gateway.send("POST", "/v1/keys", {"name": "erin"}, key=OPS)
        assert (status, said["error"]["code"]) == (409, "not_applied")


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
        assert (await gateway.send("POST", "/v1/responses", ASK, key=new))[0] == 200, "nothing is spent of its budget"
        # An operator finds the caller of now by its name, and the one that is gone by its id.
        for named, key_id in (("eve", second["id"]), ("key:eve", second["id"]), (f"eve%23{first['id']}", first["id"])):
            _, runs = await gateway.send("GET", f"/v1/runs?caller={named}", key=OPS)
            assert [run["caller"] for run in runs["data"]] == [f"key:eve#{key_id}"]
            _, usage = await gateway.send("GET", f"/v1/usage?caller={named}&group_by=caller&bucket=day", key=OPS)
            assert {row["caller"] for row in usage["data"]} == {f"key:eve#{key_id}"}
        assert (await gateway.send("GET", "/v1/runs?caller=eve", key=new))[0] == 200, "its own name"
        _, boss = await gateway.send("POST", "/v1/keys", {"name": "boss", "admin": True}, key=OPS)
        status, said = await gateway.send("DELETE", "/v1/keys/boss", key=boss["key"])
        assert (status, said["error"]["code"]) == (409, "key_in_use")
        assert b'holodeck_runs_total{caller="key:eve",' in (await gateway.send("GET", "/metrics", key=OPS))[1]

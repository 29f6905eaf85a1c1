"""An operator makes, replaces and revokes keys over HTTP; they are in the gateway's file and in force at once."""

from __future__ import annotations

from pathlib import Path

from async_tests import async_test
from gateway.config_entries import ALICE, ASK, BOB
from gateway.running_gateway import run_gateway

from holodeck.testing import ScriptedModel, say

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
async def test_only_operators_may_see_and_change_keys(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB], admins=[OPS]) as gateway:
        for method, path, body in (
            ("GET", "/v1/keys", None),
            ("POST", "/v1/keys", {"name": "mallory", "admin": True}),
            ("POST", "/v1/keys/rotate", {"name": OPS}),
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
        assert len(before["settings"]["keys"][0]["hash"]) < 20
        assert not await gateway.reload(modles=[])
        _, after = await gateway.send("GET", "/v1/config", key=OPS)
        assert [(each["key"], each["severity"]) for each in after["problems"]] == [("modles", "error")]
        assert after["settings"] == before["settings"], "what runs is what was read before"
        status, said = await gateway.send("POST", "/v1/keys", {"name": "erin"}, key=OPS)
        assert (status, said["error"]["code"]) == (409, "not_applied")

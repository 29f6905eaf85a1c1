"""Operators pause callers of every kind, export what they have stored, and erase it, at every gateway."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import ALICE, ASK, BOB, wait_asked
from gateway.identity_provider import issuing
from gateway.running_gateway import RunningGateway, parse_events, run_gateway
from gateway.test_keys_route import OPS, make
from gateway.test_shared_keys import shared

from holodeck.testing import ScriptedModel, say, wait

__all__ = ["shared"]


def path_of(caller_id: str, action: str = "") -> str:
    return f"/v1/callers/{quote(caller_id)}{action}"


async def find_status(gateway: RunningGateway, key: str) -> tuple[int, str | None]:
    status, said = await gateway.send("POST", "/v1/responses", ASK, key=key)
    return status, (said.get("error") or {}).get("code")


async def wait_for(gateway: RunningGateway, key: str, expected: tuple[int, str | None]) -> None:
    """Wait until a gateway answers the caller like this, which another one has decided."""
    while await find_status(gateway, key) != expected:
        pass


@async_test(60)
async def test_a_paused_caller_is_refused_at_every_gateway_whatever_its_credentials(
    tmp_path: Path, shared: dict[str, Any]
) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    model = ScriptedModel(lambda _: say("Hi."))
    async with (
        issuing() as issuer,
        run_gateway(tmp_path / "one", model, jwt=issuer.config, keys=[ALICE], admins=[OPS], **shared) as one,
        run_gateway(tmp_path / "other", model, jwt=issuer.config, keys=[ALICE], admins=[OPS], **shared) as other,
    ):
        stored = await make(one, "carol")
        await wait_for(other, stored, (200, None))
        _, listed = await one.send("GET", "/v1/keys?text=carol", key=OPS)
        [carol] = listed["data"]
        token = issuer.token_with(sub="team/anna|1")
        for caller_id, key in ((f"key:{ALICE}", ALICE), (carol["caller_id"], stored), ("jwt:team/anna|1", token)):
            assert await find_status(one, key) == (200, None)
            status, said = await one.send("POST", path_of(caller_id, "/pause"), {}, key=OPS)
            assert (status, said["id"], said["paused"], said["changed_by"]) == (200, caller_id, True, f"key:{OPS}")
            assert await find_status(one, key) == (401, "caller_paused"), "at once"
            await wait_for(other, key, (401, "caller_paused"))
            _, found = await other.send("GET", path_of(caller_id), key=OPS)
            assert found["paused"] is True
            status, said = await other.send("POST", path_of(caller_id, "/resume"), {}, key=OPS)
            assert (status, said["paused"]) == (200, False)
            assert await find_status(other, key) == (200, None)
            await wait_for(one, key, (200, None))
        # By the name of a key, as everywhere. A name that no key has is a mistake.
        _, said = await one.send("POST", path_of("carol", "/pause"), {}, key=OPS)
        assert said["id"] == carol["caller_id"]
        assert (await one.send("POST", path_of("carrol", "/pause"), {}, key=OPS))[0] == 404


@async_test(60)
async def test_pausing_a_caller_ends_what_runs_for_it_and_nothing_else(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel(lambda _: [say("First."), wait(go), say(" Last.")])
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB], admins=[OPS]) as gateway:
        _, begun = await gateway.send("POST", "/v1/responses", ASK | {"background": True}, key=ALICE)
        session, other = await gateway.http_client(ALICE), await gateway.http_client(BOB)
        async with (
            session.post("/v1/responses", data=orjson.dumps(ASK | {"stream": True})) as stream,
            other.post("/v1/responses", data=orjson.dumps(ASK | {"stream": True})) as kept,
        ):
            await wait_asked(gateway, 3)
            assert (await gateway.send("POST", path_of(ALICE, "/pause"), {}, key=OPS))[0] == 200
            assert parse_events(await stream.text())[-1]["error"]["code"] == "key_revoked"
            go.set()
            assert parse_events(await kept.text())[-1]["type"] == "response.completed"
        status = "in_progress"
        while status in ("queued", "in_progress"):
            _, run = await gateway.send("GET", f"/v1/runs/{begun['id']}", key=OPS)
            status = run["status"]
        assert status == "cancelled"
        assert (await gateway.send("GET", f"/v1/runs/{begun['id']}", key=ALICE))[0] == 401


@async_test(60)
async def test_a_pause_outlives_the_gateway(tmp_path: Path) -> None:
    for expected in ((200, None), (401, "caller_paused")):
        model = ScriptedModel(lambda _: say("Hi."))
        async with run_gateway(tmp_path, model, keys=[ALICE], admins=[OPS]) as gateway:
            assert await find_status(gateway, ALICE) == expected
            await gateway.send("POST", path_of(ALICE, "/pause"), {}, key=OPS)


@pytest.mark.parametrize(("method", "action"), [("POST", "/pause"), ("POST", "/resume")])
@async_test
async def test_nobody_pauses_the_caller_of_the_request_and_only_operators_pause_others(
    tmp_path: Path, method: str, action: str
) -> None:
    async with run_gateway(tmp_path, keys=[ALICE], admins=[OPS]) as gateway:
        viewer = await make(gateway, "viewer", role="viewer")
        for key, expected in ((ALICE, 403), (viewer, 403), ("hd-nobody", 401)):
            assert (await gateway.send(method, path_of(BOB, action), {}, key=key))[0] == expected
        status, said = await gateway.send(method, path_of(OPS, action), {}, key=OPS)
        assert (status, said["error"]["code"]) == (409, "key_in_use")

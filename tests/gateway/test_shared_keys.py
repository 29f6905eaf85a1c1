"""Keys in the store are those of every gateway: made, changed and revoked at one, in force at the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import ASK, wait_asked
from gateway.running_gateway import RunningGateway, parse_events, run_gateway
from gateway.test_keys_route import OPS, make
from storage.postgres_server import PostgresServer
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from holodeck.gateway.auth.callers import Callers
from holodeck.gateway.auth.stored_keys import StoredKeys
from holodeck.lib.errors import StorageError
from holodeck.storage.factory import open_store
from holodeck.testing import ScriptedModel, say, wait
from holodeck.testing.model.script import Turn


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Options of gateways with one storage."""
    if request.param == "sqlite":
        return {"storage": {"url": f"sqlite:///{tmp_path}/shared.db"}}
    server: PostgresServer = request.getfixturevalue("postgres")
    return {"storage": {"url": "${DATABASE_URL}"}, "environ": {"DATABASE_URL": server.new_database()}}


@asynccontextmanager
async def two_gateways(
    folder: Path, shared: dict[str, Any], turn: Turn | None = None
) -> AsyncIterator[tuple[RunningGateway, RunningGateway]]:
    """Two gateways with the same storage, and a file each."""
    for name in ("one", "other"):
        (folder / name).mkdir()
    model = ScriptedModel(lambda _: turn or [say("Hi.")])
    async with (
        run_gateway(folder / "one", model, admins=[OPS], **shared) as one,
        run_gateway(folder / "other", model, admins=[OPS], **shared) as other,
    ):
        yield one, other


async def change(one: RunningGateway, other: RunningGateway, method: str, path: str, body: Any = None) -> Any:
    """Change a key at one gateway, and wait until the other knows it."""
    known = asyncio.Event()
    other.service.stored_keys.add_change_listener(lambda _: known.set())
    status, said = await one.send(method, path, body, key=OPS)
    assert status == 200, said
    await known.wait()
    return said


@async_test(60)
async def test_what_is_changed_at_one_gateway_is_in_force_at_the_other(tmp_path: Path, shared: dict[str, Any]) -> None:
    async with two_gateways(tmp_path, shared) as (one, other):

        async def find_status(key: str) -> tuple[int, str | None]:
            status, said = await other.send("POST", "/v1/responses", ASK, key=key)
            return status, (said.get("error") or {}).get("code")

        made = await change(one, other, "POST", "/v1/keys", {"name": "alice"})
        assert await find_status(made["key"]) == (200, None)
        _, listed = await other.send("GET", "/v1/keys?text=alice", key=OPS)
        assert [(each["name"], each["id"], each["made_by"]) for each in listed["data"]] == [
            ("alice", made["id"], f"key:{OPS}")
        ]
        for settings, expected in (
            ({"allow": {"models": ["x"]}}, (404, "model_not_found")),
            ({"allow": None, "paused": True}, (401, "key_paused")),
            ({"paused": None, "limits": {"requests_per_minute": 1}}, (200, None)),
            ({"limits": {"requests_per_minute": 1}, "expires": "2020-01-01T00:00:00Z"}, (401, "key_expired")),
            ({"limits": None, "expires": None}, (200, None)),
        ):
            await change(one, other, "POST", "/v1/keys/update", {"name": "alice", **settings})
            assert await find_status(made["key"]) == expected, settings
        rotated = await change(one, other, "POST", "/v1/keys/rotate", {"name": "alice"})
        assert await find_status(made["key"]) == (401, "invalid_api_key")
        assert await find_status(rotated["key"]) == (200, None)
        # The other way, and a key that is made anew under its name.
        await change(other, one, "DELETE", "/v1/keys/alice")
        again = await change(one, other, "POST", "/v1/keys", {"name": "alice"})
        assert again["id"] != made["id"]
        assert await find_status(rotated["key"]) == (401, "invalid_api_key")
        assert await find_status(again["key"]) == (200, None)


@async_test(60)
async def test_what_is_open_at_the_other_gateway_ends_with_the_key(tmp_path: Path, shared: dict[str, Any]) -> None:
    go = asyncio.Event()
    turn: Turn = [say("First."), wait(go), say(" Last.")]
    async with two_gateways(tmp_path, shared, turn) as (one, other):
        made = await change(one, other, "POST", "/v1/keys", {"name": "alice"})
        key, headers = made["key"], {"authorization": f"Bearer {made['key']}"}
        session = await other.http_client(key)
        url = other.url.replace("http", "ws", 1) + "/v1/responses"
        _, background = await other.send("POST", "/v1/responses", ASK | {"background": True}, key=key)
        async with (
            connect(url, additional_headers=headers) as socket,
            session.post("/v1/responses", data=orjson.dumps(ASK | {"stream": True})) as stream,
        ):
            await wait_asked(other, 2)
            await change(one, other, "DELETE", "/v1/keys/alice")
            assert parse_events(await stream.text())[-1]["error"]["code"] == "key_revoked"
            assert orjson.loads(await socket.recv())["error"]["code"] == "key_revoked"
            with pytest.raises(ConnectionClosed):
                await socket.recv()
        assert (await session.get("/v1/models")).status == 401
        status = "in_progress"
        while status in ("queued", "in_progress"):
            _, run = await one.send("GET", f"/v1/runs/{background['id']}", key=OPS)
            status = run["status"]
        assert status == "cancelled"
        go.set()


@async_test(60)
async def test_an_operator_cancels_the_run_of_any_caller_at_any_gateway(tmp_path: Path, shared: dict[str, Any]) -> None:
    turn: Turn = [say("First."), wait(asyncio.Event())]
    async with two_gateways(tmp_path, shared, turn) as (one, other):
        alice = (await change(one, other, "POST", "/v1/keys", {"name": "alice"}))["key"]
        _, begun = await other.send("POST", "/v1/responses", ASK | {"background": True}, key=alice)
        path = f"/v1/runs/{begun['id']}"
        bob = (await change(one, other, "POST", "/v1/keys", {"name": "bob"}))["key"]
        assert (await one.send("POST", f"{path}/cancel", {}, key=bob))[0] == 404
        assert (await one.send("POST", f"{path}/cancel", {}, key=OPS))[0] == 200
        status = "in_progress"
        while status != "cancelled":
            _, run = await one.send("GET", path, key=OPS)
            status = run["status"]
        assert (await other.send("POST", f"{path}/cancel", {}, key=OPS))[1]["status"] == "cancelled", "idempotent"
        # One that a request waits for, at its own gateway.
        waiting = asyncio.create_task(other.send("POST", "/v1/responses", ASK, key=alice))
        await wait_asked(other, 2)
        _, runs = await other.send("GET", "/v1/runs?status=in_progress", key=OPS)
        _, cancelled = await other.send("POST", f"/v1/runs/{runs['data'][0]['id']}/cancel", {}, key=OPS)
        assert cancelled["status"] == "cancelled"
        assert (await waiting)[1]["status"] == "cancelled"


@async_test(60)
async def test_a_file_without_keys_does_not_open_a_store_with_keys(tmp_path: Path) -> None:
    storage: dict[str, Any] = {"storage": {"url": f"sqlite:///{tmp_path}/shared.db"}}
    async with run_gateway(tmp_path, admins=[OPS], **storage) as gateway:
        await make(gateway, "alice")
    with pytest.raises(Exception, match="this gateway had callers that authenticate"):
        async with run_gateway(tmp_path, **storage):
            pass


@async_test
async def test_keys_are_refused_while_it_is_not_known_which_are_in_force(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/keys.db", folder=tmp_path)
    entry = {"name": "alice", "id": "abcdefgh", "hash": f"sha256:{'0' * 64}"}
    try:
        assert await store.caller_keys.add_key("alice", orjson.dumps(entry), "key:ops")
        keys = StoredKeys(store.caller_keys, known_seconds=0.0)
        callers = Callers([keys])
        refused = {"authorization": "Bearer hd-wrong"}
        assert await callers.explain_refusal(refused) == "unknown", "before the first answer"
        await keys.refresh()
        assert await callers.explain_refusal(refused) is None
        assert keys.find_caller("key:alice#abcdefgh", "", {}) is not None
        keys.refuse_unknown()
        assert await callers.explain_refusal(refused) == "unknown"
        with pytest.raises(StorageError):
            # A response that goes on waits: it is not known whether its caller may.
            keys.find_caller("key:alice#abcdefgh", "", {})
        await keys.refresh()
        assert await callers.explain_refusal(refused) is None
    finally:
        await store.close()

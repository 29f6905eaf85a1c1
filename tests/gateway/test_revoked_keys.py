"""A key that is withdrawn or replaced stops at once, with words, and hits no other caller."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import ALICE, ASK, BOB, keys, wait_asked
from gateway.gateway_process import GatewayProcess, run_gateway_process, write_gateway_file
from gateway.identity_provider import issuing
from gateway.running_gateway import MODEL, RunningGateway, parse_events, run_gateway
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from holodeck.gateway.auth.callers import RevokedCallers, hash_key
from holodeck.testing import ScriptedModel, say, wait

NEW_KEY = "hd-alice-2"
ALICE_WITH_NEW_KEY = [{"name": ALICE, "hash": hash_key(NEW_KEY)}]
REVOKED = "Your key was withdrawn or replaced while this request was being answered. Use your new key."


def waiting_model(go: asyncio.Event) -> ScriptedModel:
    """A model that begins to answer and goes on once it may."""
    return ScriptedModel(lambda _: [say("First."), wait(go), say(" Last.")])


async def read_whole(gateway: RunningGateway, path: str, body: dict[str, Any], key: str) -> tuple[int, str]:
    session = await gateway.http_client(key)
    async with session.post(path, data=orjson.dumps(body), headers={"x-api-key": key}) as answer:
        return answer.status, (await answer.read()).decode()


@pytest.mark.proves("D-39")
@pytest.mark.parametrize("change", [keys(BOB), [*ALICE_WITH_NEW_KEY, *keys(BOB)]], ids=["removed", "replaced"])
@async_test
async def test_requests_with_a_withdrawn_key_are_refused_and_others_are_not(
    tmp_path: Path, change: list[dict[str, Any]]
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=[ALICE, BOB]) as gateway:
        assert (await gateway.send("POST", "/v1/responses", ASK, key=ALICE))[0] == 200
        assert await gateway.reload(keys=change)
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=ALICE)
        assert (status, said["error"]["code"]) == (401, "invalid_api_key")
        assert (await gateway.send("POST", "/v1/responses", ASK, key=BOB))[0] == 200
        accepted = (await gateway.send("POST", "/v1/responses", ASK, key=NEW_KEY))[0] == 200
        assert accepted is (len(change) == 2)


CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "stream": True}


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(
    ("path", "body", "last"),
    [
        (
            "/v1/responses",
            ASK | {"stream": True},
            lambda text: parse_events(text)[-1]["error"],
        ),
        (
            "/v1/chat/completions",
            CHAT,
            lambda text: orjson.loads(text.split("\n\n")[-3].removeprefix("data: "))["error"],
        ),
        (
            "/v1/messages",
            CHAT | {"max_tokens": 100},
            lambda text: orjson.loads(text.split("\n\n")[-2].split("\n")[1].removeprefix("data: "))["error"],
        ),
    ],
    ids=["responses", "chat", "messages"],
)
@async_test
async def test_open_streams_end_with_an_error_in_the_form_of_their_api(
    tmp_path: Path, path: str, body: dict[str, Any], last: Callable[[str], dict[str, Any]]
) -> None:
    go = asyncio.Event()
    async with run_gateway(tmp_path, waiting_model(go), keys=[ALICE, BOB]) as gateway:
        revoked = asyncio.create_task(read_whole(gateway, path, body, ALICE))
        other = asyncio.create_task(read_whole(gateway, path, body, BOB))
        await wait_asked(gateway, 2)
        assert await gateway.reload(keys=keys(BOB))
        status, text = await revoked
        assert status == 200
        assert last(text)["message"] == REVOKED
        go.set()
        status, text = await other
        assert status == 200
        assert " Last." in text
        assert REVOKED not in text


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
@async_test
async def test_waiting_requests_are_answered_with_the_reason(tmp_path: Path, path: str) -> None:
    go = asyncio.Event()
    body = ASK if path == "/v1/responses" else CHAT | {"stream": False, "max_tokens": 100}
    async with run_gateway(tmp_path, waiting_model(go), keys=[ALICE, BOB]) as gateway:
        revoked = asyncio.create_task(read_whole(gateway, path, body, ALICE))
        await wait_asked(gateway, 1)
        assert await gateway.reload(keys=[*ALICE_WITH_NEW_KEY, *keys(BOB)])
        status, text = await revoked
        assert (status, orjson.loads(text)["error"]["message"]) == (401, REVOKED)


@pytest.mark.proves("D-39")
@async_test
async def test_sockets_are_closed_with_the_reason_whether_they_are_idle_or_answer(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with run_gateway(tmp_path, waiting_model(go), keys=[ALICE, BOB]) as gateway:
        address = gateway.url.replace("http", "ws", 1) + "/v1/responses"

        def open_socket(key: str) -> connect:
            return connect(address, additional_headers={"authorization": f"Bearer {key}"})

        message = orjson.dumps({"type": "response.create", **ASK}).decode()
        async with open_socket(ALICE) as idle, open_socket(ALICE) as busy, open_socket(BOB) as other:
            await busy.send(message)
            await wait_asked(gateway, 1)
            assert await gateway.reload(keys=keys(BOB))
            for socket in (idle, busy):
                messages = [orjson.loads(each) async for each in _messages(socket)]
                assert (messages[-1]["type"], messages[-1]["error"]["message"]) == ("error", REVOKED)
                assert socket.close_code == 1008
            go.set()
            await other.send(message)
            while (said := orjson.loads(await other.recv()))["type"] != "response.completed":
                assert said["type"] != "error"


async def _messages(socket: Any) -> AsyncIterator[str]:
    try:
        while True:
            yield await socket.recv()
    except ConnectionClosed:
        return


@async_test
async def test_background_responses_are_cancelled_and_those_of_a_new_key_are_not(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with run_gateway(tmp_path, waiting_model(go), keys=[ALICE, BOB]) as gateway:
        begun = {key: (await gateway.send("POST", "/v1/responses", ASK | {"background": True}, key=key))[1]["id"]
                 for key in (ALICE, BOB)}  # fmt: skip
        await wait_asked(gateway, 2)
        assert await gateway.reload(keys=[*ALICE_WITH_NEW_KEY, *keys(BOB)])
        _, later = await gateway.send("POST", "/v1/responses", ASK | {"background": True}, key=NEW_KEY)
        await wait_asked(gateway, 3)
        go.set()
        ended = {
            "old key": await wait_ended(gateway, begun[ALICE], NEW_KEY),
            "new key": await wait_ended(gateway, later["id"], NEW_KEY),
            "other": await wait_ended(gateway, begun[BOB], BOB),
        }
        assert ended == {"old key": "cancelled", "new key": "completed", "other": "completed"}


async def wait_ended(gateway: RunningGateway, response_id: str, key: str) -> str:
    while True:
        _, found = await gateway.send("GET", f"/v1/responses/{response_id}", key=key)
        if found["status"] not in ("queued", "in_progress"):
            return str(found["status"])
        await asyncio.sleep(0.01)


@async_test
async def test_a_followed_stream_of_a_background_response_ends_too(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, waiting_model(asyncio.Event()), keys=[ALICE]) as gateway:
        _, begun = await gateway.send("POST", "/v1/responses", ASK | {"background": True}, key=ALICE)
        session = await gateway.http_client(ALICE)
        async with session.get(f"/v1/responses/{begun['id']}?stream=true") as answer:
            await wait_asked(gateway, 1)
            assert await gateway.reload(keys=keys(BOB))
            events = parse_events((await answer.read()).decode())
        assert events[-1]["type"] in ("error", "response.incomplete")


@async_test
async def test_a_rotated_key_ends_nothing_until_its_old_hash_is_taken_away(tmp_path: Path) -> None:
    rotated = {
        **ALICE_WITH_NEW_KEY[0],
        "old_hash": hash_key(ALICE),
        "old_hash_expires": "2999-01-01T00:00:00Z",
    }
    async with run_gateway(tmp_path, waiting_model(asyncio.Event()), keys=[ALICE]) as gateway:
        running = asyncio.create_task(gateway.stream("/v1/responses", ASK | {"stream": True}, key=ALICE))
        await wait_asked(gateway, 1)
        assert await gateway.reload(keys=[rotated])
        for key in (ALICE, NEW_KEY):
            assert (await gateway.send("GET", "/v1/models", key=key))[0] == 200
        assert not running.done()
        assert await gateway.reload(keys=ALICE_WITH_NEW_KEY)
        assert (await running)[-1]["error"]["code"] == "key_revoked"


@async_test
async def test_the_first_key_ends_what_was_open_without_one(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, waiting_model(asyncio.Event())) as gateway:
        running = asyncio.create_task(gateway.stream("/v1/responses", ASK | {"stream": True}))
        await wait_asked(gateway, 1)
        assert await gateway.reload(keys=keys(ALICE))
        assert (await running)[-1]["error"]["code"] == "key_revoked"
        assert (await gateway.send("GET", "/v1/models"))[0] == 401
        assert (await gateway.send("GET", "/v1/models", key=ALICE))[0] == 200


@async_test
async def test_tokens_of_an_identity_provider_that_is_removed_stop_at_once(tmp_path: Path) -> None:
    async with issuing() as issuer:
        model = waiting_model(asyncio.Event())
        async with run_gateway(tmp_path, model, jwt=issuer.config, keys=[BOB]) as gateway:
            token = issuer.token
            assert await gateway.reload(jwt=issuer.config | {"role_by_scope": {"other": "operator"}})
            running = asyncio.create_task(gateway.stream("/v1/responses", ASK | {"stream": True}, key=token))
            await wait_asked(gateway, 1)
            assert await gateway.reload(jwt=None)
            assert (await running)[-1]["error"]["code"] == "key_revoked"
            assert (await gateway.send("GET", "/v1/models", key=token))[0] == 401
            assert (await gateway.send("GET", "/v1/models", key=BOB))[0] == 200


@async_test
async def test_listeners_are_told_who_is_revoked(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, keys=[ALICE, BOB]) as gateway:
        told: list[RevokedCallers] = []
        gateway.service.callers.add_revocation_listener(told.append)
        assert await gateway.reload(keys=keys(ALICE, BOB, "hd-carol", limits={"in_flight": 3}))
        assert not told
        assert await gateway.reload(keys=[*ALICE_WITH_NEW_KEY, *keys("hd-carol")])
        [revoked] = told
        assert [f"key:{name}" in revoked for name in (ALICE, BOB, "hd-carol")] == [True, True, False]


@asynccontextmanager
async def _as_caller(served: GatewayProcess, key: str) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
    async with aiohttp.ClientSession(served.url, headers=headers) as session:
        yield session


@pytest.mark.proves("D-39")
@async_test(90)
async def test_durable_responses_of_a_withdrawn_key_are_cancelled_and_not_resumed_after_a_restart(
    tmp_path: Path,
) -> None:
    durable = {"background": {"durable": True, "at_once": 1}}
    async with ScriptedModel(lambda _: [say("First."), wait(asyncio.Event())]).serve() as model:
        file = write_gateway_file(tmp_path, model.url, keys=keys(ALICE, BOB), **durable)
        async with run_gateway_process(file) as served, _as_caller(served, ALICE) as alice:
            ids = []
            # The second one waits in the queue.
            for _ in range(2):
                async with alice.post("/v1/responses", json=ASK | {"background": True}) as answer:
                    ids.append((await answer.json())["id"])
            while not model.received:  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.02)
            write_gateway_file(tmp_path, model.url, keys=[*ALICE_WITH_NEW_KEY, *keys(BOB)], **durable)
            served.stop(signal.SIGHUP)
            async with _as_caller(served, NEW_KEY) as renewed:
                assert [await _wait_ended(renewed, each) for each in ids] == ["cancelled", "cancelled"]
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        asked = len(model.received)
        async with run_gateway_process(file) as served, _as_caller(served, NEW_KEY) as renewed:
            assert [await _wait_ended(renewed, each) for each in ids] == ["cancelled", "cancelled"]
        assert len(model.received) == asked == 1


async def _wait_ended(session: aiohttp.ClientSession, response_id: str) -> str:
    while True:
        async with session.get(f"/v1/responses/{response_id}") as answer:
            status = (await answer.json()).get("status", "")
        if answer.status == 200 and status not in ("queued", "in_progress"):
            return str(status)
        await asyncio.sleep(0.02)

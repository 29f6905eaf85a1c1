"""The log says why a request was refused: code, parameter, status, route, and who or where it came from."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from async_tests import async_test
from durable.crash_cases import wait_model_requests
from gateway.gateway_process import GatewayProcess, run_gateway_process, wait_logged, write_gateway_file
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from holodeck.gateway.auth.callers import hash_key
from holodeck.gateway.http.observation import MAX_PARAM_CHARS
from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import wait

SECONDS = 90.0
TEAM = {"name": "team", "hash": hash_key("hd-team")}
AUTHORIZED = {"authorization": "Bearer hd-team"}
NO_MODEL = "http://127.0.0.1:9/v1"


async def _end(served: GatewayProcess) -> list[dict[str, Any]]:
    """End the gateway and return its refusals."""
    served.stop()
    assert await served.wait_exit() == 0
    return _refusals(served.stderr_lines)


def _refusals(lines: Sequence[str]) -> list[dict[str, Any]]:
    entries = [orjson.loads(line) for line in lines]
    found = [entry for entry in entries if entry.pop("event") == "request.refused"]
    for entry in found:
        assert entry.pop("time")
    return found


@async_test(SECONDS)
async def test_a_refused_request_is_logged_with_its_reason_and_nothing_of_its_body(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NO_MODEL, keys=[TEAM])
    async with run_gateway_process(file, "--log-format=json") as served:
        body = {"model": "demo", "input": "grapefruit", "temperature": "pomegranate"}
        headers = {**AUTHORIZED, "x-request-id": "edge-1"}
        status, answer, _ = await served.send("POST", "/v1/responses", body, headers)
        assert (status, answer["error"]["param"]) == (400, "temperature")
        refusals = await _end(served)
    assert refusals == [
        {
            "level": "info",
            "code": answer["error"]["code"],
            "param": "temperature",
            "status": 400,
            "route": "/v1/responses",
            "caller": "key:team",
            "request": "edge-1",
        }
    ]
    assert "grapefruit" not in "".join(served.stderr_lines)
    assert "pomegranate" not in "".join(served.stderr_lines)


@async_test(SECONDS)
async def test_refused_credentials_are_warnings_with_the_address(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NO_MODEL, keys=[TEAM])
    async with run_gateway_process(file, "--log-format=json") as served:
        spoofed = {"authorization": "Bearer hd-guessed", "x-forwarded-for": "203.0.113.9"}
        assert (await served.send("GET", "/v1/models", headers=spoofed))[0] == 401
        assert (await served.send("GET", "/metrics", headers=AUTHORIZED))[0] == 403
        refusals = await _end(served)
    first, second = refusals
    common = {"level": "warning", "address": "127.0.0.1"}
    assert first.items() >= {**common, "status": 401, "code": "invalid_api_key", "route": "/v1/models"}.items()
    assert "caller" not in first
    assert second.items() >= {**common, "status": 403, "code": "forbidden", "caller": "key:team"}.items()
    assert "hd-guessed" not in "".join(served.stderr_lines)


@pytest.mark.parametrize(
    ("trusted", "forwarded", "address"),
    [
        (["127.0.0.1"], "203.0.113.9", "203.0.113.9"),
        (["127.0.0.0/8", "10.0.0.0/8"], "198.51.100.1, 203.0.113.9, 10.1.2.3", "203.0.113.9"),
        (["10.0.0.0/8"], "203.0.113.9", "127.0.0.1"),
        (["127.0.0.1"], "not an address", "127.0.0.1"),
        (["127.0.0.1"], "", "127.0.0.1"),
    ],
)
@async_test(SECONDS)
async def test_a_trusted_proxy_names_the_address_of_its_client(
    tmp_path: Path, trusted: list[str], forwarded: str, address: str
) -> None:
    listen = {"port": 0, "trusted_proxies": trusted}
    audit = {"file": "audit.jsonl"}
    file = write_gateway_file(tmp_path, NO_MODEL, keys=[TEAM], listen=listen, audit=audit)
    async with run_gateway_process(file, "--log-format=json") as served:
        assert (await served.send("GET", "/v1/models", headers={"x-forwarded-for": forwarded}))[0] == 401
        (refusal,) = await _end(served)
    assert refusal["address"] == address
    entries = [orjson.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [entry["address"] for entry in entries if entry["event"] == "auth_refused"] == [address]


@async_test(SECONDS)
async def test_a_failure_of_the_gateway_is_an_error_of_the_log(tmp_path: Path) -> None:
    database = tmp_path / "holodeck.db"
    async with ScriptedModel(lambda _: say("Hi.")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with run_gateway_process(file, "--log-format=json") as served:
            assert (await served.create_response())[0] == 200
            database.unlink()
            await wait_logged(served, "storage.file_lost")
            status, answer, _ = await served.create_response()
            assert (status, answer["error"]["code"]) == (503, "storage_error")
            refusals = await _end(served)
    wanted = {"level": "error", "status": 503, "code": "storage_error", "route": "/v1/responses", "caller": "local"}
    assert wanted.items() <= refusals[-1].items()


@async_test(SECONDS)
async def test_the_path_of_a_parameter_is_cut(tmp_path: Path) -> None:
    async with run_gateway_process(write_gateway_file(tmp_path, NO_MODEL), "--log-format=json") as served:
        await served.send("POST", "/v1/responses", {"model": "demo", "input": "x", "y" * 5000: 1})
        (refusal,) = await _end(served)
    assert refusal["param"].startswith("yyy")
    assert len(refusal["param"]) <= MAX_PARAM_CHARS


@async_test(SECONDS)
async def test_messages_and_handshakes_of_websockets_are_refusals_too(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NO_MODEL, keys=[TEAM])
    async with run_gateway_process(file, "--log-format=json") as served:
        url = served.url.replace("http", "ws", 1) + "/v1/responses"
        with pytest.raises(InvalidStatus) as refused:
            await connect(url)
        async with connect(url, additional_headers=AUTHORIZED) as socket:
            await socket.send(orjson.dumps({"type": "response.create", "model": "none", "input": "x"}).decode())
            assert orjson.loads(await socket.recv())["error"]["code"] == "model_not_found"
        refusals = await _end(served)
    handshake, message = refusals
    assert handshake.items() >= {"status": 401, "code": "invalid_api_key", "address": "127.0.0.1"}.items()
    assert handshake["request"] == refused.value.response.headers["x-request-id"]
    wanted = {"status": 404, "code": "model_not_found", "caller": "key:team", "route": "/v1/responses"}
    assert message.items() >= wanted.items()


@async_test(SECONDS)
async def test_what_is_no_http_is_a_refusal_and_a_client_that_leaves_is_none(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: wait(asyncio.Event())).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with run_gateway_process(file, "--log-format=json") as served:
            address = urlsplit(served.url)
            reader, writer = await asyncio.open_connection(address.hostname, address.port)
            writer.write(b"NONSENSE\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 400 ")
            writer.close()
            asking = asyncio.create_task(served.create_response())
            await wait_model_requests(scripted, 1)
            asking.cancel()
            await wait_logged(served, '"status":499')
            (refusal,) = await _end(served)
    assert refusal == {"level": "info", "code": "invalid_http", "status": 400, "route": "unknown"}

"""Requests of web pages to a gateway without keys: refused unless the origin is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest
from async_tests import async_test
from gateway.movable_clock import advance_clock, with_movable_clock
from gateway.raw_websocket import RawSocket, open_connection, upgrade_request
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from loopback import wait_read

from holodeck.testing import ScriptedModel, say

BODY = orjson.dumps({"model": MODEL, "input": "Hello"})
JSON = "content-type: application/json"


async def post(gateway: RunningGateway, *headers: str, body: bytes = BODY) -> int:
    """The status of a request with exactly these headers and the length of its body."""
    client = await open_connection(gateway.url)
    lines = ("POST /v1/responses HTTP/1.1", *headers, f"content-length: {len(body)}")
    await client.send("".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body)
    status = int((await client.read_head()).split(b" ")[1])
    client.abort()
    return status


async def upgrade(gateway: RunningGateway, *headers: str) -> int:
    """The status of a request for a WebSocket with these headers."""
    client = await open_connection(gateway.url)
    await client.send(upgrade_request(*headers).replace(b"host: 127.0.0.1\r\n", b""))
    status = int((await client.read_head()).split(b" ")[1])
    client.abort()
    return status


def own(gateway: RunningGateway) -> str:
    return urlsplit(gateway.url).netloc


@pytest.mark.proves("D-29")
@pytest.mark.parametrize(
    ("host", "origin", "more", "is_allowed"),
    [
        ("{own}", "http://{own}", {}, True),
        ("localhost", "http://localhost", {}, True),
        ("localhost:80", "http://localhost", {}, True),
        ("[::1]:8080", "http://[::1]:8080", {}, True),
        ("{own}", "http://127.0.0.1:1", {}, False),
        ("{own}", "http://127.0.0.1", {}, False),
        ("{own}", "https://{own}", {}, False),
        ("{own}", "http://localhost:8080", {}, False),
        ("{own}", "http://x@{own}", {}, False),
        ("{own}", "http://{own}/", {}, False),
        ("{own}", "ftp://{own}", {}, False),
        ("{own}", "null", {}, False),
        ("{own}", "", {}, False),
        ("{own}", "http://127.0.0.1:99999999", {}, False),
        ("localhost", "https://localhost", {}, False),
        ("gw.example", "https://gw.example", {"listen": {"port": 0, "allowed_hosts": ["gw.example"]}}, True),
        ("gw.example:8443", "https://gw.example:8443", {"listen": {"port": 0, "allowed_hosts": ["gw.example"]}}, True),
        ("gw.example", "https://gw.example:8443", {"listen": {"port": 0, "allowed_hosts": ["gw.example"]}}, False),
        ("gw.example:8443", "https://gw.example", {"listen": {"port": 0, "allowed_hosts": ["gw.example"]}}, False),
        ("{own}", "http://127.0.0.1:1", {"cors_origins": ["http://127.0.0.1:1"]}, True),
    ],
)
@async_test(30)
async def test_only_a_page_of_the_same_or_an_allowed_origin_may_send_requests(
    tmp_path: Path, host: str, origin: str, more: Mapping[str, Any], is_allowed: bool
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), **more) as gateway:
        headers = (f"host: {host.format(own=own(gateway))}", f"origin: {origin.format(own=own(gateway))}")
        assert await post(gateway, *headers, JSON) == (200 if is_allowed else 403)
        assert await upgrade(gateway, *headers) == (101 if is_allowed else 403)
        assert len(gateway.model_requests) == is_allowed


@pytest.mark.proves("D-29")
@pytest.mark.parametrize("host", ["[::1].evil.example", "[::1]evil.example:80", "127.1", "evil.example", ""])
@async_test(30)
async def test_a_host_header_that_only_resembles_a_local_address_is_refused(tmp_path: Path, host: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        assert await post(gateway, f"host: {host}", JSON) == 421
        assert not gateway.model_requests


@pytest.mark.proves("D-29")
@async_test(30)
async def test_a_body_without_a_json_content_type_is_refused(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi."))) as gateway:
        host = f"host: {own(gateway)}"
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", ""):
            assert await post(gateway, host, f"content-type: {kind}") == 415, kind
        assert await post(gateway, host) == 415
        assert not gateway.model_requests
        for kind in ("application/json", "Application/JSON; charset=utf-8"):
            assert await post(gateway, host, f"content-type: {kind}") == 200, kind
        async with (await gateway.http_client()).post(
            "/v1/responses", data=BODY, headers={"content-type": "text/plain"}
        ) as no:
            assert (no.status, no.headers["accept"]) == (415, "application/json")
            assert (await no.json())["error"]["code"] == "unsupported_media_type"


@pytest.mark.proves("D-29")
@pytest.mark.parametrize(
    "twice",
    [
        "host: {own}",
        "host: evil.example",
        "origin: http://{own}",
        "authorization: Bearer x",
        "api-key: x",
        JSON,
        "content-length: 5",
    ],
)
@async_test(30)
async def test_a_duplicate_security_header_is_refused(tmp_path: Path, twice: str) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        usual = (f"host: {own(gateway)}", f"origin: http://{own(gateway)}", "authorization: Bearer a", "api-key: a")
        assert await post(gateway, *usual, JSON, twice.format(own=own(gateway))) == 400
        if twice != JSON:
            assert await upgrade(gateway, *usual, *("content-length: 5",) * 2, twice.format(own=own(gateway))) == 400
        assert not gateway.model_requests
        assert await post(gateway, *usual, JSON, "x-other: a", "x-other: b") == 200


async def _trickle(client: RawSocket, chunks: list[bytes]) -> None:
    """Send a chunk every ten seconds."""
    for chunk in chunks:
        client.writer.write(chunk)
        await wait_read(client.writer)
        await advance_clock(10)


def _head(size: str) -> bytes:
    return f"POST /v1/responses HTTP/1.1\r\nhost: 127.0.0.1\r\n{JSON}\r\n{size}\r\n\r\n".encode()


@pytest.mark.parametrize("is_chunked", [False, True])
@with_movable_clock
async def test_a_body_sent_byte_by_byte_is_refused_long_before_its_end(tmp_path: Path, is_chunked: bool) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        client = await open_connection(gateway.url)
        await client.send(_head("transfer-encoding: chunked" if is_chunked else "content-length: 100"))
        await _trickle(client, [b"1\r\nx\r\n" if is_chunked else b"x"] * 4)
        assert (await client.read_head()).startswith(b"HTTP/1.1 408")
        client.abort()


@with_movable_clock
async def test_a_large_body_over_a_slow_connection_is_read_to_its_end(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        body = orjson.dumps({"model": MODEL, "input": "x" * 250_000})
        size = len(body) // 20
        client = await open_connection(gateway.url)
        await client.send(_head(f"content-length: {len(body)}"))
        await _trickle(client, [body[at : at + size] for at in range(0, len(body), size)])
        assert (await client.read_head()).startswith(b"HTTP/1.1 200")
        client.abort()

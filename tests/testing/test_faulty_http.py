"""Each fault of HTTP, seen with a plain HTTP client: statuses, bodies, streams, sessions, redirects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from testing.raw_pipes import TIMEOUT, build_request

from holodeck.testing import ABANDONED, Era, Fault, FaultyMCPServer

both_eras = pytest.mark.parametrize("era", ["legacy", "modern"])


class RawHttp:
    """A client that knows only how to post a message."""

    def __init__(self, client: aiohttp.ClientSession, server: FaultyMCPServer, era: Era) -> None:
        self._client = client
        self.server = server
        self.era: Era = era
        self.headers: dict[str, str] = {"Accept": "application/json, text/event-stream"}

    @asynccontextmanager
    async def post(self, method: str, **params: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        headers = dict(self.headers)
        if self.era == "modern":
            headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
            headers |= {"Mcp-Name": params["name"]} if "name" in params else {}
        message = build_request(1, method, self.era, **params)
        async with self._client.post(self.server.url, json=message, headers=headers, allow_redirects=False) as answer:
            yield answer

    @asynccontextmanager
    async def call(self, tool: str = "echo", **arguments: Any) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self.post("tools/call", name=tool, arguments=arguments or {"text": "hello"}) as answer:
            yield answer

    @asynccontextmanager
    async def get(self, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
        async with self._client.get(self.server.url, headers={**self.headers, **headers}) as answer:
            yield answer

    async def begin(self) -> None:
        if self.era == "modern":
            return
        async with self.post("initialize", protocolVersion="2025-11-25", capabilities={}) as answer:
            assert answer.status == 200
            self.headers["Mcp-Session-Id"] = answer.headers["Mcp-Session-Id"]


def against(mode: Fault, era: Era, act: Callable[[RawHttp], Awaitable[None]], **options: Any) -> None:
    """Begin while the server behaves, then let it misbehave and act."""

    async def main() -> None:
        async with (
            asyncio.timeout(TIMEOUT),
            FaultyMCPServer(era=era, sse=options.pop("sse", False)) as server,
            aiohttp.ClientSession() as client,
        ):
            http = RawHttp(client, server, era)
            await http.begin()
            server.misbehave(mode, **options)
            await act(http)

    asyncio.run(main())


PAGES: list[tuple[Fault, int, str, str]] = [
    (Fault.HTTP_400, 400, "text/plain", ""),
    (Fault.HTTP_401, 401, "text/plain", "WWW-Authenticate"),
    (Fault.HTTP_403, 403, "text/plain", "WWW-Authenticate"),
    (Fault.HTTP_404, 404, "text/html", ""),
    (Fault.HTTP_405, 405, "text/plain", "Allow"),
    (Fault.HTTP_429, 429, "text/plain", "Retry-After"),
    (Fault.HTTP_500, 500, "text/plain", ""),
    (Fault.HTTP_502, 502, "text/html", ""),
    (Fault.HTTP_503, 503, "text/plain", "Retry-After"),
    (Fault.HTML, 200, "text/html", ""),
    (Fault.BAD_JSON, 200, "application/json", ""),
    (Fault.EMPTY_BODY, 200, "application/json", ""),
    (Fault.ACCEPTED, 202, "application/json", ""),
    (Fault.POST_500, 500, "text/plain", ""),
]


@both_eras
@pytest.mark.parametrize(("mode", "status", "content_type", "header"), PAGES, ids=str)
def test_a_request_is_answered_with_the_page_of_its_mode(
    mode: Fault, status: int, content_type: str, header: str, era: Era
) -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert (answer.status, answer.content_type) == (status, content_type)
            assert not header or answer.headers[header]
            with pytest.raises(ValueError):
                json.loads(await answer.text())

    against(mode, era, act)


@both_eras
def test_a_right_answer_has_the_wrong_label(era: Era) -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert answer.content_type == "application/octet-stream"
            assert "result" in json.loads(await answer.read())

    against(Fault.WRONG_CONTENT_TYPE, era, act)


@both_eras
def test_a_body_trickles_until_the_client_gives_up(era: Era) -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert await answer.content.readexactly(3) == b'{"j'
            answer.close()
        await http.server.received(ABANDONED)

    against(Fault.TRICKLE, era, act)


@both_eras
@pytest.mark.parametrize("sse", [False, True])
def test_a_body_is_cut_in_the_middle(sse: bool, era: Era) -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert answer.content_type == ("text/event-stream" if sse else "application/json")
            with pytest.raises(aiohttp.ClientPayloadError):
                await answer.read()

    against(Fault.CUT_STREAM, era, act, sse=sse)


@both_eras
def test_the_connection_is_cut_before_any_answer(era: Era) -> None:
    async def act(http: RawHttp) -> None:
        with pytest.raises(aiohttp.ClientError):
            async with http.call():
                raise AssertionError("it answered")

    against(Fault.DIES_MID_CALL, era, act)


@both_eras
def test_an_event_is_three_megabytes(era: Era) -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert answer.content_type == "text/event-stream"
            assert len(await answer.read()) > 3_000_000

    against(Fault.BIG_EVENT, era, act)


def test_a_legacy_stream_that_ends_too_soon_can_be_resumed_once() -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            event = (await answer.text()).splitlines()[0].removeprefix("id: ")
        async with http.get(**{"Last-Event-ID": event}) as stream:
            assert '"hello"' in await stream.text()

    against(Fault.STREAM_ENDS, "legacy", act)


def test_a_modern_stream_that_ends_too_soon_is_lost() -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert (answer.content_type, await answer.text()) == ("text/event-stream", "")
        async with http.get() as stream:
            assert stream.status == 405

    against(Fault.STREAM_ENDS, "modern", act)


@pytest.mark.parametrize(("mode", "status"), [(Fault.SESSION_EXPIRES_400, 400), (Fault.SESSION_EXPIRES_404, 404)])
def test_a_session_expires_and_a_new_one_works(mode: Fault, status: int) -> None:
    async def act(http: RawHttp) -> None:
        for _ in range(2):
            async with http.call() as answer:
                assert answer.status == status
        del http.headers["Mcp-Session-Id"]
        await http.begin()
        async with http.call() as answer:
            assert answer.status == 200

    against(mode, "legacy", act)


def test_the_headers_do_not_match_once() -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, -32020)
        async with http.call() as answer:
            assert answer.status == 200

    against(Fault.HEADER_MISMATCH, "modern", act)


def test_a_modern_request_with_wrong_headers_is_refused() -> None:
    async def act(http: RawHttp) -> None:
        async with http.call("regional", region="west") as answer:
            assert (answer.status, (await answer.json())["error"]["code"]) == (400, -32020)
        http.headers["Mcp-Param-Region"] = "=?base64?d2VzdA==?="
        async with http.call("regional", region="west") as answer:
            assert answer.status == 200

    against(Fault.NORMAL, "modern", act)


@both_eras
def test_a_redirect_leads_to_another_origin_that_records_requests(era: Era) -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert answer.status == 307
            location = answer.headers["Location"]
        assert location == f"http://localhost:{http.server.port}/elsewhere"
        async with aiohttp.ClientSession() as other, other.post(location):
            await http.server.received("(elsewhere)")

    against(Fault.REDIRECT_ELSEWHERE, era, act)


@both_eras
def test_a_redirect_leads_to_another_path_that_works(era: Era) -> None:
    async def act(http: RawHttp) -> None:
        async with http.call() as answer:
            assert (answer.status, answer.headers["Location"]) == (307, "/moved/mcp")
        headers = dict(http.server.calls()[0].headers)
        moved = f"http://127.0.0.1:{http.server.port}/moved/mcp"
        body = dict(http.server.calls()[0].message)
        headers.pop("content-length")
        async with aiohttp.ClientSession() as client, client.post(moved, json=body, headers=headers) as answer:
            assert answer.status == 200

    against(Fault.REDIRECT_HERE, era, act)


@both_eras
def test_a_token_is_required_and_can_change(era: Era) -> None:
    async def act(http: RawHttp) -> None:
        outcomes = []
        for token in ("wrong", "open-sesame", "newer"):
            http.headers["Authorization"] = f"Bearer {token}"
            async with http.call() as answer:
                outcomes.append(answer.status)
            http.server.token = "newer" if token == "open-sesame" else http.server.token
        assert outcomes == [401, 200, 200]
        (refused,) = await http.server.received("(unauthorized)")
        assert refused.headers["authorization"] == "Bearer wrong"

    against(Fault.REQUIRES_TOKEN, era, act)


@both_eras
def test_a_schema_refers_to_the_server_itself_which_records_requests(era: Era) -> None:
    async def act(http: RawHttp) -> None:
        async with http.post("tools/list") as answer:
            tools = (await answer.json())["result"]["tools"]
        (schema,) = [tool["outputSchema"] for tool in tools if tool["name"] == "structured"]
        async with aiohttp.ClientSession() as other, other.get(schema["$ref"]):
            await http.server.received("(schema)")

    against(Fault.REMOTE_REF, era, act)

"""A model behind the proxy that the environment names: the same answers, and a proxy that fails is named."""

from __future__ import annotations

import asyncio
import base64
import gc
import socket
import threading
import traceback
from contextlib import suppress
from urllib.parse import unquote

import pytest
from providers.certificates import Authority
from providers.model_exchange import KEY, model_at
from providers.raw_server import CHUNK, Peer, ask_text, both_loops, chat_event, close_at_end, http_answer, serve_raw

from holodeck.lib.errors import ModelError
from holodeck.lib.secret import Secret
from holodeck.providers.openai_chat import ChatCompletions
from holodeck.providers.wrappers.guarded import GuardedModel
from holodeck.providers.wrappers.retry import RetryPolicy

PLAIN, SECURE = "http://model.example/v1", "https://model.example/v1"
VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")


@pytest.fixture
def env(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without proxies, and a way to set one."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    return monkeypatch


async def hello(peer: Peer) -> None:
    while True:
        await peer.read_request()
        await peer.send(http_answer("hello"))


class Tunnel:
    """A proxy that carries every CONNECT to one port."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __call__(self, peer: Peer) -> None:
        await peer.read_head()
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        await peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
        try:
            await asyncio.gather(_carried(peer.reader, writer), _carried(reader, peer.writer))
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _carried(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(CHUNK):
            writer.write(data)
            await writer.drain()
    writer.close()


@both_loops
@pytest.mark.parametrize("form", ["http://user:pw@127.0.0.1:PORT", "127.0.0.1:PORT"])
async def test_a_request_goes_through_the_proxy(env: pytest.MonkeyPatch, form: str) -> None:
    async with serve_raw(hello) as proxy, close_at_end(model_at(PLAIN)) as model:
        env.setenv("HTTP_PROXY".lower(), form.replace("PORT", str(proxy.port)))
        assert [await ask_text(model), await ask_text(model)] == ["hello", "hello"]
        (peer,) = proxy.peers
        assert peer.heads[0].startswith("POST http://model.example/v1/chat/completions HTTP/1.1\r\n")
        assert peer.header("host") == "model.example"
        assert peer.header("authorization") == f"Bearer {KEY}"
        assert (peer.header("proxy-authorization") or "").startswith("Basic ") is ("user" in form)


@both_loops
async def test_a_request_over_tls_goes_through_a_tunnel(env: pytest.MonkeyPatch, authority: Authority) -> None:
    tls = authority.server_context("model.example")
    async with serve_raw(hello, tls=tls) as server, serve_raw(Tunnel(server.port)) as proxy:
        env.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with close_at_end(model_at(SECURE)) as model:
            assert [await ask_text(model), await ask_text(model)] == ["hello", "hello"]
        assert proxy.peers[0].heads[0].startswith("CONNECT model.example:443 HTTP/1.1\r\n")
        assert KEY not in proxy.peers[0].heads[0]
        assert server.peers[0].heads[0].startswith("POST /v1/chat/completions HTTP/1.1\r\n")


@both_loops
@pytest.mark.parametrize("url", [PLAIN, SECURE])
@pytest.mark.parametrize("login", ["us%3Aer:p%40ss", "jürgen:пароль", "only"])
async def test_every_login_of_a_proxy_is_sent_to_it_alone(env: pytest.MonkeyPatch, url: str, login: str) -> None:
    async def refusing(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
        await peer.wait_closed()

    async with serve_raw(refusing) as proxy:
        env.setenv("ALL_PROXY", f"http://{login}@127.0.0.1:{proxy.port}")
        async with close_at_end(model_at(url)) as model:
            with pytest.raises(ModelError, match="403"):
                await ask_text(model)
        sent = proxy.peers[0].header("proxy-authorization") or ""
        assert base64.b64decode(sent.removeprefix("Basic ")).decode() == unquote(login if ":" in login else f"{login}:")
        assert proxy.peers[0].header("authorization") == (f"Bearer {KEY}" if url == PLAIN else None)


@both_loops
async def test_the_login_of_a_proxy_does_not_go_through_the_tunnel(
    env: pytest.MonkeyPatch, authority: Authority
) -> None:
    tls = authority.server_context("model.example")
    async with serve_raw(hello, tls=tls) as server, serve_raw(Tunnel(server.port)) as proxy:
        env.setenv("HTTPS_PROXY", f"http://user:hidden@127.0.0.1:{proxy.port}")
        async with close_at_end(model_at(SECURE)) as model:
            assert [await ask_text(model), await ask_text(model)] == ["hello", "hello"]
        assert len(proxy.peers) == 1
        assert all("proxy-authorization" not in head.lower() for head in server.peers[0].heads)


@both_loops
async def test_a_proxy_that_answers_something_else_than_http_is_an_error_that_says_so(env: pytest.MonkeyPatch) -> None:
    async def babbling(peer: Peer) -> None:
        await peer.read_head()
        await peer.send(b"SSH-2.0-OpenSSH\r\n\r\n")
        await peer.wait_closed()

    async with serve_raw(babbling) as proxy:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        for url in (PLAIN, SECURE):
            async with close_at_end(model_at(url)) as model:
                with pytest.raises(ModelError, match="its answer cannot be read: it is not HTTP"):
                    await ask_text(model)


@both_loops
async def test_a_certificate_behind_the_tunnel_is_checked(env: pytest.MonkeyPatch, authority: Authority) -> None:
    tls = authority.server_context("other.example")
    async with serve_raw(hello, tls=tls) as server, serve_raw(Tunnel(server.port)) as proxy:
        env.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with close_at_end(model_at(SECURE)) as model:
            with pytest.raises(ModelError, match=r"TLS failed .*Check the endpoint and the certificates"):
                await ask_text(model)


@both_loops
@pytest.mark.parametrize("url", [PLAIN, SECURE])
async def test_a_proxy_that_is_not_there_is_named_without_its_password(env: pytest.MonkeyPatch, url: str) -> None:
    async with serve_raw(hello) as proxy:
        port = proxy.port
    env.setenv("ALL_PROXY", f"http://user:hidden@127.0.0.1:{port}")
    async with close_at_end(model_at(url)) as model:
        with pytest.raises(
            ModelError, match=rf"its proxy at 127\.0\.0\.1:{port} could not be reached \(Connection refused\)"
        ) as found:
            await ask_text(model)
        assert found.value.is_retryable
        assert "NO_PROXY" in str(found.value)
        assert "hidden" not in "".join(traceback.format_exception(found.value))


@both_loops
async def test_an_unknown_host_of_a_proxy_is_named(env: pytest.MonkeyPatch) -> None:
    env.setenv("ALL_PROXY", "http://proxy.invalid:3128")
    async with close_at_end(model_at(SECURE)) as model:
        with pytest.raises(ModelError, match=r"its proxy at proxy.invalid:3128 has a host name that is not known"):
            await ask_text(model)


@both_loops
@pytest.mark.parametrize(
    "proxy", ["socks5://127.0.0.1:1080", "http://", "http://127.0.0.1:99999", "://", "http://a..b:80"]
)
async def test_a_proxy_that_cannot_be_used_is_an_error(env: pytest.MonkeyPatch, proxy: str) -> None:
    env.setenv("ALL_PROXY", proxy)
    async with close_at_end(model_at(PLAIN)) as model:
        with pytest.raises(ModelError, match=r"the proxy in the environment is no HTTP proxy. Check HTTPS_PROXY"):
            await ask_text(model)


class Refusing:
    """A proxy that refuses every request."""

    def __init__(self, status: str) -> None:
        self._status = status

    async def __call__(self, peer: Peer) -> None:
        await peer.read_head()
        await peer.send(f"HTTP/1.1 {self._status}\r\nContent-Length: 0\r\n\r\n".encode())
        await peer.wait_closed()


async def at_once(seconds: float) -> None:
    """No pause."""


@both_loops
@pytest.mark.parametrize("url", [PLAIN, SECURE])
async def test_a_proxy_that_wants_a_login_is_named_and_gets_one_request(env: pytest.MonkeyPatch, url: str) -> None:
    async with serve_raw(Refusing("407 Proxy Authentication Required")) as proxy:
        env.setenv("ALL_PROXY", f"http://user:hidden@127.0.0.1:{proxy.port}")
        reason = (
            rf"its proxy at 127\.0\.0\.1:{proxy.port} refused \(407 Proxy Authentication Required\), it wants the login"
        )
        async with close_at_end(GuardedModel(model_at(url), retry=RetryPolicy(sleep=at_once))) as model:
            with pytest.raises(ModelError, match=reason) as found:
                await ask_text(model)
        assert (found.value.is_retryable, len(proxy.peers)) == (False, 1)
        assert "Check HTTPS_PROXY" in str(found.value)
        assert "hidden" not in "".join(traceback.format_exception(found.value))


@both_loops
@pytest.mark.parametrize("url", [PLAIN, SECURE])
async def test_a_proxy_that_forbids_is_named_and_gets_one_request(env: pytest.MonkeyPatch, url: str) -> None:
    async with serve_raw(Refusing("403 Forbidden")) as proxy:
        env.setenv("ALL_PROXY", f"127.0.0.1:{proxy.port}")
        async with close_at_end(GuardedModel(model_at(url), retry=RetryPolicy(sleep=at_once))) as model:
            with pytest.raises(
                ModelError, match=rf"403 Forbidden.*proxy|proxy at 127\.0\.0\.1:{proxy.port}.*403"
            ) as found:
                await ask_text(model)
        assert (found.value.is_retryable, len(proxy.peers)) == (False, 1)
        assert f"proxy at 127.0.0.1:{proxy.port}" in str(found.value)


@both_loops
async def test_a_request_is_repeated_when_the_proxy_does_not_reach_the_model(env: pytest.MonkeyPatch) -> None:
    async with serve_raw(Refusing("503 Service Unavailable")) as proxy:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with close_at_end(GuardedModel(model_at(SECURE), retry=RetryPolicy(attempts=3, sleep=at_once))) as model:
            with pytest.raises(ModelError, match=r"its proxy at 127.0.0.1:\d+ refused \(503 Service Unavailable\)"):
                await ask_text(model)
        assert len(proxy.peers) == 3


@both_loops
async def test_a_proxy_that_disconnects_in_the_middle_is_an_error_that_can_be_retried(env: pytest.MonkeyPatch) -> None:
    async def leaving(peer: Peer) -> None:
        await peer.read_request()
        if len(proxy.peers) == 1:
            return
        if len(proxy.peers) == 2:
            await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n")
        else:
            await peer.send(http_answer("hello"))
            await peer.wait_closed()

    async with serve_raw(leaving) as proxy:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with close_at_end(GuardedModel(model_at(PLAIN), retry=RetryPolicy(sleep=at_once))) as model:
            assert await ask_text(model) == "hello"
        assert len(proxy.peers) == 3


@both_loops
async def test_the_pause_that_a_model_requests_is_read_through_the_proxy(env: pytest.MonkeyPatch) -> None:
    async def busy(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(http_answer("", "Retry-After: 7", status="429 Too Many Requests", body=b"slow"))
        await peer.wait_closed()

    async with serve_raw(busy) as proxy:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with close_at_end(model_at(PLAIN)) as model:
            with pytest.raises(ModelError, match="429") as found:
                await ask_text(model)
            assert found.value.retry_after == 7


@both_loops
@pytest.mark.parametrize("where", ["http://elsewhere.example/", "/v2"])
async def test_no_key_follows_a_redirect_through_the_proxy(env: pytest.MonkeyPatch, where: str) -> None:
    async def redirecting(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(http_answer("", f"Location: {where}", status="307 Temporary Redirect", body=b""))
        await peer.wait_closed()

    async with serve_raw(redirecting) as proxy:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with close_at_end(model_at(PLAIN)) as model:
            with pytest.raises(ModelError, match="Redirects are not followed"):
                await ask_text(model)
        assert [len(peer.heads) for peer in proxy.peers] == [1]


def answer_each(listening: socket.socket) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as stream:
                size = 0
                while (line := stream.readline().lower()) != b"\r\n":
                    size = int(line.partition(b":")[2]) if line.startswith(b"content-length:") else size
                stream.read(size)
                connection.sendall(http_answer("hello", "Connection: close"))


def test_a_model_behind_a_proxy_is_used_in_one_loop_after_the_other(env: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{listening.getsockname()[1]}")
        proxy = threading.Thread(target=answer_each, args=(listening,))
        proxy.start()
        model = model_at(PLAIN)
        try:
            for _ in range(2):
                assert asyncio.run(ask_text(model)) == "hello"
            asyncio.run(model.close())
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            proxy.join()
    gc.collect()  # unclosed resources would warn now


@both_loops
async def test_cancelling_a_request_closes_the_tunnel_of_the_proxy(env: pytest.MonkeyPatch) -> None:
    reached, disconnected = asyncio.Event(), asyncio.Event()

    async def handler(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", chat_event("a", is_last=False))
        reached.set()
        await peer.wait_closed()
        disconnected.set()

    async with serve_raw(handler) as proxy:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        async with close_at_end(model_at(PLAIN)) as model:
            task = asyncio.create_task(ask_text(model))
            await reached.wait()
            task.cancel()
            await asyncio.wait([task])
            await disconnected.wait()


@both_loops
@pytest.mark.parametrize("exempt", ["a.model.invalid", "other,.model.invalid", "*"])
async def test_no_proxy_is_honoured(env: pytest.MonkeyPatch, exempt: str) -> None:
    async with serve_raw(hello) as proxy:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        env.setenv("NO_PROXY", exempt)
        async with close_at_end(model_at("http://a.model.invalid/v1")) as model:
            with pytest.raises(ModelError, match="its host name is not known"):
                await ask_text(model)
        assert proxy.peers == []


@both_loops
async def test_a_login_in_the_url_gives_way_to_the_key(env: pytest.MonkeyPatch) -> None:
    async with serve_raw(hello) as proxy:
        env.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
        for key in (None, Secret(KEY)):
            url = "http://user:pw@model.example/v1"
            async with close_at_end(ChatCompletions(base_url=url, model="m", api_key=key)) as model:
                assert await ask_text(model) == "hello"
        assert (proxy.peers[0].header("authorization") or "").startswith("Basic ")
        assert proxy.peers[1].header("authorization") == f"Bearer {KEY}"


@both_loops
@pytest.mark.parametrize("url", ["not a url", "", "http://", "http://host:99999/v1", "http://[::1/v1", "ftp://host/v1"])
async def test_an_invalid_url_is_an_error_behind_a_proxy_too(env: pytest.MonkeyPatch, url: str) -> None:
    env.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with close_at_end(model_at(url)) as model:
        with pytest.raises(ModelError, match="its endpoint is not a URL"):
            await ask_text(model)


@both_loops
async def test_loopback_needs_no_proxy(env: pytest.MonkeyPatch) -> None:
    async with serve_raw(hello) as server, close_at_end(model_at(server.url)) as model:
        env.setenv("ALL_PROXY", "http://proxy.invalid:3128")
        assert await ask_text(model) == "hello"


@both_loops
async def test_a_key_that_cannot_be_sent_is_an_error_behind_a_proxy_too(env: pytest.MonkeyPatch) -> None:
    env.setenv("ALL_PROXY", "http://proxy.invalid:3128")
    async with close_at_end(ChatCompletions(base_url=PLAIN, model="m", api_key=Secret("sk-hidden\n"))) as model:
        with pytest.raises(ModelError, match="its key has a line break") as found:
            await ask_text(model)
        assert "hidden" not in "".join(traceback.format_exception(found.value))

"""Every form of a URL is dialled as it is meant; what is no URL, and a key that cannot be sent, have their sentence."""

from __future__ import annotations

import base64
import traceback

import pytest
from providers.model_exchange import KEY, collect_events, model_at, model_request
from providers.raw_server import Peer, RawServer, ask_text, both_loops, close_at_end, http_answer, serve_raw

from holodeck.lib.errors import ModelError
from holodeck.lib.secret import Secret
from holodeck.providers.anthropic import Anthropic
from holodeck.providers.base import ModelProvider
from holodeck.providers.openai_chat import ChatCompletions


async def hello(peer: Peer) -> None:
    while True:
        await peer.read_request()
        await peer.send(http_answer("hello"))


async def first_line(url: str) -> tuple[str, Peer]:
    """The request target that the server gets for a model at this URL; PORT is replaced by its port."""
    async with serve_raw(hello) as server, close_at_end(model_at(url.replace("PORT", str(server.port)))) as model:
        assert await ask_text(model) == "hello"
        return server.peers[0].heads[0].partition("\r\n")[0], server.peers[0]


@both_loops
@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://127.0.0.1:PORT", "/chat/completions"),
        ("http://127.0.0.1:PORT/", "/chat/completions"),
        ("http://127.0.0.1:PORT/v1/", "/v1/chat/completions"),
        ("http://127.0.0.1:PORT/v1?a=b&c=%20d", "/v1/chat/completions?a=b&c=%20d"),
        ("http://127.0.0.1:PORT/v1?q=ä b", "/v1/chat/completions?q=%C3%A4%20b"),
        ("http://127.0.0.1:PORT/v1?x=1 HTTP/1.1", "/v1/chat/completions?x=1%20HTTP/1.1"),
        ("http://127.0.0.1:PORT/ä b/%2F", "/%C3%A4%20b/%2F/chat/completions"),
        ("http://127.0.0.1:PORT/v1#part", "/v1/chat/completions"),
        ("HTTP://LOCALHOST:PORT/v1", "/v1/chat/completions"),
    ],
)
async def test_path_and_query_are_sent_as_they_are_meant(url: str, target: str) -> None:
    line, peer = await first_line(url)
    assert line == f"POST {target} HTTP/1.1"
    assert peer.header("authorization") == f"Bearer {KEY}"
    assert peer.header("content-type") == "application/json"


@both_loops
async def test_an_ipv6_host_is_dialled() -> None:
    async with (
        serve_raw(hello, host="::1") as server,
        close_at_end(model_at(f"http://[::1]:{server.port}/v1")) as model,
    ):
        assert await ask_text(model) == "hello"
        assert server.peers[0].header("host") == f"[::1]:{server.port}"


@both_loops
async def test_a_login_in_the_url_is_used_unless_there_is_a_key() -> None:
    async with serve_raw(hello) as server:
        url = f"http://us%40er:p%3Aw@127.0.0.1:{server.port}/v1"
        for key in (None, Secret(KEY)):
            async with close_at_end(ChatCompletions(base_url=url, model="m", api_key=key)) as model:
                assert await ask_text(model) == "hello"
        login = base64.b64encode(b"us@er:p:w").decode()
        assert [peer.header("authorization") for peer in server.peers] == [f"Basic {login}", f"Bearer {KEY}"]
        assert all(peer.header("host") == f"127.0.0.1:{server.port}" for peer in server.peers)


@both_loops
async def test_the_login_in_a_url_is_in_no_error() -> None:
    async with serve_raw(hello) as server:
        port = server.port
    model = ChatCompletions(base_url=f"http://user:hidden@127.0.0.1:{port}/v1?k=hidden", model="m")
    async with close_at_end(model):
        with pytest.raises(ModelError, match="could not be reached") as found:
            await ask_text(model)
    assert "hidden" not in "".join(traceback.format_exception(found.value))


@both_loops
async def test_a_password_in_the_position_of_the_port_is_in_no_error() -> None:
    async with close_at_end(ChatCompletions(base_url="http://user:hidden/v1", model="m")) as model:
        with pytest.raises(ModelError, match="its endpoint is not a URL") as found:
            await ask_text(model)
    assert "hidden" not in "".join(traceback.format_exception(found.value))


@both_loops
@pytest.mark.parametrize(
    "url",
    [
        "",
        "not a url",
        "/v1",
        "http://",
        "http:///v1",
        "https://?a=b",
        "http://host:99999/v1",
        "http://host:0/v1",
        "http://host:-1/v1",
        "http://host:port/v1",
        "http://[::1/v1",
        "http://[nonsense]/v1",
        "http://a..b/v1",
        f"http://{'a' * 64}.example/v1",
        "http://a b/v1",
        "http://a\0b/v1",
        "ftp://host/v1",
        "unix:///run/model.sock",
        "file:///etc/hosts",
        "localhost:8000/v1",
    ],
)
async def test_an_invalid_url_is_an_error_that_says_so(url: str) -> None:
    async with close_at_end(ChatCompletions(base_url=url, model="m", api_key=Secret(KEY))) as model:
        with pytest.raises(ModelError, match=r"its endpoint is not a URL\.") as found:
            await ask_text(model)
        assert not found.value.is_retryable


@both_loops
@pytest.mark.parametrize("host", ["nowhere.invalid", "bücher.invalid", "日本.invalid"])
async def test_an_unknown_host_is_an_error_that_says_so(host: str) -> None:
    async with close_at_end(model_at(f"http://{host}/v1")) as model:
        with pytest.raises(ModelError, match="its host name is not known") as found:
            await ask_text(model)
        assert host in str(found.value)


def keyed(server: RawServer, key: str) -> list[ModelProvider]:
    secret = Secret(key)
    return [
        ChatCompletions(base_url=server.url, model="m", api_key=secret, key_source="MY_KEY"),
        Anthropic(base_url=server.url, model="m", api_key=secret, key_source="MY_KEY"),
    ]


@both_loops
@pytest.mark.parametrize("wrong", ["\n", "\r", "\r\nX-Injected: 1", "\0", "\N{HORIZONTAL ELLIPSIS}", "é", "\udc80"])
async def test_a_key_that_cannot_be_sent_is_an_error_without_it(wrong: str) -> None:
    async with serve_raw(hello) as server:
        for model in keyed(server, f"sk-verysecret{wrong}"):
            async with close_at_end(model):
                with pytest.raises(ModelError, match=r"its key has a line break .* Check the key in MY_KEY\.") as found:
                    await collect_events(model, model_request())
            assert not found.value.is_retryable
            assert "verysecret" not in "".join(traceback.format_exception(found.value))
        assert server.peers == []

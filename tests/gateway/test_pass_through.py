"""`/v1/embeddings` and `/v1/completions`: bodies that go on to the provider as they are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

EMBEDDING = {"object": "embedding", "index": 0, "embedding": [0.25, -0.5]}


@dataclass(kw_only=True)
class Provider:
    """A server with the two APIs, and the bodies and keys that it has received."""

    failures: int = 0
    received: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = orjson.loads(await request.read())
        self.received.append((request.headers["authorization"], body))
        if self.failures:
            self.failures -= 1
            return web.json_response({"error": {"message": "Busy."}}, status=503, headers={"retry-after": "0"})
        usage = {"prompt_tokens": 5, "total_tokens": 5}
        if request.path.endswith("/embeddings"):
            return web.json_response({"object": "list", "data": [EMBEDDING], "model": body["model"], "usage": usage})
        chunk = {"object": "text_completion", "model": body["model"], "choices": [{"index": 0, "text": "lo"}]}
        if not body.get("stream"):
            return web.json_response({**chunk, "usage": usage})
        frames = b"".join(b"data: %b\n\n" % orjson.dumps(chunk) for _ in range(2))
        return web.Response(body=frames + b"data: [DONE]\n\n", content_type="text/event-stream")


@asynccontextmanager
async def run_provider(
    folder: Path, *, price: dict[str, float] | None = None, config: dict[str, Any] | None = None, **options: Any
) -> AsyncIterator[tuple[RunningGateway, Provider]]:
    """A gateway in front of a provider with the two APIs. `price`: of its model. `config`: more for `run_gateway`."""
    provider = Provider(**options)
    app = web.Application()
    app.router.add_post("/v1/embeddings", provider.answer)
    app.router.add_post("/v1/completions", provider.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        llm = {"provider": "openai_compatible", "name": "at-provider", "endpoint": f"http://127.0.0.1:{port}/v1"}
        models: list[dict[str, Any]] = [{"name": MODEL, "model": {**llm, "api_key": "${KEY}"}}]
        if price is not None:
            models[0]["model"]["price"] = price
        settings = {"models": models, "environ": {"KEY": "sk-of-the-provider"}, **(config or {})}
        async with run_gateway(folder, **settings) as gateway:
            yield gateway, provider
    finally:
        await runner.cleanup()


@async_test(30)
async def test_embeddings_come_from_the_provider_under_the_public_name(tmp_path: Path) -> None:
    async with run_provider(tmp_path) as (gateway, provider):
        client = await gateway.openai_client()
        made = await client.embeddings.create(model=MODEL, input="Hello", encoding_format="float", dimensions=2)
        assert (made.data[0].embedding, made.model, made.usage.prompt_tokens) == ([0.25, -0.5], MODEL, 5)
        ((key, body),) = provider.received
        assert key == "Bearer sk-of-the-provider"
        assert body == {"model": "at-provider", "input": "Hello", "encoding_format": "float", "dimensions": 2}


@async_test(30)
async def test_completions_are_handed_on_whole_and_streamed(tmp_path: Path) -> None:
    async with run_provider(tmp_path) as (gateway, provider):
        client = await gateway.openai_client()
        whole = await client.completions.create(model=MODEL, prompt="Hel", best_of=2)
        assert (whole.choices[0].text, whole.model) == ("lo", MODEL)
        stream = await client.completions.create(model=MODEL, prompt="Hel", stream=True)
        chunks = [chunk async for chunk in stream]
        assert [(chunk.choices[0].text, chunk.model) for chunk in chunks] == [("lo", MODEL)] * 2
        assert provider.received[0][1] == {"model": "at-provider", "prompt": "Hel", "best_of": 2}


@async_test(30)
async def test_a_stream_without_usage_and_an_answer_with_it_are_both_charged(tmp_path: Path) -> None:
    names = ["hd-streams", "hd-waits"]
    # Less than one token costs.
    config = {"keys": names, "budgets": {name: {"amount": 0.0000001, "period": "month"} for name in names}}
    async with run_provider(tmp_path, price={"input": 1.0, "output": 1.0}, config=config) as (gateway, provider):
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            ("/v1/completions", {"model": MODEL, "prompt": "Hel", "stream": True}),
            ("/v1/embeddings", {"model": MODEL, "input": "Hello"}),
        )
        for name, (path, body) in zip(names, asked, strict=True):
            assert (await gateway.send("POST", path, body, key=name))[0] == 200
            status, said = await gateway.send("POST", path, body, key=name)
            assert (status, said["error"]["code"]) == (429, "budget_exceeded"), path
        assert len(provider.received) == 2


@async_test(30)
async def test_a_provider_that_fails_for_a_moment_is_asked_again(tmp_path: Path) -> None:
    async with run_provider(tmp_path, failures=1) as (gateway, provider):
        status, _ = await gateway.send("POST", "/v1/embeddings", {"model": MODEL, "input": "Hello"})
        assert (status, len(provider.received)) == (200, 2)


@async_test(30)
async def test_a_provider_that_fails_is_an_error_without_its_address(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        # The scripted server has chat completions only.
        status, reply = await gateway.send("POST", "/v1/embeddings", {"model": MODEL, "input": "Hello"})
        assert (status, reply["error"]["code"]) == (500, "server_error")
        assert "127.0.0.1" not in reply["error"]["message"]


@pytest.mark.parametrize(("route", "key"), [("embeddings", "input"), ("completions", "prompt")])
@async_test(30)
async def test_a_model_without_the_api_is_refused_by_name(tmp_path: Path, route: str, key: str) -> None:
    models = [{"name": MODEL, "model": {"provider": "rehearsal"}}]
    async with run_gateway(tmp_path, models=models) as gateway:
        status, reply = await gateway.send("POST", f"/v1/{route}", {"model": MODEL, key: "Hello"})
        assert (status, reply["error"]["param"]) == (400, "model")
        assert f"/{route}" in reply["error"]["message"]
        status, reply = await gateway.send("POST", f"/v1/{route}", {"model": MODEL})
        assert (status, reply["error"]["param"]) == (400, key)

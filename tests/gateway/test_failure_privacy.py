"""A caller learns that a model failed, and whether to try again; where and why is in the operator's log."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from websockets.asyncio.client import connect

from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import Turn, cut, error_event, page, status, wait

KEY = "sk-live-0123456789"
SAID = "Our inner name is inner-host. Read https://provider.example/help"
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
RESPONSE = {"model": MODEL, "input": "Hi"}


def _refusal(code: int) -> Turn:
    # A wait that is longer than a gateway waits, so that it does not try again by itself.
    return status(code, {"error": {"message": SAID, "type": "some_error"}}, retry_after="90")


async def _collect_failures(gateway: RunningGateway) -> dict[str, dict[str, Any]]:
    """The error that a caller gets in each form of a reply, all asked for at once."""
    forms = {
        "response": _send(gateway, "/v1/responses", RESPONSE),
        "streamed response": _send(gateway, "/v1/responses", RESPONSE | {"stream": True}),
        "chat": _send(gateway, "/v1/chat/completions", CHAT),
        "streamed chat": _send(gateway, "/v1/chat/completions", CHAT | {"stream": True}),
        "background": _wait_background(gateway),
        "websocket": _send_over_websocket(gateway),
    }
    return dict(zip(forms, await asyncio.gather(*forms.values()), strict=True))


async def _send(gateway: RunningGateway, path: str, body: dict[str, Any]) -> dict[str, Any]:
    session = await gateway.http_client()
    async with session.post(path, data=orjson.dumps(body), headers={"x-request-id": "from-the-caller"}) as reply:
        text = (await reply.read()).decode()
    if not body.get("stream"):
        return {"text": text, "status": reply.status, **orjson.loads(text)["error"]}
    events = [orjson.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    error = events[-1]["error"] if "error" in events[-1] else events[-1]["response"]["error"]
    return {"text": text, **error}


async def _wait_background(gateway: RunningGateway) -> dict[str, Any]:
    _, response = await gateway.send("POST", "/v1/responses", RESPONSE | {"background": True})
    events = await gateway.stream(f"/v1/responses/{response['id']}?stream=true")
    return {"text": str(events), **events[-1]["response"]["error"]}


async def _send_over_websocket(gateway: RunningGateway) -> dict[str, Any]:
    async with connect(f"{gateway.url.replace('http', 'ws')}/v1/responses") as socket:
        await socket.send(orjson.dumps({"type": "response.create", **RESPONSE}).decode())
        texts = []
        while '"response.failed"' not in (text := str(await socket.recv())):
            texts.append(text)
        return {"text": "".join([*texts, text]), **orjson.loads(text)["response"]["error"]}


@pytest.mark.proves("D-25", "D-31")
@pytest.mark.parametrize(
    ("fault", "http_status", "cause"),
    [
        (_refusal(401), 500, "Check the key in model.api_key"),
        (_refusal(403), 500, "Check the key in model.api_key"),
        (_refusal(404), 500, "path of the endpoint"),
        (_refusal(429), 429, "429 Too Many Requests"),
        (_refusal(500), 500, "500 Internal Server Error"),
        (_refusal(502), 503, "502 Bad Gateway"),
        (page(), 500, "text/html"),
        ([say("Hal"), cut()], 503, "connection was lost"),
        ([say("Hal"), error_event(SAID)], 500, "inner name"),
        ([say("Hal"), wait(asyncio.Event())], 503, "fell silent"),
        ("unreachable", 503, "Is the server running?"),
        ("tls", 503, "TLS failed"),
    ],
    ids=["401", "403", "404", "429", "500", "502", "html", "cut", "error event", "silent", "unreachable", "tls"],
)
@async_test(60)
async def test_a_failed_model_is_told_to_the_caller_without_the_inside_of_the_gateway(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fault: Turn | str, http_status: int, cause: str
) -> None:
    turn = say("Never said.") if isinstance(fault, str) else fault
    async with ScriptedModel(lambda _: turn).serve() as model:
        endpoint = model.url.replace("http:", "https:") if fault == "tls" else model.url
        if fault == "unreachable":
            await model.stop()
        llm = {"provider": "openai_compatible", "name": "inner-name", "endpoint": endpoint, "api_key": "${INNER_KEY}"}
        # Only a silent model is waited for: with a short time, a busy machine would call the others silent, too.
        served = [{"name": MODEL, "model": {**llm, "timeout": 0.5 if cause == "fell silent" else 20}}]
        background = {"durable": False, "model_wait_seconds": 0}
        with caplog.at_level(logging.WARNING):
            async with run_gateway(
                tmp_path, models=served, background=background, environ={"INNER_KEY": KEY}
            ) as gateway:
                failures = await _collect_failures(gateway)
    host = endpoint.partition("://")[2].partition("/")[0]
    inside = (
        host,
        "127.0.0.1",
        KEY,
        "INNER_KEY",
        "api_key",
        "endpoint",
        "inner-name",
        "openai_compatible",
        "inner-host",
        "https://",
    )
    for form, failure in failures.items():
        assert [word for word in inside if word in failure["text"]] == [], form
        code = "rate_limit_exceeded" if http_status == 429 else "server_error"
        assert failure["code"] == ((failure.get("status") == 503 and "model_unavailable") or code), form
        assert failure.get("status", http_status) == http_status, form
    logged = [record.getMessage() for record in caplog.records if "gateway.run_failed" in record.getMessage()]
    assert len(logged) == len(failures)
    assert all(cause in line for line in logged if "left alone" not in line)
    assert sum("request=from-the-caller" in line for line in logged) == 4
    assert not any(KEY in line for line in logged)


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_request_that_the_model_refuses_has_the_reason_of_the_provider_without_addresses(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(_refusal(400))) as gateway:
        failure = await _send(gateway, "/v1/responses", RESPONSE)
    assert (failure["status"], failure["code"]) == (400, "invalid_prompt")
    assert failure["message"].startswith(
        "The model does not accept the request: Our inner name is inner-host. Read [address]"
    )

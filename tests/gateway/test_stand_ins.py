"""Stand-ins: another model answers where the usual one cannot, a turn as a whole or not at all."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.messages.message_client import join_events, stream_message
from gateway.running_gateway import MODEL, RunningGateway, gateway_config, run_gateway

from holodeck.providers.wrappers import retry
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.script import Turn, cut, spend, status
from holodeck.testing.model.scripted import ScriptedServer

STAND_IN = "second"
BODIES: Mapping[str, dict[str, Any]] = {
    "/v1/responses": {"model": MODEL, "input": "Hi"},
    "/v1/chat/completions": {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]},
    "/v1/messages": {"model": MODEL, "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]},
}


class Usual:
    """The usual model, whose next answers a test sets."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []

    def __call__(self, received: Any) -> Turn:
        return self.turns.pop(0) if self.turns else say("usual")


@asynccontextmanager
async def run_with_stand_in(
    folder: Path,
    usual: ScriptedModel,
    second: ScriptedModel,
    *,
    mcp: Mapping[str, FaultyMCPServer] | None = None,
    more: Mapping[str, Any] | None = None,
    **config: Any,
) -> AsyncIterator[tuple[RunningGateway, ScriptedServer]]:
    """A gateway whose model has a stand-in, and that stand-in. `more`: of the entry of the stand-in."""
    async with second.serve() as standing, ScriptedModel().serve() as unused:
        models = gateway_config(unused.url, {})["models"]
        models[0]["model"] |= {"price": {"input": 1, "output": 1}}
        entry = {"provider": "openai_compatible", "name": STAND_IN, "endpoint": standing.url, **(more or {})}
        models[0]["model"]["fallback"] = [entry]
        async with run_gateway(folder, usual, mcp=mcp, **config) as gateway:
            written = orjson.loads(gateway.file.read_bytes())
            models[0]["model"]["endpoint"] = written["models"][0]["model"]["endpoint"]
            assert await gateway.reload(models=models)
            yield gateway, standing


CANNOT_ANSWER = [status(code, retry_after="0") for code in (429, 500, 502, 503, 529)]


@pytest.mark.parametrize("path", BODIES)
@async_test(60)
async def test_a_stand_in_answers_for_a_model_that_cannot_and_the_answer_says_so(tmp_path: Path, path: str) -> None:
    usual = Usual()
    async with run_with_stand_in(tmp_path, ScriptedModel(usual), ScriptedModel(lambda _: say("second"))) as (
        gateway,
        second,
    ):
        for fault in CANNOT_ANSWER:
            usual.turns = [fault] * 2
            code, found = await gateway.send("POST", path, BODIES[path])
            assert (code, found["model"]) == (200, STAND_IN), fault
            assert "second" in str(found)
        code, found = await gateway.send("POST", path, BODIES[path])
        assert (code, found["model"]) == (200, MODEL), "the usual model is asked first again"
        assert len(second.received) == len(CANNOT_ANSWER)


@async_test(60)
async def test_every_chunk_and_the_start_of_a_message_name_the_stand_in_that_answers(tmp_path: Path) -> None:
    usual = Usual()
    async with run_with_stand_in(tmp_path, ScriptedModel(usual), ScriptedModel(lambda _: say("second"))) as (
        gateway,
        _,
    ):
        client = await gateway.openai_client()
        for is_away, name in ((True, STAND_IN), (False, MODEL)):
            usual.turns = [status(503, retry_after="0")] * 2 if is_away else []
            chat = BODIES["/v1/chat/completions"]["messages"]
            chunks = [
                chunk async for chunk in await client.chat.completions.create(model=MODEL, messages=chat, stream=True)
            ]
            assert {chunk.model for chunk in chunks} == {name}
            assert [chunk.choices[0].delta.role for chunk in chunks].count("assistant") == 1
            usual.turns = [status(503, retry_after="0")] * 2 if is_away else []
            events = await stream_message(gateway, {**BODIES["/v1/messages"], "stream": True})
            assert events[0]["message"]["model"] == name
            assert join_events(events)["content"][0]["text"] == ("second" if is_away else "usual")


@async_test(60)
async def test_a_request_that_the_model_refuses_is_not_sent_to_a_stand_in(tmp_path: Path) -> None:
    usual = Usual()
    async with run_with_stand_in(tmp_path, ScriptedModel(usual), ScriptedModel()) as (gateway, second):
        for code in (400, 401, 403, 404, 413, 422):
            usual.turns = [status(code)]
            assert (await gateway.send("POST", "/v1/responses", BODIES["/v1/responses"]))[0] >= 400
        assert not second.received


@async_test(60)
async def test_a_run_stays_with_the_model_that_answered_its_first_turn(tmp_path: Path) -> None:
    usual, body = Usual(), BODIES["/v1/responses"]
    second = ScriptedModel(call("echo", text="from second"), say("second"))
    async with (
        FaultyMCPServer() as tools,
        run_with_stand_in(tmp_path, ScriptedModel(usual), second, mcp={"tools": tools}) as (gateway, standing),
    ):
        usual.turns = [status(503, retry_after="0")] * 2
        _, found = await gateway.send("POST", "/v1/responses", body)
        assert (found["status"], found["model"], len(standing.received)) == ("completed", STAND_IN, 2)
        assert len(gateway.model_requests) == 2, "the second turn is not the usual model's, although it is well again"
        usual.turns = [call("echo", text="from usual"), *[status(503, retry_after="0")] * 8]
        code, found = await gateway.send("POST", "/v1/responses", body)
        assert (code, found["error"]["code"]) == (503, "model_unavailable")
        assert len(standing.received) == 2, "a stand-in does not go on with what the usual model began"
        assert [each.params["arguments"]["text"] for each in tools.calls("echo")] == ["from second", "from usual"]


@async_test(60)
async def test_the_stand_in_is_what_is_counted_priced_logged_and_traced(
    tmp_path: Path,
) -> None:
    usual = Usual()
    second = ScriptedModel(lambda _: [say("second"), spend(1_000_000, 0)])
    usual_price, more = {"input": 1, "output": 1}, {"price": {"input": 7, "output": 9}}
    budgets = {"alice": {"amount": 6, "period": "day"}}
    async with run_with_stand_in(
        tmp_path,
        ScriptedModel(usual),
        second,
        more=more,
        price=usual_price,
        budgets=budgets,
        keys=["alice"],
    ) as (gateway, _):
        usual.turns = [status(503, retry_after="0")] * 2
        _, found = await gateway.send("POST", "/v1/responses", BODIES["/v1/responses"], key="alice")
        _, run = await gateway.send("GET", f"/v1/runs/{found['id']}", key="alice")
        _, trace = await gateway.send("GET", f"/v1/runs/{found['id']}/trace", key="alice")
        assert (run["model"], run["cost"]) == (STAND_IN, 7.0)
        assert [span["name"] for span in trace["spans"] if span["kind"] == "model"] == [STAND_IN]
        code, refused = await gateway.send("POST", "/v1/responses", BODIES["/v1/responses"], key="alice")
        assert (code, refused["error"]["code"]) == (429, "budget_exceeded"), "the price of the usual model is 1"


@async_test(60)
async def test_a_stand_in_gets_its_own_options(tmp_path: Path) -> None:
    usual, body = Usual(), BODIES["/v1/responses"]
    second = ScriptedModel(lambda _: say("second"))
    async with run_with_stand_in(tmp_path, ScriptedModel(usual), second, more={"temperature": 0.1}) as (
        gateway,
        standing,
    ):
        usual.turns = [status(503, retry_after="0")] * 2
        await gateway.send("POST", "/v1/responses", body)
        assert standing.received[-1].json["temperature"] == 0.1
        assert "temperature" not in gateway.model_requests[-1]


@async_test(60)
async def test_a_stand_in_without_an_option_of_the_request_is_passed_over(tmp_path: Path) -> None:
    body = BODIES["/v1/chat/completions"]
    models = {name: ScriptedModel(lambda _: say("well")) for name in ("claude", "strict", "open")}
    async with (
        ScriptedModel(lambda _: status(503, retry_after="0")).serve() as usual,
        models["claude"].serve("anthropic") as claude,
        models["strict"].serve() as strict,
        models["open"].serve() as liberal,
    ):
        compatible, allowing = {"provider": "openai_compatible"}, {"allow_extra_parameters": ["top_k"]}
        llm: dict[str, Any] = {**compatible, "name": "m", "endpoint": usual.url, **allowing}
        llm["fallback"] = [
            {"provider": "anthropic", "name": "claude", "endpoint": claude.url, "api_key": "${API_KEY}"},
            {**compatible, "name": "strict", "endpoint": strict.url},
            {**compatible, "name": "open", "endpoint": liberal.url, **allowing},
        ]
        async with run_gateway(tmp_path, environ={"API_KEY": "key"}, models=[{"name": MODEL, "model": llm}]) as gateway:
            for more, expected in (
                ({"prompt_cache_key": "a hint"}, "claude"),
                ({"seed": 1}, "strict"),
                ({"top_k": 5}, "open"),
                ({"seed": 1, "top_k": 5}, "open"),
            ):
                code, found = await gateway.send("POST", "/v1/chat/completions", body | more)
                assert (code, found.get("model")) == (200, expected), more
        assert [len(each.received) for each in (claude, strict, liberal)] == [1, 1, 2]
        assert strict.received[0].json["seed"] == 1
        assert [(each.json["top_k"], each.json.get("seed")) for each in liberal.received] == [(5, None), (5, 1)]


@async_test(60)
async def test_a_durable_turn_that_breaks_off_is_asked_again_of_the_same_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MODEL_WAIT_FIRST_PAUSE", 0.01)
    usual, body = Usual(), BODIES["/v1/responses"]
    second = ScriptedModel([say("sec"), cut()], say("second"))
    async with run_with_stand_in(tmp_path, ScriptedModel(usual), second, background={"durable": True}) as (
        gateway,
        standing,
    ):
        usual.turns = [status(503, retry_after="0")] * 2
        events = await gateway.stream("/v1/responses", {**body, "background": True, "stream": True})
        found = events[-1]["response"]
        assert (found["status"], found["model"]) == ("completed", STAND_IN)
        assert [item["content"][0]["text"] for item in found["output"]] == ["second"]
        assert (len(standing.received), len(gateway.model_requests)) == (2, 2), "the usual model is well by now"


@async_test(120)
async def test_a_durable_run_goes_on_with_its_stand_in_after_a_kill(tmp_path: Path) -> None:
    """Killed while its second turn is asked: the first is stored, and with it the model that answered."""
    never = asyncio.Event()
    turns = iter([call("echo", text="once"), wait(never), say("second")])
    is_away = True

    def answer(_: Any) -> Turn:
        return status(503, retry_after="0") if is_away else say("usual")

    async with (
        FaultyMCPServer() as tools,
        ScriptedModel(answer).serve() as usual,
        ScriptedModel(lambda _: next(turns)).serve() as second,
    ):
        server = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": tools.url}
        models = gateway_config(usual.url, {})["models"]
        models[0]["model"]["fallback"] = [{"provider": "openai_compatible", "name": STAND_IN, "endpoint": second.url}]
        file = write_gateway_file(
            tmp_path, usual.url, models=models, mcp_servers=[server], background={"durable": True}
        )
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.create_response(background=True)
            while len(second.received) < 2:  # noqa: ASYNC110 - another process sends the requests
                await asyncio.sleep(0.02)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        is_away, asked = False, len(usual.received)
        async with run_gateway_process(file) as served:
            found = begun
            while found["status"] in ("queued", "in_progress"):
                await asyncio.sleep(0.02)
                _, found, _ = await served.send("GET", f"/v1/responses/{begun['id']}")
        assert (found["status"], found["model"]) == ("completed", STAND_IN)
        assert found["output"][-1]["content"][0]["text"] == "second"
        assert (len(tools.calls("echo")), len(usual.received)) == (1, asked)


@async_test(60)
async def test_a_model_with_two_deployments_answers_by_the_one_that_can(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("two")).serve() as two:
        async with run_gateway(tmp_path, ScriptedModel(lambda _: status(503))) as gateway:
            models = orjson.loads(gateway.file.read_bytes())["models"]
            one = models[0]["model"].pop("endpoint")
            models[0]["model"]["deployments"] = [{"endpoint": one}, {"endpoint": two.url, "name": "other"}]
            models[0]["model"]["fallback"] = [{"provider": "rehearsal"}]
            assert await gateway.reload(models=models)
            _, shown = await gateway.send("GET", "/v1/config")
            assert shown["settings"]["models"] == models
            for _ in range(4):
                code, found = await gateway.send("POST", "/v1/responses", BODIES["/v1/responses"])
                assert (code, found["model"], found["output"][0]["content"][0]["text"]) == (200, MODEL, "two")
        assert {received.json["model"] for received in two.received} == {"other"}

"""Every way in which a model cannot answer, at every door: its stand-in answers the turn as a whole, or not at all."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import run_gateway

from holodeck.providers.wrappers import fallback, retry
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.script import Step, cut, error_event, status
from holodeck.testing.model.scripted import Received

STAND_IN = "second"
AT_ONCE = 20
# Requests of the second turn that fail, before the usual model can answer again: more than one round of retries.
FAILED_ATTEMPTS = 3
# Seconds that a silent model has until its first output: enough for the turn before it on a busy machine.
SILENCE = 1.5
FAULTS: Mapping[str, Sequence[Step]] = {
    **{str(code): [status(code)] for code in (429, 500, 502, 503, 529)},
    "429 with Retry-After": [status(429, retry_after="0")],
    "cut": [cut()],
    "error event": [error_event("overloaded")],
    "silent": [],
}
# Without a connection, or not to be asked for longer than anyone waits: the usual model has no turn in such a run.
FAULTS_OF_FIRST_TURN: Mapping[str, Sequence[Step]] = {
    "refused connection": [],
    "429 with a long Retry-After": [status(429, retry_after="120")],
}
DOORS = ("/v1/responses", "/v1/chat/completions", "/v1/messages", "background")
FIRST_TURN = ("of text", "with a tool")
"""The usual model fails in the first turn; the stand-in has one turn, or two with a tool between them."""
LATER = ("after its tool", "after its text")
"""The usual model fails after it has called a tool, or in the middle of its text."""


@dataclass(kw_only=True)
class Case:
    """One request, and what its models were asked."""

    number: int
    door: str
    is_streamed: bool
    fault: str
    shape: str
    usual_asked: int = 0
    second_asked: int = 0

    @property
    def name(self) -> str:
        return f"<{self.number}>"

    def answer_as_usual(self) -> Sequence[Step]:
        self.usual_asked += 1
        # An event belongs to the loop of its test.
        is_silent = self.fault == "silent"
        fault = [wait(asyncio.Event())] if is_silent else {**FAULTS, **FAULTS_OF_FIRST_TURN}[self.fault]
        if self.shape == "after its text":
            return [say("usual begins. "), *fault]
        if self.shape == "after its tool":
            if self.usual_asked == 1:
                return [say("usual begins. "), call("echo", text=self.name)]
            if self.door == "background" and self.usual_asked > 1 + FAILED_ATTEMPTS:
                return [say("usual ends.")]
        return fault

    def answer_as_second(self) -> Sequence[Step]:
        self.second_asked += 1
        if self.shape == "with a tool" and self.second_asked == 1:
            return [say("second begins. "), call("echo", text=self.name)]
        return [say("second ends.")]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a client sees."""

    has_failed: bool
    text: str
    """Its words, with one space between them."""
    model: str


def _list_cases(rounds: int) -> Iterator[list[Case]]:
    """The cases of each model of the gateway, which are asked one after the other.

    In between the usual model has a first turn: so its circuit breaker stays closed, and each fault is met anew.
    """
    numbers = count()
    for _ in range(rounds):
        for door in DOORS:
            for is_streamed in (False, True):
                wanted = [
                    *((fault, shape) for fault in FAULTS for shape in (*FIRST_TURN, "after its tool")),
                    *((fault, "after its text") for fault in ("cut", "error event")),
                    *((fault, shape) for fault in FAULTS_OF_FIRST_TURN for shape in FIRST_TURN),
                ]
                yield [
                    Case(number=next(numbers), door=door, is_streamed=is_streamed, fault=fault, shape=shape)
                    for fault, shape in wanted
                ]


@contextmanager
def _hold_closed_port() -> Iterator[int]:
    """A port at which connections are refused: it is taken, and nothing listens."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield int(holder.getsockname()[1])


@pytest.mark.parametrize(
    "rounds", [pytest.param(7, marks=pytest.mark.long, id="thousand fail-overs"), pytest.param(1, id="few")]
)
@async_test(240)
async def test_a_fault_of_a_model_never_mixes_answers_nor_repeats_a_tool(
    tmp_path: Path, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COOL_DOWN_SECONDS", "MAX_COOL_DOWN_SECONDS"):
        monkeypatch.setattr(fallback, name, 0.0)
    for name in ("MODEL_FIRST_PAUSE", "MODEL_WAIT_FIRST_PAUSE"):
        monkeypatch.setattr(retry, name, 0.01)
    lanes = list(_list_cases(rounds))
    cases = {case.number: case for lane in lanes for case in lane}

    def find_case(received: Received) -> Case:
        found = re.search(rb"<(\d+)>", received.body)
        assert found is not None
        return cases[int(found[1])]

    usual = ScriptedModel(lambda received: find_case(received).answer_as_usual())
    second = ScriptedModel(lambda received: find_case(received).answer_as_second())
    async with (
        FaultyMCPServer() as tools,
        usual.serve() as first,
        second.serve() as standing,
    ):
        with _hold_closed_port() as port:
            models = [
                _write_model(f"{kind} {lane}", url, standing.url, **more)
                for lane in range(len(lanes))
                for kind, url, more in (
                    ("usual", first.url, {}),
                    ("silent", first.url, {"timeout": SILENCE}),
                    ("refused connection", f"http://127.0.0.1:{port}/v1", {}),
                )
            ]
            async with (
                run_gateway(tmp_path, mcp={"tools": tools}, models=models, is_checked=rounds == 1) as gateway,
                asyncio.TaskGroup() as group,
            ):
                gate = asyncio.Semaphore(AT_ONCE)
                session = await gateway.http_client()
                for number, lane in enumerate(lanes):
                    group.create_task(_ask_one_by_one(session, gate, number, lane))
        ran = [call.params["arguments"]["text"] for call in tools.calls("echo")]
    for case in cases.values():
        assert ran.count(case.name) == ("tool" in case.shape), case
    failed_over = sum(case.second_asked > 0 for case in cases.values() if case.shape in FIRST_TURN)
    assert failed_over == len(lanes) * len(FIRST_TURN) * (len(FAULTS) + len(FAULTS_OF_FIRST_TURN))


def _write_model(name: str, url: str, second: str, **more: Any) -> dict[str, Any]:
    stand_in = {"provider": "openai_compatible", "name": STAND_IN, "endpoint": second}
    model = {"provider": "openai_compatible", "name": "scripted", "endpoint": url, "fallback": [stand_in], **more}
    return {"name": name.replace(" ", "-"), "model": model}


async def _ask_one_by_one(
    session: aiohttp.ClientSession, gate: asyncio.Semaphore, lane: int, cases: Sequence[Case]
) -> None:
    async with gate:
        for case in cases:
            kind = case.fault if case.fault in ("silent", "refused connection") else "usual"
            model = f"{kind} {lane}".replace(" ", "-")
            answer = await _ask(session, case, model)
            _check(case, answer, model)


def _check(case: Case, answer: Answer, model: str) -> None:
    """Check what the client sees and what the models were asked. The tools are checked at the end."""
    is_background = case.door == "background"
    match case.shape:
        case "of text":
            assert answer == Answer(has_failed=False, text="second ends.", model=STAND_IN), case
            assert case.second_asked == 1, case
        case "with a tool":
            assert answer == Answer(has_failed=False, text="second begins. second ends.", model=STAND_IN), case
            assert case.second_asked == 2, case
        case "after its tool":
            assert case.second_asked == 0, case
            assert answer.has_failed is not is_background, case
            assert answer.text in (("usual begins. usual ends.",) if is_background else ("", "usual begins.")), case
            assert answer.model in ("", model), case
        case _:
            if case.second_asked and not case.is_streamed and not is_background:
                # Nothing of it was sent to the client: a turn that is not streamed can be asked again as a whole.
                assert answer == Answer(has_failed=False, text="second ends.", model=STAND_IN), case
                return
            assert (answer.has_failed, case.usual_asked, case.second_asked) == (True, 1, 0), case
            assert answer.text in ("", "usual begins."), case
            assert answer.model in ("", model), case
    if case.shape in FIRST_TURN:
        # A model that answers with an error is asked twice, unless it says that this is useless; a silent one is not.
        once = {"silent": 1, "429 with a long Retry-After": 1, "refused connection": 0}
        assert case.usual_asked == once.get(case.fault, 2), case


async def _ask(session: aiohttp.ClientSession, case: Case, model: str) -> Answer:
    messages = [{"role": "user", "content": case.name}]
    is_responses = case.door in ("/v1/responses", "background")
    body: dict[str, Any] = {"model": model, "stream": case.is_streamed}
    body |= {"input": case.name} if is_responses else {"messages": messages, "max_tokens": 100}
    if case.door == "background":
        body["background"] = True
    path = "/v1/responses" if is_responses else case.door
    code, found = await _send(session, "POST", path, body)
    if case.door == "background" and not case.is_streamed:
        code, found = await _send(session, "GET", f"{path}/{found[0]['id']}?stream=true")
        code, found = await _send(session, "GET", f"{path}/{found[0]['response']['id']}")
    read = {"/v1/chat/completions": _read_completion, "/v1/messages": _read_message}.get(case.door, _read_response)
    is_error = code != 200 or any(event.get("error") for event in found)
    text, models, has_failed = read(found)
    assert is_responses or len(set(models)) <= 1, "a stream of chunks or of a message names one model"
    return Answer(has_failed=is_error or has_failed, text=" ".join(text.split()), model=models[-1] if models else "")


async def _send(
    session: aiohttp.ClientSession, method: str, path: str, body: Any = None
) -> tuple[int, list[dict[str, Any]]]:
    """The status of an answer, and its events: one, if it is no stream."""
    async with session.request(method, path, data=None if body is None else orjson.dumps(body)) as answer:
        text = await answer.read()
    if answer.content_type == "application/json":
        return answer.status, [orjson.loads(text)]
    lines = text.splitlines()
    return answer.status, [orjson.loads(line[6:]) for line in lines if line.startswith(b"data: {")]


def _read_response(events: Sequence[dict[str, Any]]) -> tuple[str, list[str], bool]:
    """The text that was seen, the models that were named, and whether it says that it failed."""
    responses = [event.get("response", event) for event in events if "output" in event.get("response", event)]
    if not responses:
        return "", [], True
    parts = [part["text"] for item in responses[-1]["output"] for part in item.get("content") or ()]
    deltas = [event["delta"] for event in events if event.get("type") == "response.output_text.delta"]
    assert not deltas or deltas == parts or "".join(deltas).startswith("".join(parts)), events
    return "".join(deltas or parts), [each["model"] for each in responses], responses[-1]["status"] == "failed"


def _read_completion(events: Sequence[dict[str, Any]]) -> tuple[str, list[str], bool]:
    choices = [choice for event in events for choice in event.get("choices", ())]
    texts = [(choice.get("delta") or choice.get("message") or {}).get("content") or "" for choice in choices]
    return "".join(texts), [event["model"] for event in events if "model" in event], False


def _read_message(events: Sequence[dict[str, Any]]) -> tuple[str, list[str], bool]:
    blocks = [block for event in events for block in event.get("content") or ()]
    deltas = [event["delta"] for event in events if event.get("type") == "content_block_delta"]
    named = [event.get("message", event) for event in events] + [event.get("delta", {}) for event in events]
    text = "".join(each.get("text", "") for each in [*blocks, *deltas])
    return text, [each["model"] for each in named if isinstance(each, dict) and "model" in each], False

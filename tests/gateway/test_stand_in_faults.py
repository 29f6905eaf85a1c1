"""Every way in which a model cannot answer, at every door: its stand-in answers the turn as a whole, or not at all.

Two gateways share a database. What one of them does in the background is read from the other one.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import run_gateway
from storage.postgres_server import PostgresServer

from holodeck.providers.wrappers import fallback, retry
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.script import Step, Turn, cut, error_event, raw, status
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
MODELS = ("usual", "silent", "refused connection")
_DOORS_OF_A_ROUND = tuple(product(DOORS, (False, True)))
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
    """The cases of each lane. Those of one model of a lane are asked one after the other.

    In between the usual model has a first turn: so its circuit breaker stays closed, and each fault is met anew.
    """
    numbers = count()
    for _ in range(rounds):
        for door, is_streamed in _DOORS_OF_A_ROUND:
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


@pytest.fixture
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that failed is asked again at once."""
    for name in ("COOL_DOWN_SECONDS", "MAX_COOL_DOWN_SECONDS"):
        monkeypatch.setattr(fallback, name, 0.0)
    for name in ("MODEL_FIRST_PAUSE", "MODEL_WAIT_FIRST_PAUSE"):
        monkeypatch.setattr(retry, name, 0.01)


@asynccontextmanager
async def _run_two_gateways(
    folder: Path, database_url: str, models: list[dict[str, Any]], **config: Any
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """Clients of two gateways with the same database."""
    environ = {"DATABASE_URL": database_url, "SEAL_KEY": "k" * 64}
    shared: dict[str, Any] = {"storage": {"url": "${DATABASE_URL}"}, "seal_key": ["${SEAL_KEY}"], "environ": environ}
    async with AsyncExitStack() as stack:
        clients = []
        for name in ("one", "other"):
            (folder / name).mkdir()
            gateway = await stack.enter_async_context(run_gateway(folder / name, models=models, **shared, **config))
            clients.append(await gateway.http_client())
        yield clients


@pytest.mark.usefixtures("without_pauses")
@pytest.mark.parametrize(
    "rounds", [pytest.param(6, marks=pytest.mark.long, id="thousand fail-overs"), pytest.param(1, id="few")]
)
@async_test(240)
async def test_a_fault_of_a_model_never_mixes_answers_nor_repeats_a_tool(
    tmp_path: Path, rounds: int, postgres: PostgresServer
) -> None:
    database_url = await asyncio.to_thread(postgres.new_database)
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
                _run_two_gateways(
                    tmp_path, database_url, models, mcp={"tools": tools}, is_checked=rounds == 1
                ) as clients,
                asyncio.TaskGroup() as group,
            ):
                gate = asyncio.Semaphore(AT_ONCE)
                for number, lane in enumerate(lanes):
                    # One gateway gets the streams of a round, and the other one those of the next round.
                    asked = (number + number // len(_DOORS_OF_A_ROUND)) % len(clients)
                    for kind in MODELS:
                        # Those that only wait for a silent model take no turn of the others.
                        limit = gate if kind != "silent" else nullcontext()
                        same = [case for case in lane if _find_model(case) == kind]
                        group.create_task(
                            _ask_one_by_one(clients[asked], clients[1 - asked], limit, f"{kind} {number}", same)
                        )
        ran = [call.params["arguments"]["text"] for call in tools.calls("echo")]
    for case in cases.values():
        assert ran.count(case.name) == ("tool" in case.shape), case
    failed_over = sum(case.second_asked > 0 for case in cases.values() if case.shape in FIRST_TURN)
    assert failed_over == len(lanes) * len(FIRST_TURN) * (len(FAULTS) + len(FAULTS_OF_FIRST_TURN))


def _write_model(name: str, url: str, second: str, **more: Any) -> dict[str, Any]:
    stand_in = {"provider": "openai_compatible", "name": STAND_IN, "endpoint": second}
    model = {"provider": "openai_compatible", "name": "scripted", "endpoint": url, "fallback": [stand_in], **more}
    return {"name": name.replace(" ", "-"), "model": model}


def _find_model(case: Case) -> str:
    """Which of the models of a lane has the fault of a case."""
    return case.fault if case.fault in MODELS else "usual"


async def _ask_one_by_one(
    session: aiohttp.ClientSession,
    other: aiohttp.ClientSession,
    gate: AbstractAsyncContextManager[Any],
    name: str,
    cases: Sequence[Case],
) -> None:
    model = name.replace(" ", "-")
    async with gate:
        for case in cases:
            answer = await _ask(session, other, case, model)
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


async def _ask(session: aiohttp.ClientSession, other: aiohttp.ClientSession, case: Case, model: str) -> Answer:
    messages = [{"role": "user", "content": case.name}]
    is_responses = case.door in ("/v1/responses", "background")
    body: dict[str, Any] = {"model": model, "stream": case.is_streamed}
    body |= {"input": case.name} if is_responses else {"messages": messages, "max_tokens": 100}
    if case.door == "background":
        body["background"] = True
    path = "/v1/responses" if is_responses else case.door
    code, found = await _send(session, "POST", path, body)
    if case.door == "background" and not case.is_streamed:
        code, found = await _send(other, "GET", f"{path}/{found[0]['id']}?stream=true")
        code, found = await _send(other, "GET", f"{path}/{found[0]['response']['id']}")
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


# The events of an answer of four words, which is cut.
WORDS = ("us", "ual ", "an", "swer")
WHOLE = b"".join(
    b"data: %b\n\n" % orjson.dumps({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
    for word in WORDS
)
CUT_LANES = 8


@pytest.mark.usefixtures("without_pauses")
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.long, id="each byte"), pytest.param(60, id="few")])
@async_test(240)
async def test_a_stream_that_is_cut_at_any_byte_is_asked_again_only_before_its_first_word(
    tmp_path: Path, step: int, postgres: PostgresServer
) -> None:
    database_url = await asyncio.to_thread(postgres.new_database)
    asked = {name: Counter[int]() for name in ("usual", "second")}

    def answer(name: str, received: Received) -> Turn:
        found = re.search(rb"<(\d+)>", received.body)
        if found is None:
            return say(name)
        asked[name][int(found[1])] += 1
        return say(name) if name == "second" else [raw(WHOLE[: int(found[1]) // len(DOORS)]), cut()]

    async def ask_one_by_one(clients: list[aiohttp.ClientSession], lane: int) -> None:
        for number in range(lane * step * len(DOORS), (len(WHOLE) + 1) * len(DOORS), CUT_LANES * step * len(DOORS)):
            for place, door in enumerate(DOORS):
                case = Case(number=number + place, door=door, is_streamed=True, fault="cut", shape="of text")
                session, other = clients[:: 1 if (number + place) % 2 else -1]
                answer = await _ask(session, other, case, f"usual-{lane}")
                times = (asked["usual"][case.number], asked["second"][case.number])
                words_seen = ["".join(WORDS[:count]).strip() for count in range(1, len(WORDS) + 1)]
                assert (answer.has_failed, answer.text, times) in (
                    (False, "second", (2, 1)),
                    *((True, text, (1, 0)) for text in words_seen),
                ), case
                # So its circuit breaker stays closed.
                assert (await _ask(session, other, replace(case, number=-1), f"usual-{lane}")).text == "usual"

    async with (
        ScriptedModel(partial(answer, "usual")).serve() as first,
        ScriptedModel(partial(answer, "second")).serve() as standing,
    ):
        models = [_write_model(f"usual {lane}", first.url, standing.url) for lane in range(CUT_LANES)]
        async with (
            _run_two_gateways(tmp_path, database_url, models, is_checked=step > 1) as clients,
            asyncio.TaskGroup() as group,
        ):
            for lane in range(CUT_LANES):
                group.create_task(ask_one_by_one(clients, lane))
    counted = len(range(0, len(WHOLE) + 1, step)) * len(DOORS)
    assert len(asked["usual"]) == counted
    assert 0 < len(asked["second"]) < counted

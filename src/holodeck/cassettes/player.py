"""Replay of a track: the entry of each request is found by what it asks, and answers come in the recorded order.

Requests are compared with the entries of the same model or server that are not used yet, first to last, so that
concurrent requests may come in another order than they were recorded in. Answers, notifications and requests of servers
come one at a time, in the order of the entries, each after everything before it has happened. Requests of
`UNORDERED_METHODS` are answered at once, as their number and order depend on time. If what comes before never happens,
because the agent has changed, the next one comes after `STALL_SECONDS`.

A request without an entry is a mismatch. The first one is stored, fails everything that waits, and is raised by every
later request, so that no part of the agent can hide it.
"""

from __future__ import annotations

import asyncio
import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holodeck.cassettes.cassette import ANSWERS, Entry, TrackData
from holodeck.cassettes.cassette_file import format_yaml
from holodeck.cassettes.model_data import decode_events, decode_model_error, encode_request
from holodeck.cassettes.server_data import (
    COURTESY_METHODS,
    HANDSHAKE_METHODS,
    LISTEN_METHOD,
    REPEATABLE_METHODS,
    UNORDERED_METHODS,
    ReplayedTransport,
)
from holodeck.cassettes.track import Redactor, TrackBase, Workspace
from holodeck.lib.errors import CassetteMismatchError
from holodeck.lib.redaction import MASK
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper

if TYPE_CHECKING:
    from holodeck.tools.mcp.transports.base import OnMessage, Transport, TransportSetup

# Lines of a difference that are shown: the first ones say what has changed.
MAX_DIFF_LINES = 120


def is_same(recorded: Any, asked: Any) -> bool:
    """Return whether plain data is what was recorded. A mask in the recording stands for any text in its place."""
    if isinstance(recorded, str) and isinstance(asked, str):
        if recorded == asked:
            return True
        return MASK in recorded and _mask_pattern(recorded).fullmatch(asked) is not None
    if isinstance(recorded, dict) and isinstance(asked, dict):
        return recorded.keys() == asked.keys() and all(is_same(recorded[key], asked[key]) for key in recorded)
    if isinstance(recorded, list) and isinstance(asked, list):
        return len(recorded) == len(asked) and all(map(is_same, recorded, asked))
    return bool(recorded == asked) and isinstance(recorded, bool) == isinstance(asked, bool)


def format_diff(recorded: Mapping[str, Any], asked: Mapping[str, Any], entry: int) -> str:
    """Return a unified diff of both as YAML. Tools that are the same are shown by their names."""
    before, after = format_yaml(_name_tools(recorded, asked)), format_yaml(_name_tools(asked, recorded))
    lines = list(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"recorded (entry {entry})", "asked now", lineterm=""
        )
    )
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"... and {len(lines) - MAX_DIFF_LINES} more lines"]
    return "\n".join(lines)


def _mask_pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*?".join(map(re.escape, text.split(MASK))), re.DOTALL)


def _name_tools(data: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    request = data.get("request")
    if not isinstance(request, dict) or "tools" not in request:
        return data
    others = other.get("request", {}).get("tools", []) if isinstance(other.get("request"), dict) else []
    tools = [tool["name"] if tool in others else tool for tool in request["tools"]]
    return {**data, "request": {**request, "tools": tools}}


class ReplayedModel(ModelWrapper):
    """Answers in place of another model, of which only the name is used."""

    def __init__(self, inner: ModelProvider, track: ReplayedTrack) -> None:
        super().__init__(inner)
        self._track = track

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Yield the recorded deltas. Raises `CassetteMismatchError`, and the `ModelError` that was recorded."""
        entry = self._track.localize(await self._track.ask_model(self.name, encode_request(request)))
        if events := decode_events(entry.get("answer", ())):
            yield events
        if "error" in entry:
            raise decode_model_error(entry["error"])


# Seconds after which the next message comes although something before it has not happened.
STALL_SECONDS = 5.0
# Steps of the event loop between two messages, so that the agent has handled one before the next comes.
_SETTLE_STEPS = 10
_INITIALIZED = "notifications/initialized"


@dataclass(eq=False)
class _Request:
    """A recorded request, and whether it was asked in this run."""

    entry: Entry
    answer: Entry | None = None
    is_used: bool = False
    waiter: asyncio.Future[Entry] | None = None

    @property
    def method(self) -> str:
        """The method of a request to a server; empty for one to a model."""
        return "" if "model" in self.entry else str(self.entry["request"])


@dataclass(eq=False)
class _Step:
    """One thing that happens in a track: a request is asked, or a message comes."""

    kind: Literal["asked", "answered", "message"]
    entry: Entry
    request: _Request | None = None
    needs: tuple[Entry, ...] = ()
    """The entries of the handshake that come before a message of a server."""
    is_done: bool = False


class ReplayedTrack(TrackBase):
    """A track that is being replayed. No model and no server is asked."""

    is_replay: Literal[True] = True

    def __init__(self, data: TrackData, path: Path, hint: str, redactor: Redactor, workspace: Workspace) -> None:
        """`path`: the cassette, for errors. `hint`: how it is recorded anew."""
        super().__init__(data.name, redactor, workspace)
        self.mismatch: CassetteMismatchError | None = None
        self._path = path
        self._hint = hint
        self._requests: dict[int, _Request] = {}
        self._entries = {entry["entry"]: entry for entry in data.entries}
        self._steps: list[_Step] = []
        self._build_steps(data.entries)
        self._at = 0
        self._happened: set[int] = set()
        """Numbers of the entries that are not requests, and that have happened."""
        self._transports: dict[str, ReplayedTransport] = {}
        self._pump_loop: asyncio.AbstractEventLoop | None = None
        self._stall: asyncio.TimerHandle | None = None

    def open_model(self, model: ModelProvider) -> ModelProvider:
        return ReplayedModel(model, self)

    def build_transport(self, setup: TransportSetup, on_message: OnMessage) -> Transport:
        self._redactor.add_server(setup.tool, setup.errors)
        return ReplayedTransport(setup, on_message, self)

    @property
    def unused(self) -> list[Entry]:
        """The entries of requests that have an answer and were not asked, without those that depend on time."""
        ignored = UNORDERED_METHODS | {LISTEN_METHOD, "tasks/cancel"}
        return [
            request.entry
            for request in self._requests.values()
            if not request.is_used and request.answer is not None and request.method not in ignored
        ]

    def localize(self, value: Any) -> Any:
        """Return recorded data with the folder of this run in its place."""
        return self._workspace.to_local(value)

    def ask_model(self, name: str, request: Mapping[str, Any]) -> asyncio.Future[Entry]:
        """Return the entry with the answer to a request, when its time comes. Raises `CassetteMismatchError`."""
        asked = {"model": name, "request": self._normalize(request)}
        return self._wait_answer(self._take(lambda each: "model" in each.entry, asked))

    def ask_server(
        self, server: str, method: str, params: Any, register: Callable[[Entry], None]
    ) -> asyncio.Future[Entry]:
        """Return the entry with the answer to a request, when its time comes. Raises `CassetteMismatchError`.

        `register` is called with the entry of the request before anything else happens.
        """
        asked = {"server": server, "request": method}
        if params is not None:
            asked["params"] = self._normalize(params)
        if method in COURTESY_METHODS:
            return self._answer_now(self._find_courtesy(server, method))
        found = self._take(lambda each: each.entry.get("server") == server, asked)
        register(found.entry)
        if method in UNORDERED_METHODS and found.answer is not None:
            return self._answer_now(found.answer)
        return self._wait_answer(found)

    def open_server(self, server: str, transport: ReplayedTransport) -> Mapping[str, Any] | None:
        """Let the messages of a server go to this transport. Returns the failure of its start, if there was one.

        Raises `CassetteMismatchError` for a server that was not used in the recording.
        """
        self._transports[server] = transport
        if not any(entry.get("server") == server for entry in self._entries.values()):
            raise self._fail(f"asks the MCP server '{server}', which was not used then", None, "")
        for entry in self._entries.values():
            if entry.get("server") == server and "opened" in entry and entry["entry"] not in self._happened:
                self._happened.add(entry["entry"])
                return entry.get("failure")
        return None

    def record_notification(self, server: str, method: str) -> None:
        """Record that the agent has sent a notification."""
        for entry in self._entries.values():
            is_same_kind = entry.get("server") == server and entry.get("notification_sent") == method
            if is_same_kind and entry["entry"] not in self._happened:
                self._happened.add(entry["entry"])
                break
        self._wake()

    def check_reply(self, number: int, reply: Mapping[str, Any]) -> None:
        """Compare the agent's answer to a request of a server with the recorded one. A difference is a mismatch."""
        asked = self._entries[number]
        answers = (entry for entry in self._entries.values() if entry.get("answer_to", entry["entry"]) == number)
        recorded = next((entry["reply"] for entry in answers if "reply" in entry), None)
        found = self._normalize(reply)
        if recorded is not None and not is_same(self._redactor.redact(recorded), found):
            text = f"answers {asked['asked']} of the MCP server '{asked['server']}' differently"
            self._fail(text, number, format_diff({"reply": recorded}, {"reply": found}, number))

    def raise_mismatch(self) -> None:
        """Raise the first mismatch, if there was one."""
        if self.mismatch is not None:
            raise self.mismatch

    def _build_steps(self, entries: list[Entry]) -> None:
        handshakes: dict[str, tuple[Entry, ...]] = {}
        for entry in entries:
            server = entry.get("server", "")
            if "opened" in entry:
                handshakes[server] = ()
            is_handshake = "model" not in entry and entry.get("request") in HANDSHAKE_METHODS
            if is_handshake or entry.get("notification_sent") == _INITIALIZED:
                handshakes[server] = (*handshakes.get(server, ()), entry)
            if "model" in entry or "request" in entry:
                request = self._requests[entry["entry"]] = _Request(entry)
                self._add_step("asked", entry, request)
                if any(key in entry for key in ANSWERS):
                    request.answer = entry
                    self._add_step("answered", entry, request)
            elif entry.get("answer_to") in self._requests:
                request = self._requests[entry["answer_to"]]
                request.answer = entry
                self._add_step("answered", entry, request)
            elif any(key in entry for key in ("notification", "asked", "lost")):
                self._steps.append(_Step("message", entry, needs=handshakes.get(server, ())))

    def _add_step(self, kind: Literal["asked", "answered"], entry: Entry, request: _Request) -> None:
        if request.method not in UNORDERED_METHODS:
            self._steps.append(_Step(kind, entry, request))

    def _normalize(self, value: Any) -> Any:
        return self._workspace.to_portable(self._redactor.redact(value))

    def _take(self, is_candidate: Callable[[_Request], bool], asked: dict[str, Any]) -> _Request:
        """Return the first unused request that asks the same, and mark it as used. Raises `CassetteMismatchError`."""
        self.raise_mismatch()
        candidates = [request for request in self._requests.values() if is_candidate(request)]
        method = "" if "model" in asked else asked["request"]
        same_method = [each for each in candidates if each.method == method]
        matching = (each for each in same_method if not each.is_used and self._is_match(each, asked))
        found = next(matching, None)
        if found is None and method in REPEATABLE_METHODS:
            used = [each for each in same_method if each.is_used and self._is_match(each, asked)]
            found = used[-1] if used else None
        if found is None:
            raise self._build_mismatch(asked, candidates, same_method)
        found.is_used = True
        return found

    def _is_match(self, request: _Request, asked: Mapping[str, Any]) -> bool:
        if request.method in HANDSHAKE_METHODS:
            return True
        question = _take_question(request.entry)
        # The second time, because what is no secret of the recording may be one of this run.
        return is_same(question, asked) or is_same(self._redactor.redact(question), asked)

    def _find_courtesy(self, server: str, method: str) -> Entry:
        for request in self._requests.values():
            if request.entry.get("server") == server and request.method == method and not request.is_used:
                request.is_used = True
                return request.answer or {"result": {}}
        return {"result": {}}

    def _build_mismatch(
        self, asked: dict[str, Any], candidates: list[_Request], same_method: list[_Request]
    ) -> CassetteMismatchError:
        is_model = "model" in asked
        what = (
            f"the model '{asked['model']}'" if is_model else f"the MCP server '{asked['server']}' ({asked['request']})"
        )
        unused = [each for each in same_method if not each.is_used] or [each for each in candidates if not each.is_used]
        tool = (asked.get("params") or {}).get("name") if not is_model else None
        nearest = next(
            (each for each in unused if tool is None or (each.entry.get("params") or {}).get("name") == tool),
            unused[0] if unused else None,
        )
        if nearest is None:
            more = "once more" if same_method else "something"
            return self._fail(f"asks {what} {more}, and no such request is left in the cassette", None, "", asked)
        recorded = _take_question(nearest.entry)
        number = nearest.entry["entry"]
        return self._fail(f"asks {what} something else", number, format_diff(recorded, asked, number))

    def _fail(
        self, what: str, number: int | None, diff: str, asked: Mapping[str, Any] | None = None
    ) -> CassetteMismatchError:
        """Store a mismatch, if it is the first, and fail everything that waits. Returns the first one."""
        if self.mismatch is None:
            from holodeck.cassettes.cassette_file import format_yaml

            track = f", track '{self.name}'" if self.name else ""
            entry = f", entry {number}" if number is not None else ""
            shown = f"\n{diff}" if diff else f"\nAsked now:\n{format_yaml(dict(asked)).rstrip()}" if asked else ""
            text = f"{self._path}{track}{entry}: the agent {what}.{shown}\n{self._hint}"
            self.mismatch = CassetteMismatchError(text, file=str(self._path), track=self.name, entry=number, diff=diff)
        for request in self._requests.values():
            if request.waiter is not None and not request.waiter.done():
                request.waiter.set_exception(self.mismatch)
        return self.mismatch

    def _wait_answer(self, request: _Request) -> asyncio.Future[Entry]:
        request.waiter = asyncio.get_running_loop().create_future()
        self._wake()
        return request.waiter

    def _answer_now(self, answer: Entry) -> asyncio.Future[Entry]:
        future: asyncio.Future[Entry] = asyncio.get_running_loop().create_future()
        future.set_result(answer)
        # The end of a handshake lets messages of the server come.
        self._wake()
        return future

    def _wake(self) -> None:
        """Let the next message come, a few steps of the event loop from now."""
        loop = asyncio.get_running_loop()
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._pump_loop is not loop:
            self._pump_loop = loop
            loop.call_soon(self._pump, loop, _SETTLE_STEPS)

    def _pump(self, loop: asyncio.AbstractEventLoop, steps_left: int) -> None:
        if steps_left:
            loop.call_soon(self._pump, loop, steps_left - 1)
            return
        self._pump_loop = None
        step = self._find_next()
        if step is not None:
            self._perform(step)
            self._wake()
        elif any(self._is_ready(each) for each in self._steps[self._at :]):
            self._stall = loop.call_later(STALL_SECONDS, self._break_stall)

    def _break_stall(self) -> None:
        step = next((each for each in self._steps[self._at :] if self._is_ready(each)), None)
        if step is not None:
            self._perform(step)
            self._wake()

    def _find_next(self) -> _Step | None:
        """Return the next step if it is a message that can come now. Steps that have happened are passed."""
        while self._at < len(self._steps):
            step = self._steps[self._at]
            is_over = step.is_done or (step.kind == "asked" and step.request is not None and step.request.is_used)
            is_optional = step.request is not None and step.request.method == LISTEN_METHOD and not step.request.is_used
            if not is_over and not is_optional:
                return step if self._is_ready(step) else None
            self._at += 1
        return None

    def _is_ready(self, step: _Step) -> bool:
        """Return whether a message can come: its request was asked, or the handshake of its server is over."""
        if step.is_done or step.kind == "asked":
            return False
        if step.request is not None:
            return step.request.is_used
        is_over = all(
            entry["entry"] in self._happened
            or (entry["entry"] in self._requests and self._requests[entry["entry"]].is_used)
            for entry in step.needs
        )
        return is_over and step.entry["server"] in self._transports

    def _perform(self, step: _Step) -> None:
        step.is_done = True
        if step.request is not None:
            waiter = step.request.waiter
            if waiter is not None and not waiter.done():
                waiter.set_result(step.entry)
            return
        self._transports[step.entry["server"]].receive(self.localize(step.entry))


def _take_question(entry: Entry) -> dict[str, Any]:
    """Return the part of an entry that says what was asked."""
    return {key: entry[key] for key in ("model", "server", "request", "params") if key in entry}

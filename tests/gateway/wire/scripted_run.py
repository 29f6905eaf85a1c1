"""A run of the real engine with a scripted model, and the events and resource that a writer builds from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from fake_executor import FakeExecutor

from holodeck.engine.event_log import EventLog
from holodeck.engine.loop import Run, RunRequest
from holodeck.gateway.sealing import Seal
from holodeck.gateway.wire.request.body import ResponseRequest, read_request
from holodeck.gateway.wire.request.parsed_input import SealedInput
from holodeck.gateway.wire.response.call_items import DeclaredTool, ServerListing
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib.limits import DEFAULT_CONTEXT_BYTES
from holodeck.models.events import Event, RunResult
from holodeck.models.items import FunctionCall, Item
from holodeck.testing import ScriptedModel
from holodeck.tools.calls import ArgumentChecker
from holodeck.tools.toolbox import Toolbox

WireEvent = dict[str, Any]
CREATED_AT = 1_700_000_000.0


@dataclass(kw_only=True)
class DeclaredServers:
    """Tools of declared servers: the label of each tool, and which of them need approval."""

    labels: Mapping[str, str]
    approval: frozenset[str] = frozenset()
    failed: Mapping[str, str] = field(default_factory=dict)

    def find_declared_tool(self, name: str) -> DeclaredTool | None:
        label = self.labels.get(name)
        if label is None:
            return None
        return DeclaredTool(server_label=label, tool=name, needs_approval=name in self.approval)

    def get_listings(self) -> Sequence[ServerListing]:
        good = [
            ServerListing(
                server_label=label, tools=[_tool_entry(tool) for tool, owner in self.labels.items() if owner == label]
            )
            for label in dict.fromkeys(self.labels.values())
        ]
        return [*good, *(ServerListing(server_label=label, error=error) for label, error in self.failed.items())]


def _tool_entry(name: str) -> dict[str, Any]:
    return {"name": name, "description": f"Does {name}.", "input_schema": {"type": "object"}, "annotations": None}


@dataclass(kw_only=True)
class RunOutcome:
    """Request, result, events and resource of a run."""

    request: ResponseRequest
    result: RunResult
    log: list[Event]
    events: list[WireEvent]
    resource: dict[str, Any]
    model: ScriptedModel

    @property
    def types(self) -> list[str]:
        return [event["type"] for event in self.events]

    def events_of_type(self, kind: str) -> list[WireEvent]:
        return [event for event in self.events if event["type"] == kind]


async def open_sealed_items(value: object, seal: Seal) -> SealedInput:
    """The sealed items of an input, as a gateway opens them before it reads it."""
    sealed = SealedInput(seal, max_bytes=DEFAULT_CONTEXT_BYTES, acquire=lambda _size: None)
    await sealed.open(value if isinstance(value, list) else (), param="input")
    return sealed


async def play_run(
    model: ScriptedModel,
    body: Mapping[str, Any] | None = None,
    *,
    executor: FakeExecutor | None = None,
    declared: DeclaredServers | None = None,
    context: tuple[Item, ...] = (),
    pending: tuple[FunctionCall, ...] = (),
    during: Callable[[asyncio.Task[RunResult]], Any] | None = None,
    **settings: Any,
) -> RunOutcome:
    """Run a request and feed every event to a writer. `during` gets the running task, for example to cancel it."""
    full_body = {"model": "demo", "input": "hello", **(body or {})}
    sealed = await open_sealed_items(full_body["input"], settings["seal"]) if "seal" in settings else None
    request = read_request(full_body, sealed=sealed)
    choice = request.tool_choice.resolve(lambda label, tool: [tool] if tool else [])
    hold = None if declared is None else (lambda call: call.name in declared.approval)
    toolbox = Toolbox(
        [executor] if executor else [],
        checker=ArgumentChecker(),
        client_functions=request.tools.functions,
        needs_approval=hold,
    )
    writer = ResponseWriter(
        request,
        response_id="resp_1",
        created_at=CREATED_AT,
        servers=declared,
        pending=pending,
        **{"mode": "portable", **settings},
    )
    log = EventLog()
    first = request.build_model_request(context, choice)
    run_request = RunRequest(run_id="run_1", model=first, pending=pending, max_tool_calls=request.max_tool_calls)
    task = asyncio.create_task(Run(run_request, model, toolbox).execute(log))
    if during is not None:
        await during(task)
    seen: list[Event] = []
    payloads: list[bytes] = []
    async for _, event in log.read():
        seen.append(event)
        payloads += writer.feed(event)
    result = seen[-1].result  # type: ignore[union-attr] # the last event of a log is RunFinished
    await asyncio.gather(task, return_exceptions=True)
    return RunOutcome(
        request=request,
        result=result,
        log=seen,
        events=[orjson.loads(payload) for payload in payloads],
        resource=writer.build_resource(),
        model=model,
    )


def check_well_formed(played: RunOutcome) -> None:
    """Check the invariants of every stream, however its run ended."""
    events = played.events
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    assert events[1]["type"] == "response.in_progress"
    ends = {"response.completed", "response.failed", "response.incomplete"}
    assert [event["type"] for event in events if event["type"] in ends] == [events[-1]["type"]]
    assert events[-1]["response"] == played.resource
    assert played.resource["usage"] is not None
    added = [event for event in events if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == list(range(len(added)))
    done = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    assert [done[index] for index in range(len(added))] == played.resource["output"]
    for event in added:
        assert done[event["output_index"]]["id"] == event["item"]["id"]
    _check_deltas(events, played.resource["output"])


def _check_deltas(events: list[WireEvent], output: list[WireEvent]) -> None:
    deltas: dict[int, str] = {}
    for event in events:
        if event["type"].endswith(".delta"):
            assert event["item_id"] == output[event["output_index"]]["id"]
            deltas[event["output_index"]] = deltas.get(event["output_index"], "") + event["delta"]
    for index, text in deltas.items():
        item = output[index]
        parts = [*item.get("content", ()), *item.get("summary", ())]
        assert text == (item["arguments"] if "arguments" in item else "".join(part["text"] for part in parts))

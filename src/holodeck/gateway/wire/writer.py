"""A run as the client sees it: events go in, wire events come out, and the resource says exactly what was streamed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import orjson

from holodeck.gateway.wire.encoder import Encoder
from holodeck.gateway.wire.endings import Ending, ending_of
from holodeck.gateway.wire.ids import approval_id
from holodeck.gateway.wire.input_items import REASONING_PURPOSE
from holodeck.gateway.wire.mcp_items import (
    MCPRoute,
    OpenMCPCall,
    Routes,
    WireItem,
    write_approval_request,
    write_listing,
)
from holodeck.gateway.wire.open_items import OpenCall, OpenItem, OpenMessage, OpenReasoning
from holodeck.gateway.wire.options import ENCRYPTED_REASONING
from holodeck.gateway.wire.parts import show_output
from holodeck.gateway.wire.request import ResponseRequest
from holodeck.gateway.wire.resource import Dialect, ResponseResource
from holodeck.gateway.wire.seal import Seal
from holodeck.lib.clock import Clock, wall_clock
from holodeck.lib.ids import new_id
from holodeck.models.events import (
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    RunFinished,
    RunResult,
    RunStarted,
    TextAdded,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, Message, Reasoning

Mode = Literal["portable", "openai"]
UNFINISHED = "The run ended before this call had a result."


class ResponseWriter:
    """Writes one response. `feed` it every event of the run, in order; a silent one only keeps the resource."""

    def __init__(
        self,
        request: ResponseRequest,
        *,
        response_id: str,
        created_at: float,
        model: str = "",
        mode: Mode | None = None,
        routes: Routes | None = None,
        pending: Sequence[FunctionCall] = (),
        approved: Collection[str] = (),
        listed: Collection[str] | None = None,
        dialect: Dialect = "openai",
        seal: Seal | None = None,
        is_silent: bool = False,
        clock: Clock = wall_clock,
    ) -> None:
        """`pending`: calls of an earlier response that run first; `approved`: the call ids that a person approved.

        `listed`: labels of servers whose tools are in the context already.
        """
        self._request = request
        self._frame = ResponseResource(
            request,
            response_id=response_id,
            created_at=created_at,
            model=model or request.model or "",
            dialect=dialect,
        )
        is_openai = (mode or ("openai" if request.declares_mcp else "portable")) == "openai"
        self._routes = routes if is_openai else None
        self._waiting = {call.call_id: call for call in pending}
        self._approved = frozenset(approved)
        self._listed: Collection[str] | None = request.input.listed if listed is None else listed
        self._dialect = dialect
        self._seal = seal
        self._clock = clock
        self._encoder = Encoder(is_silent=is_silent, is_obfuscated=request.is_obfuscated)
        self._output: list[WireItem] = []
        self._open: dict[str, OpenItem] = {}
        self._places: dict[str, int] = {}
        self._running: dict[str, OpenMCPCall | None] = {}
        self._ahead: dict[str, str] = {}
        self._asks_client = False
        self._is_begun = False
        self._status = "queued"
        self._end: dict[str, Any] = {}

    def resource(self) -> dict[str, Any]:
        """The response as it is now."""
        return self._frame.at(self._status, [item for item in self._output if item], **self._end)

    @property
    def is_finished(self) -> bool:
        return bool(self._end)

    @property
    def sequence(self) -> int:
        """The number of the next event."""
        return self._encoder.sequence

    def queue(self) -> list[bytes]:
        """The first events of a response that has to wait for its turn."""
        self._is_begun = True
        self._encoder.emit("response.created", response=self.resource())
        self._encoder.emit("response.queued", response=self.resource())
        return self._encoder.take()

    def feed(self, event: Event) -> list[bytes]:
        """What this event means on the wire: complete payloads, often none."""
        match event:
            case TextAdded(item_id=item_id, text=text):
                self._message(item_id).more(text)
            case ReasoningAdded(item_id=item_id, text=text):
                self._reasoning(item_id).more(text)
            case CallAdded(name=name):
                if self._request.is_client(name):
                    self._call(event.item_id, event.call_id, name).more(event.arguments)
            case ItemFinished(item=item):
                self._finished(item)
            case ToolStarted(call_id=call_id):
                self._list_servers()
                self._started(call_id)
            case ToolFinished(call_id=call_id):
                call = self._running.get(call_id)
                if call is not None:
                    self._output[call.index] = call.finish(event.output, event.metadata)
                    del self._running[call_id]
            case RunStarted():
                self._begin()
            case TurnStarted():
                self._list_servers()
            case RunFinished(result=result):
                self._finish(result)
        return self._encoder.take()

    def _begin(self) -> None:
        self._status = "in_progress"
        if not self._is_begun:
            self._is_begun = True
            self._encoder.emit("response.created", response=self.resource())
        self._encoder.emit("response.in_progress", response=self.resource())

    def _reserve(self) -> int:
        """The place of the next item; what stands there is seen only when it is done."""
        self._output.append({})
        return len(self._output) - 1

    def _message(self, item_id: str) -> OpenMessage:
        found = self._open.get(item_id)
        if not isinstance(found, OpenMessage):
            found = OpenMessage(self._encoder, self._reserved(item_id), item_id)
            self._open[item_id] = found
        return found

    def _reasoning(self, item_id: str) -> OpenReasoning:
        found = self._open.get(item_id)
        if not isinstance(found, OpenReasoning):
            is_summary = self._request.answer.summary is not None
            place = self._reserved(item_id)
            found = OpenReasoning(self._encoder, place, item_id, dialect=self._dialect, is_summary=is_summary)
            self._open[item_id] = found
        return found

    def _call(self, item_id: str, call_id: str, name: str) -> OpenCall:
        found = self._open.get(item_id)
        if not isinstance(found, OpenCall):
            found = OpenCall(self._encoder, self._reserved(item_id), item_id, call_id, name)
            self._open[item_id] = found
        return found

    def _reserved(self, item_id: str) -> int:
        self._places[item_id] = self._reserve()
        return self._places[item_id]

    def _close(self, item_id: str, item: WireItem) -> None:
        del self._open[item_id]
        self._output[self._places[item_id]] = item

    def _finished(self, item: Item) -> None:
        match item:
            case Message():
                self._finish_message(item)
            case Reasoning():
                self._finish_reasoning(item)
            case FunctionCall() if self._request.is_client(item.name):
                self._asks_client = True
                self._whole_call(item)
            case FunctionCall():
                self._waiting[item.call_id] = item  # not shown before it runs: the turn may be a mixed one
            case FunctionCallOutput():
                self._write_output(item.call_id, item.id, show_output(item.content), "completed")

    def _finish_message(self, item: Message) -> None:
        """What was streamed stands. A provider that tells two messages in one stream has told the second already."""
        is_streamed = item.id in self._open
        if not is_streamed and item.text and self._is_told("message", item.text):
            return
        message = self._message(item.id)
        if is_streamed:
            self._told("message", message.text, item.text)
        else:
            message.more(item.text)
        self._close(item.id, message.close())

    def _finish_reasoning(self, item: Reasoning) -> None:
        text = item.text or item.summary
        is_streamed = item.id in self._open
        is_told = not is_streamed and self._is_told("reasoning", text)
        encrypted = self._encrypted(item)
        if is_told and encrypted is None:
            return
        reasoning = self._reasoning(item.id)
        if is_streamed:
            self._told("reasoning", reasoning.text, text)
        elif text and not is_told:
            reasoning.more(text)
        self._close(item.id, reasoning.close(encrypted=encrypted))

    def _told(self, kind: str, streamed: str, text: str) -> None:
        self._ahead[kind] = streamed[len(text) :] if streamed.startswith(text) else ""

    def _is_told(self, kind: str, text: str) -> bool:
        ahead = self._ahead.get(kind, "")
        if not text or not ahead.startswith(text):
            return False
        self._ahead[kind] = ahead[len(text) :]
        return True

    def _encrypted(self, item: Reasoning) -> str | None:
        if not item.opaque or self._seal is None or ENCRYPTED_REASONING not in self._request.include:
            return None
        return self._seal.close(REASONING_PURPOSE, orjson.dumps(dict(item.opaque)))

    def _whole_call(self, call: FunctionCall) -> None:
        item_id = call.id or call.call_id
        is_streamed = item_id in self._open
        opened = self._call(item_id, call.call_id, call.name)
        if not is_streamed:
            opened.more(call.arguments)
        self._close(item_id, opened.close())

    def _write_output(self, call_id: str, item_id: str, output: Any, status: str) -> None:
        if call_id not in self._running:  # an `mcp_call` has its output in itself
            return
        del self._running[call_id]
        item = {"id": item_id, "type": "function_call_output", "status": status, "call_id": call_id, "output": output}
        self._write(item)

    def _write(self, item: WireItem) -> None:
        index = self._reserve()
        self._encoder.emit("response.output_item.added", output_index=index, item=item)
        self._encoder.emit("response.output_item.done", output_index=index, item=item)
        self._output[index] = item

    def _list_servers(self) -> None:
        if self._listed is None or self._routes is None:
            return
        for listing in self._routes.listings():
            if listing.server_label not in self._listed:
                index = self._reserve()
                self._output[index] = write_listing(listing, self._encoder, index)
        self._listed = None

    def _started(self, call_id: str) -> None:
        call = self._waiting.pop(call_id, None)
        if call is None:
            return
        route = self._route(call)
        if route is None:
            self._whole_call(call)
            self._running[call_id] = None
            return
        approval = approval_id(call) if call_id in self._approved else None
        self._running[call_id] = OpenMCPCall(call, route, self._encoder, self._reserve(), approval=approval)

    def _route(self, call: FunctionCall) -> MCPRoute | None:
        return None if self._routes is None else self._routes.route(call.name)

    def _finish(self, result: RunResult) -> None:
        self._close_open()
        asks_approval = False
        for call in result.pending:
            route = self._route(call)
            if route is not None and route.needs_approval:
                index = self._reserve()
                self._output[index] = write_approval_request(call, route, self._encoder, index)
                asks_approval = True
        self._end_with(ending_of(result, is_only_approval=asks_approval and not self._asks_client), result)

    def _close_open(self) -> None:
        """Whatever is half written when the run ends is closed as incomplete."""
        for item_id, item in list(self._open.items()):
            self._close(item_id, item.close("incomplete"))
        for call_id, call in list(self._running.items()):
            if call is None:
                self._write_output(call_id, new_id("out"), UNFINISHED, "incomplete")
            else:
                self._output[call.index] = call.abandon()

    def _end_with(self, ending: Ending, result: RunResult) -> None:
        self._status = ending.status
        self._end = {
            "completed_at": self._clock() if ending.status == "completed" else None,
            "error": ending.error,
            "incomplete": ending.incomplete,
            "usage": result.usage,
        }
        if ending.error is not None:
            flat = {"code": ending.error["code"], "message": ending.error["message"], "param": None}
            self._encoder.emit("error", error={"type": ending.error_type, **flat}, **flat)
        self._encoder.emit(ending.event, response=self.resource())

"""A run as the client sees it: events go in, wire events come out, and the resource says exactly what was streamed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal

import orjson

from holodeck.gateway.wire.calls import Calls
from holodeck.gateway.wire.dialects import Dialect
from holodeck.gateway.wire.encoder import Encoder
from holodeck.gateway.wire.endings import Ending, ending_of
from holodeck.gateway.wire.mcp_items import Routes, write_listing
from holodeck.gateway.wire.output import Output
from holodeck.gateway.wire.past import Past
from holodeck.gateway.wire.request import ResponseRequest
from holodeck.gateway.wire.resource import ResponseResource
from holodeck.gateway.wire.seal import Seal
from holodeck.gateway.wire.speech import Speech
from holodeck.lib.clock import Clock, wall_clock
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


def can_be_asked(request: ResponseRequest, mode: Mode | Literal["auto"] | None) -> bool:
    """True when the client knows requests for approval, and what to do with them."""
    return request.declares_mcp if mode in (None, "auto") else mode == "openai"


def shows_openai(request: ResponseRequest, mode: Mode | None, dialect: Dialect) -> bool:
    """True when calls of MCP servers appear in OpenAI's own form.

    Who takes every `function_call` for its own would look for functions that it does not have.
    """
    return takes_functions_for_its_own(mode, dialect) or can_be_asked(request, mode)


def takes_functions_for_its_own(mode: Mode | None, dialect: Dialect) -> bool:
    """True when no call of ours may appear as a `function_call`, not even one that is at no server."""
    return mode == "openai" or (mode is None and dialect == "openai_agents")


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
        is_kept: bool = False,
        past: Past | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        """`pending`: calls of an earlier response that run first; `approved`: the call ids that a person approved.

        `listed`: labels of servers whose tools are in the context already. `is_kept`: turns are kept, and their items
        finish afterwards, so nothing is called done before. `past`: what was told of it before.
        """
        self._frame = ResponseResource(
            request,
            response_id=response_id,
            created_at=created_at,
            model=model or request.model or "",
            dialect=dialect,
        )
        self._routes = routes if shows_openai(request, mode, dialect) else None
        self._listed: Collection[str] | None = request.input.listed if listed is None else listed
        self._clock = clock
        self._encoder = Encoder(is_silent=is_silent, is_obfuscated=request.is_obfuscated, past=past)
        self._output = Output(self._encoder)
        self._speech = Speech(self._output, request, dialect=dialect, seal=seal)
        self._calls = Calls(
            self._output,
            request,
            routes=self._routes,
            pending=pending,
            approved=approved,
            label=(model or request.model or "") if takes_functions_for_its_own(mode, dialect) else None,
            seal=seal,
        )
        self.is_silent = is_silent
        self.is_stored = request.store
        self._is_kept = is_kept
        self._is_begun = False
        self._status = "queued"
        self._end: dict[str, Any] = {}
        self._encoded: bytes | None = None

    def resource(self) -> dict[str, Any]:
        """The response as it is now."""
        return self._frame.at(self._status, self._output.done(), **self._end)

    def encoded(self, resource: dict[str, Any] | None = None) -> bytes:
        """The same as JSON, made once when it is finished: what is stored and what is answered are the same bytes."""
        if self._encoded is not None:
            return self._encoded
        encoded = orjson.dumps(self.resource() if resource is None else resource)
        if self.is_finished:
            self._encoded = encoded
        return encoded

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
            case TextAdded():
                self._speech.say(event.item_id, event.text, is_refusal=event.is_refusal)
            case ReasoningAdded():
                self._speech.think(event.item_id, event.text)
            case CallAdded():
                self._speech.pause()
                self._calls.more(event)
            case ItemFinished():
                self._encoder.release()
                self._finished(event.item, "incomplete" if event.is_cut else "completed")
            case ToolStarted():
                self._encoder.release()
                self._list_servers()
                self._calls.start(event.call_id)
            case ToolFinished():
                self._calls.finish(event)
            case RunStarted():
                self._begin()
            case TurnStarted():
                self._speech.begin_turn()
                self._list_servers()
                if not event.is_told_again:
                    self._output.begin_anew()
                    if self._is_kept:
                        self._encoder.hold()
            case RunFinished():
                self._encoder.release()
                self._finish(event.result)
        return self._encoder.take()

    def _begin(self) -> None:
        self._status = "in_progress"
        if self.is_silent:
            return
        if not self._is_begun:
            self._encoder.emit("response.created", response=self.resource())
        self._encoder.emit("response.in_progress", response=self.resource())

    def _finished(self, item: Item, status: str) -> None:
        match item:
            case Message():
                self._speech.finish_message(item, status)
            case Reasoning():
                self._speech.finish_reasoning(item, status)
            case FunctionCall():
                self._calls.called(item, status)
            case FunctionCallOutput():
                self._calls.answered(item)

    def _list_servers(self) -> None:
        """Once the tools are known: those of each declared server, unless the context has them."""
        if self._listed is None or self._routes is None:
            return
        for listing in self._routes.listings():
            if listing.server_label not in self._listed:
                write_listing(listing, self._output)
        self._listed = None

    def _finish(self, result: RunResult) -> None:
        self._speech.abandon()
        self._calls.abandon()
        asks_person = self._calls.ask_approval(result.pending)
        ending = ending_of(result, is_only_approval=asks_person and not self._calls.asks_client)
        self._end_with(ending, result)

    def _end_with(self, ending: Ending, result: RunResult) -> None:
        self._status = ending.status
        self._end = {
            "completed_at": self._clock() if ending.status == "completed" else None,
            "error": ending.error,
            "incomplete": ending.incomplete,
            "usage": result.usage,
        }
        if self.is_silent:
            return
        if ending.error is not None:
            flat = {"code": ending.error["code"], "message": ending.error["message"], "param": None}
            self._encoder.emit("error", error={"type": ending.error_type, **flat}, **flat)
        self._encoder.emit(ending.event, response=self.resource())

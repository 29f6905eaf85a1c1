"""Writes a run as a response of the API: events of the engine in, encoded events of the API and the resource out.

A `ResponseWriter` belongs to one run and is fed its events in order. The resource always agrees with the events that
were emitted: its output has exactly the items that a client of the stream has seen finished.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import orjson

from holodeck.gateway.sealing import Seal
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.gateway.wire.request.body import ResponseRequest
from holodeck.gateway.wire.response.call_items import CallItems, DeclaredServers, write_listing
from holodeck.gateway.wire.response.output_items import EventEncoder, OutputItems
from holodeck.gateway.wire.response.resource import Ending, ResponseResource, ending_of
from holodeck.gateway.wire.response.sent_events import SentEvents
from holodeck.gateway.wire.response.text_items import TextItems
from holodeck.lib.clock import Clock, wall_clock
from holodeck.models.events import (
    CallAdded,
    Event,
    ItemFinished,
    ReasoningAdded,
    RunFinished,
    RunResult,
    RunStarted,
    StandInAnswered,
    TextAdded,
    ToolFinished,
    ToolStarted,
    TurnStarted,
)
from holodeck.models.gateway import MCPOutput
from holodeck.models.items import Compaction, FunctionCall, FunctionCallOutput, Message, Reasoning


class ResponseWriter:
    """Writes one response. Feed it every event of the run, in order. A silent writer only builds the resource.

    It holds a text back, of which no client sees a delta (`_held_text`): if it is a whole message, that is written once
    it is finished. `_listed_servers`: those whose lists the client has; None if no list is to be written any more.
    """

    def __init__(
        self,
        request: ResponseRequest,
        *,
        response_id: str,
        created_at: float,
        model: str = "",
        mode: MCPOutput = "openai",
        servers: DeclaredServers | None = None,
        pending: Sequence[FunctionCall] = (),
        approved: Collection[str] = (),
        listed_servers: Collection[str] | None = None,
        client_kind: ClientKind = "openai",
        seal: Seal | None = None,
        is_silent: bool = False,
        is_durable: bool = False,
        sent_events: SentEvents | None = None,
        clock: Clock = wall_clock,
    ) -> None:
        """`pending`: calls of an earlier response that run first. `approved`: ids of calls that a person approved.

        `listed_servers`: labels of servers whose tools are in the context already; None takes those of the input.
        `is_durable`: items finish only after their turn is stored, so `.done` events are held back until then.
        `sent_events`: the events that another process has sent of this response.
        """
        self.request = request
        self._resource = ResponseResource(
            request,
            response_id=response_id,
            created_at=created_at,
            model=model or request.model or "",
            client_kind=client_kind,
        )
        self._servers = servers if mode == "openai" or request.has_mcp_declarations else None
        self._listed_servers: Collection[str] | None = None
        if request.has_mcp_declarations and self._servers is not None:
            self._listed_servers = request.input.tool_lists if listed_servers is None else listed_servers
        self._clock = clock
        self._encoder = EventEncoder(is_silent=is_silent, is_obfuscated=request.is_obfuscated, sent_events=sent_events)
        self._output = OutputItems(self._encoder)
        self._text_items = TextItems(self._output, request, client_kind=client_kind, seal=seal)
        self._call_items = CallItems(
            self._output,
            request,
            servers=self._servers,
            pending=pending,
            approved=approved,
            default_label=(model or request.model or "") if mode == "openai" else None,
            seal=seal,
        )
        self._knows_openai_statuses_only = client_kind == "openai"
        self.is_silent = is_silent
        self.is_stored = request.store
        self._is_durable = is_durable
        self._is_created = False
        self._first_of_turn = 0
        self._status = "queued"
        self._ending_fields: dict[str, Any] = {}
        self._encoded: bytes | None = None
        self._held_text: TextAdded | None = None

    def build_resource(self) -> dict[str, Any]:
        """Build the resource as it is now."""
        if self._held_text is not None:
            self._write_held_text()
        return self._resource.build(self._status, self._output.list_finished(), **self._ending_fields)

    def encode_resource(self, resource: dict[str, Any] | None = None) -> bytes:
        """Encode the resource. Once finished it is always the same bytes, so what is stored and what is sent agree."""
        if self._encoded is not None:
            return self._encoded
        encoded = orjson.dumps(self.build_resource() if resource is None else resource)
        if self._ending_fields:
            self._encoded = encoded
        return encoded

    @property
    def is_finished(self) -> bool:
        return bool(self._ending_fields)

    @property
    def sequence(self) -> int:
        """The number of the next event."""
        return self._encoder.sequence

    def write_queued(self) -> list[bytes]:
        """Write the first events of a background response that waits in the queue."""
        self._is_created = True
        self._encoder.emit("response.created", response=self.build_resource())
        self._encoder.emit("response.queued", response=self.build_resource())
        return self._encoder.drain()

    def feed(self, *events: Event) -> list[bytes]:
        """Return the encoded events of the API for events of the run, often none."""
        if len(events) > 1 and (texts := _find_plain_texts(events)):
            self._write_held_text()
            self._text_items.append_texts(*texts)
        else:
            for event in events:
                if self._held_text is not None:
                    self._settle_held_text(event)
                write = _WRITERS.get(type(event))
                if write is not None:
                    write(self, event)
        return [] if self.is_silent else self._encoder.drain()

    def _add_text(self, event: TextAdded) -> None:
        self._held_text = event
        if not self.is_silent:
            self._write_held_text()

    def _add_reasoning(self, event: ReasoningAdded) -> None:
        self._text_items.append_reasoning(event.item_id, event.text)

    def _add_arguments(self, event: CallAdded) -> None:
        self._text_items.close_items()
        self._call_items.append_arguments(event)

    def _write_held_text(self) -> None:
        event, self._held_text = self._held_text, None
        if event is not None:
            self._text_items.append_text(
                event.item_id, event.text, is_refusal=event.is_refusal, logprobs=event.logprobs
            )

    def _settle_held_text(self, event: Event) -> None:
        """Write the held text, unless the event is the end of a message that consists of it."""
        held, item = self._held_text, event.item if isinstance(event, ItemFinished) else None
        is_plain = held is not None and bool(held.text) and not held.is_refusal and not held.logprobs
        if (
            is_plain
            and isinstance(item, Message)
            and held is not None
            and (item.id, item.text) == (held.item_id, held.text)
        ):
            self._held_text = None
        else:
            self._write_held_text()

    def _start_turn(self, event: TurnStarted) -> None:
        if event.is_restarted:
            self._restart_turn()
            return
        self._text_items.start_turn()
        if self._listed_servers is not None:
            self._write_listings()
        if self.is_silent:
            return
        if not event.is_replayed:
            if self._output.void_unclaimed():
                self._announce_restart()
            if self._is_durable:
                self._encoder.defer_done()
        self._first_of_turn = self._output.next_index

    def _restart_turn(self) -> None:
        """End what was written of the turn, which is void: the model broke off and is asked again."""
        self._encoder.flush_done(is_void=True)
        self._text_items.close_incomplete()
        self._text_items.start_turn()
        self._call_items.close_client_calls()
        self._output.void_from(self._first_of_turn)
        self._announce_restart()
        self._encoder.defer_done()

    def _announce_restart(self) -> None:
        """Tell clients which items stand: those of this resource. All others that have begun are void."""
        if self._encoder.sent_events is not None:
            self._encoder.sent_events.allow_restart()
        self._encoder.emit("response.in_progress", response=self.build_resource())

    def _start_run(self, event: RunStarted) -> None:
        self._status = "in_progress"
        if self.is_silent:
            return
        if not self._is_created:
            self._encoder.emit("response.created", response=self.build_resource())
        self._encoder.emit("response.in_progress", response=self.build_resource())

    def _set_model(self, event: StandInAnswered) -> None:
        self._resource.set_model(event.name)

    def _start_call(self, event: ToolStarted) -> None:
        if not self.is_silent:
            self._encoder.flush_done()
        if self._listed_servers is not None:
            self._write_listings()
        self._call_items.start_execution(event)

    def _finish_call(self, event: ToolFinished) -> None:
        self._call_items.finish_execution(event)

    def _finish_item(self, event: ItemFinished) -> None:
        if not self.is_silent:
            self._encoder.flush_done()
        item, status = event.item, "incomplete" if event.is_cut else "completed"
        match item:
            case Message():
                self._text_items.finish_message(item, status)
            case Reasoning():
                self._text_items.finish_reasoning(item, status)
            case FunctionCall():
                self._call_items.finish_call(item, status)
            case FunctionCallOutput():
                self._call_items.write_result(item)
            case Compaction():
                wire_item = {"id": item.id, "type": item.type, "encrypted_content": item.encrypted_content}
                self._output.write(wire_item)

    def _write_listings(self) -> None:
        # Once per response, as soon as the tools are known. Servers whose list is in the context are skipped.
        if self._listed_servers is None or self._servers is None:
            return
        for listing in self._servers.get_listings():
            if listing.server_label not in self._listed_servers:
                write_listing(listing, self._output, self._resource.id)
        self._listed_servers = None

    def _finish_run(self, event: RunFinished) -> None:
        result = event.result
        if not self.is_silent:
            self._encoder.flush_done()
        self._text_items.close_incomplete()
        self._call_items.close_incomplete()
        if not self.is_silent and self._output.void_unclaimed():
            self._announce_restart()
        needs_approval = bool(result.pending) and self._call_items.request_approvals(result.pending)
        # Only approvals are pending: the requests for them are the answer.
        needs_only_approval = needs_approval and not self._call_items.has_client_calls
        # OpenAI's packages know no `requires_action`; Semantic Kernel polls a response until it has another status.
        ending = ending_of(result, is_pause_completed=needs_only_approval or self._knows_openai_statuses_only)
        self._write_ending(ending, result)

    def _write_ending(self, ending: Ending, result: RunResult) -> None:
        self._status = ending.status
        self._ending_fields = {
            "completed_at": self._clock() if ending.status == "completed" else None,
            "error": ending.error,
            "incomplete": ending.incomplete,
            "result": result,
        }
        if self.is_silent:
            return
        if ending.error is not None:
            flat = {"code": ending.error["code"], "message": ending.error["message"], "param": None}
            self._encoder.emit("error", error={"type": ending.error_type, **flat}, **flat)
        self._encoder.emit(ending.event, response=self.build_resource())


_WRITERS: Mapping[type, Callable[[ResponseWriter, Any], None]] = {
    TextAdded: ResponseWriter._add_text,
    ReasoningAdded: ResponseWriter._add_reasoning,
    CallAdded: ResponseWriter._add_arguments,
    ItemFinished: ResponseWriter._finish_item,
    ToolStarted: ResponseWriter._start_call,
    ToolFinished: ResponseWriter._finish_call,
    RunStarted: ResponseWriter._start_run,
    StandInAnswered: ResponseWriter._set_model,
    TurnStarted: ResponseWriter._start_turn,
    RunFinished: ResponseWriter._finish_run,
}
"""What is written for each kind of event."""


def _find_plain_texts(events: Sequence[Event]) -> tuple[str, list[str]] | None:
    """Return the item and the texts of events that are plain text of one message, as a stream mostly is; else None."""
    texts, item_id = [], None
    for event in events:
        if not isinstance(event, TextAdded) or event.is_refusal or event.logprobs:
            return None
        if item_id is not None and event.item_id != item_id:
            return None
        item_id = event.item_id
        texts.append(event.text)
    return None if item_id is None else (item_id, texts)

"""Tool calls on the wire: the client's own as they come, ours once they run, and those that wait not at all."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holodeck.gateway.wire.ids import approval_id
from holodeck.gateway.wire.mcp_items import MCPRoute, OpenMCPCall, Routes, approval_request
from holodeck.gateway.wire.open_items import OpenCall, OpenCustomCall, OpenSearch
from holodeck.gateway.wire.options import ENCRYPTED_REASONING
from holodeck.gateway.wire.output import Output
from holodeck.gateway.wire.parts import show_output
from holodeck.gateway.wire.request import ResponseRequest
from holodeck.gateway.wire.seal import Seal
from holodeck.gateway.wire.sealed_calls import sealed_call
from holodeck.lib.ids import new_id
from holodeck.models.events import CallAdded, ToolFinished
from holodeck.models.items import FunctionCall, FunctionCallOutput

UNFINISHED = "The run ended before this call had a result."


class Calls:
    """A call of ours is not shown before it runs: until its turn is whole, the turn may be a mixed one."""

    def __init__(
        self,
        output: Output,
        request: ResponseRequest,
        *,
        routes: Routes | None,
        pending: Sequence[FunctionCall],
        approved: Collection[str],
        label: str | None = None,
        seal: Seal | None = None,
    ) -> None:
        """`label`: who shows as the server of a call that is at none. None: such a call shows as a function.

        `seal`: for what came of our calls; only those who take every function for their own may fail to send it back.
        """
        self._output = output
        self._request = request
        self._routes = routes
        self._label = label
        self._approved = frozenset(approved)
        self._waiting = {call.call_id: call for call in pending}
        self._open: dict[str, OpenCall | OpenCustomCall | OpenSearch] = {}
        self._guises = request.tools.guises
        self._closed: set[str] = set()
        self._at_servers: dict[str, OpenMCPCall] = {}
        can_carry = label is not None and not request.store and ENCRYPTED_REASONING in request.include
        self._seal = seal if can_carry else None
        self._to_seal: dict[str, tuple[FunctionCall, MCPRoute]] = {}
        self._as_functions: set[str] = set()
        self.asks_client = False
        """True once the model has called a function of the client."""

    def more(self, event: CallAdded) -> None:
        """More of a call's arguments."""
        if self._request.is_client(event.name) and event.item_id not in self._closed:
            if event.item_id not in self._open:
                self._close_whole()
            self._opened(event.item_id, event.call_id, event.name).more(event.arguments)

    def called(self, call: FunctionCall, status: str = "completed") -> None:
        """A call is whole, or will never be."""
        if self._request.is_client(call.name):
            self.asks_client = True
            if call.id not in self._closed:
                self._write(call, status)
        else:
            self._waiting[call.call_id] = call

    def start(self, call_id: str) -> None:
        call = self._waiting.pop(call_id, None)
        if call is None:
            return
        route = self._route(call)
        if route is None:
            self._write(call)
            self._as_functions.add(call_id)
        else:
            approval = approval_id(call) if call_id in self._approved else None
            self._at_servers[call_id] = OpenMCPCall(call, route, self._output, approval=approval)
            if self._seal is not None:
                self._to_seal[call_id] = (call, route)

    def finish(self, event: ToolFinished) -> None:
        call = self._at_servers.pop(event.call_id, None)
        if call is not None:
            call.finish(event.output, event.metadata)

    def answered(self, output: FunctionCallOutput) -> None:
        """The output of a call that shows as a function; one at a server has its output in itself."""
        if output.call_id in self._as_functions:
            self._as_functions.remove(output.call_id)
            self._write_output(output.call_id, output.id, show_output(output.content), "completed")
        elif self._seal is not None and output.call_id in self._to_seal:
            call, route = self._to_seal.pop(output.call_id)
            self._output.write(
                sealed_call(call, output, server_label=route.server_label, tool=route.tool, seal=self._seal)
            )

    def abandon(self) -> None:
        """The run has ended: whatever is half done is closed as incomplete."""
        for item in self._open.values():
            self._output.put(item.place, item.close("incomplete"))
        for call in self._at_servers.values():
            call.abandon()
        for call_id in sorted(self._as_functions):
            self._write_output(call_id, new_id("out"), UNFINISHED, "incomplete")

    def ask_approval(self, pending: Sequence[FunctionCall]) -> bool:
        """Write a request for each call that a person must approve. True when there was one."""
        routes = [(call, self._route(call)) for call in pending]
        asked = [(call, route) for call, route in routes if route is not None and route.needs_approval]
        for call, route in asked:
            self._output.write(approval_request(call, route))
        return bool(asked)

    def _route(self, call: FunctionCall) -> MCPRoute | None:
        route = None if self._routes is None else self._routes.route(call.name)
        if route is None and self._label is not None:
            return MCPRoute(server_label=self._label, tool=call.name)
        return route

    def _opened(self, item_id: str, call_id: str, name: str) -> OpenCall | OpenCustomCall | OpenSearch:
        found = self._open.get(item_id)
        if found is None:
            found = self._open[item_id] = self._begun(item_id, call_id, name)
        return found

    def _begun(self, item_id: str, call_id: str, name: str) -> OpenCall | OpenCustomCall | OpenSearch:
        guise, encoder, place = self._guises.get(name), self._output.encoder, self._output.reserve()
        if guise is None:
            return OpenCall(encoder, place, item_id, call_id, name)
        if guise.form == "custom":
            return OpenCustomCall(encoder, place, item_id, call_id, guise)
        if guise.form == "search":
            return OpenSearch(encoder, place, item_id, call_id)
        return OpenCall(encoder, place, item_id, call_id, guise.name, guise.namespace)

    def _close_whole(self) -> None:
        """Another call begins: those that can have nothing more are done. Some clients follow one item at a time."""
        for item_id, item in list(self._open.items()):
            if item.is_whole:
                del self._open[item_id]
                self._closed.add(item_id)
                self._output.put(item.place, item.close())

    def _write(self, call: FunctionCall, status: str = "completed") -> None:
        item_id = call.id or call.call_id
        is_streamed = item_id in self._open
        opened = self._opened(item_id, call.call_id, call.name)
        if not is_streamed:
            opened.more(call.arguments)
        del self._open[item_id]
        self._output.put(opened.place, opened.close(status))

    def _write_output(self, call_id: str, item_id: str, output: object, status: str) -> None:
        self._output.write(
            {"id": item_id, "type": "function_call_output", "status": status, "call_id": call_id, "output": output}
        )

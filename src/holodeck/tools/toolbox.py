"""The tools of one run: collected from its executors, named once, and routed to the executor of each call.

A `Toolbox` is built for one run and closed at its end. It closes the `ResultReader` of the run; the executors and the
`ArgumentChecker` are shared with other runs and belong to an agent or a gateway.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from operator import is_not
from typing import Any, Protocol

from holodeck.lib import log
from holodeck.models.content import BinaryContent
from holodeck.models.events import MissingServer
from holodeck.models.items import FunctionCall
from holodeck.models.model_io import ToolSpec
from holodeck.tools.arguments import ArgumentChecker
from holodeck.tools.executor import (
    CANCELLED,
    CHANGED,
    INTERNAL_ERROR,
    REFUSED,
    UNKNOWN_TOOL,
    CallRecorder,
    CallTarget,
    ToolCall,
    ToolExecutor,
    ToolResult,
)
from holodeck.tools.resource_reader import ResourceReader
from holodeck.tools.result_reader import ResultReader

_NAME_REASSIGNED = (
    "The tool '{name}' was not run: its server is gone, or another server has the name now. "
    "Look at the tools that are offered now."
)


class CallInterceptor(Protocol):
    """Stands between a run and its tools: each call that may be executed, by any executor, goes through it."""

    async def ask_person(self, call: ToolCall, toolbox: Toolbox) -> bool | None:
        """Ask for the approvals that the call needs, before `execute`. As `ask_person` of a toolbox."""
        ...

    async def execute(self, call: ToolCall, toolbox: Toolbox) -> ToolResult:
        """Execute a call with `execute_directly` of the toolbox, or return a result in its place."""
        ...


class Toolbox:
    """The client's own functions, then the tools of each executor in order; the first tool of a name wins.

    A name means one tool for the whole run. When the lists of the servers change so that a name would mean another
    tool, the name is no longer offered, and a call of it returns an error and is not executed.
    """

    def __init__(
        self,
        executors: Sequence[ToolExecutor],
        *,
        checker: ArgumentChecker,
        client_functions: Sequence[ToolSpec] = (),
        reader: ResultReader | None = None,
        resources: ResourceReader | None = None,
        needs_approval: Callable[[FunctionCall], bool] | None = None,
        is_valid_call: Callable[[FunctionCall], bool] | None = None,
        recorder: CallRecorder | None = None,
        interceptor: CallInterceptor | None = None,
    ) -> None:
        """`checker` is shared with other runs and closed by its owner.

        `needs_approval` selects the calls that wait for a person's approval: a turn with such a call ends the run
        before any call of that turn is executed. `is_valid_call` is False for a call of a client function that the
        client could not read: its arguments are checked here, and the model gets an error. `recorder` records every
        call but those that read the rest of a long result, which stays inside this process. `interceptor`: see there.
        """
        self._checker = checker
        self._needs_approval = needs_approval
        self._is_valid_call = is_valid_call
        self._recorder = recorder
        self._interceptor = interceptor
        self._reader = reader
        self._resources = resources
        own: list[ToolExecutor | None] = [reader, resources]
        self._executors: tuple[ToolExecutor, ...] = (*executors, *(each for each in own if each is not None))
        self._client_functions: Mapping[str, ToolSpec] = {spec.name: spec for spec in client_functions}
        self._routes: dict[str, ToolExecutor] = {}
        self._specs: dict[str, ToolSpec] = dict(self._client_functions)
        self._offers: list[Sequence[ToolSpec]] = []
        """The latest `specs` of each executor, which return the same object while nothing has changed."""
        self._offered: tuple[ToolSpec, ...] = tuple(client_functions)
        self._targets: dict[str, object] = {}
        """By name, the target of the tool when the name was first offered."""
        self._latest_specs: dict[str, ToolSpec] = {}
        """By name, the tool as it was offered last in this run, also while it is not offered."""
        self._changed: set[str] = set()
        """Names of tools that the model saw with another description or other parameters in this run."""
        self.missing: dict[str, MissingServer] = {}
        """By name, the servers that were unavailable at any time during the run."""

    async def collect_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the model may be offered now, and route their names. An executor may offer none."""
        # Sequential: only MCP servers take time to list, and all of them are behind one executor.
        offers: list[Sequence[ToolSpec]] = []
        for executor in self._executors:
            if executor is self._resources and self._resources.has_new_servers():
                taken = {*self._client_functions, *(spec.name for offer in offers for spec in offer)}
                await self._resources.offer_servers(names=taken)
            offers.append(await executor.specs())
        # Without any offer, now and before, only the client's functions have names.
        has_changed = len(offers) != len(self._offers) or any(map(is_not, offers, self._offers))
        if has_changed and (self._offers or any(offers)):
            self._route_names(offers)
        self.update_missing()
        return self._offered

    @property
    def offered(self) -> tuple[ToolSpec, ...]:
        """What the latest `collect_specs` has returned: the same tuple until something changes."""
        return self._offered

    def _route_names(self, offers: list[Sequence[ToolSpec]]) -> None:
        specs: dict[str, ToolSpec] = dict(self._client_functions)
        routes: dict[str, ToolExecutor] = {}
        for executor, offer in zip(self._executors, offers, strict=True):
            for spec in offer:
                if spec.name in specs:
                    if spec.name not in routes or routes[spec.name] is not executor:
                        log.debug("tools.shadowed", tool=spec.name, kind=executor.kind)
                    continue
                target = _target_of(executor, spec.name)
                if self._targets.setdefault(spec.name, target) != target:
                    log.warning("tools.name_moved", tool=spec.name)
                    continue
                latest = self._latest_specs.setdefault(spec.name, spec)
                if latest is not spec and latest != spec:
                    log.warning("tools.changed", tool=spec.name)
                    self._latest_specs[spec.name] = spec
                    self._changed.add(spec.name)
                specs[spec.name] = spec
                routes[spec.name] = executor
        self._offers, self._specs, self._routes = offers, specs, routes
        # The tuple of the only executor with tools is the same for all runs: providers encode it once.
        offered = tuple(specs.values())
        self._offered = next((offer for offer in offers if isinstance(offer, tuple) and offer == offered), offered)

    def close(self) -> None:
        """Delete the results stored for this run. May be called twice."""
        if self._reader is not None:
            self._reader.close()

    def update_missing(self) -> None:
        """Add the servers that are unavailable now to `missing`."""
        for name, server in self.find_unavailable().items():
            self.missing.setdefault(name, server)

    def find_unavailable(self) -> dict[str, MissingServer]:
        """The servers that are unavailable now, by name."""
        return {
            server.name: server
            for executor in self._executors
            for server in getattr(executor, "missing_servers", tuple)()
        }

    def is_client_function(self, name: str) -> bool:
        """True for a function that the client executes itself."""
        return name in self._client_functions

    def is_client_call(self, call: FunctionCall) -> bool:
        """True for a call that the client executes itself."""
        return call.name in self._client_functions and (self._is_valid_call is None or self._is_valid_call(call))

    def needs_approval(self, call: FunctionCall) -> bool:
        """True for a call that needs a person's approval before it is executed."""
        return self._needs_approval is not None and self._needs_approval(call)

    def find_spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name)

    def find_missing_reason(self, name: str) -> str | None:
        """Why a tool of this name is not offered, if an executor knows more than that it is not."""
        finders = (getattr(executor, "find_missing_reason", None) for executor in self._executors)
        reasons = (find(name) for find in finders if find is not None)
        return next((reason for reason in reasons if reason is not None), None)

    @property
    def names(self) -> Collection[str]:
        return self._specs.keys()

    def acknowledge_change(self, name: str) -> bool:
        """Whether the definition of a tool has changed during the run. True once for each change."""
        if name not in self._changed:
            return False
        self._changed.discard(name)
        return True

    def may_repeat(self, name: str) -> bool:
        """True for a tool that may be run twice without harm."""
        may_repeat = getattr(self._find_executor(name), "may_repeat", None)
        return may_repeat is not None and bool(may_repeat(name))

    async def check_arguments(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Raise `BadArgumentsError` when the arguments do not fit the tool's input schema."""
        spec = self._specs.get(name)
        if spec is not None:
            await self._checker.check_arguments(name, spec.parameters, arguments)

    async def ask_person(self, call: ToolCall) -> bool | None:
        """Ask for a person's approval of this call and return the decision. None: the call needs no approval."""
        if self._interceptor is not None:
            return await self._interceptor.ask_person(call, self)
        ask = getattr(self._find_executor(call.name), "ask_person", None)
        return None if ask is None else await ask(call)

    def needs_person(self, call: ToolCall) -> bool:
        """True for a call that its executor does not run without a person's approval."""
        needs_person = getattr(self._find_executor(call.name), "needs_person", None)
        return needs_person is not None and bool(needs_person(call.name))

    def find_target(self, call: ToolCall) -> CallTarget:
        """The server and the tool that a call goes to."""
        executor = self._find_executor(call.name)
        return CallTarget(server="", tool=call.name) if executor is None else _call_target_of(executor, call)

    async def execute(self, call: ToolCall) -> ToolResult:
        """Execute a call, through the interceptor if there is one. Every failure of a tool is a result."""
        if self._interceptor is not None:
            return await self._interceptor.execute(call, self)
        return await self.execute_directly(call)

    async def execute_directly(self, call: ToolCall) -> ToolResult:
        """Execute a call with the executor of its tool. Every failure is a result; only cancellation is raised."""
        executor = self._find_executor(call.name)
        if executor is None:
            is_reassigned = call.name in self._targets
            reason = _NAME_REASSIGNED.format(name=call.name) if is_reassigned else f"There is no tool '{call.name}'."
            await self.record_refusal(call, UNKNOWN_TOOL)
            return ToolResult.failure(call.call_id, reason)
        if self._recorder is None or executor is self._reader:
            result = await executor.execute(call)
        else:
            result = await self._execute_recorded(executor, call, self._recorder)
        if CHANGED in result.metadata:
            # The model is told by this result, so that the next offer is not a change any more.
            self._latest_specs.pop(call.name, None)
        return result

    async def _execute_recorded(self, executor: ToolExecutor, call: ToolCall, recorder: CallRecorder) -> ToolResult:
        find_refusal = getattr(executor, "find_refusal", None)
        refused: ToolResult | None = None if find_refusal is None else await find_refusal(call)
        is_approved = getattr(executor, "is_approved", None)
        if is_approved is not None and is_approved(call):
            call = replace(call, is_approved=True)
        target = _call_target_of(executor, call)
        if refused is not None and REFUSED in refused.metadata:
            await recorder.record_refusal(call, target, str(refused.metadata[REFUSED]))
            return refused
        if refused is not None:
            await recorder.record_result(call, target, refused, 0.0)
            return refused
        reason = await recorder.record_call(call, target)
        if reason is not None:
            return ToolResult.failure(call.call_id, reason)
        started_at = time.monotonic()
        try:
            result = await executor.execute(call)
        except BaseException as error:
            code = CANCELLED if isinstance(error, asyncio.CancelledError) else INTERNAL_ERROR
            recorder.record_interruption(call, target, code, time.monotonic() - started_at)
            raise
        await recorder.record_result(call, target, result, time.monotonic() - started_at)
        return result

    async def record_refusal(self, call: ToolCall, code: str) -> None:
        """Record a call that is not executed, where the calls of the run are recorded."""
        if self._recorder is not None:
            executor = self._find_executor(call.name)
            target = self._find_bound_target(call) if executor is None else _call_target_of(executor, call)
            await self._recorder.record_refusal(call, target, code)

    async def record_unknown(self, call: ToolCall, result: ToolResult) -> None:
        """Record the result of a call that an earlier process began, and that is not run again."""
        if self._recorder is not None:
            await self._recorder.record_result(call, self.find_target(call), result, 0.0)

    def _find_bound_target(self, call: ToolCall) -> CallTarget | None:
        """The target of a call whose tool is not offered any more, if an executor knows it."""
        finders = (getattr(executor, "find_call_target", None) for executor in self._executors)
        targets = (find(call) for find in finders if find is not None)
        return next((target for target in targets if target is not None), None)

    def prepare_result(self, name: str, result: ToolResult) -> ToolResult:
        """Return the result as the model gets it: a long one is cut, with a note on how to read the rest.

        The resources that the result links to can be read from now on, if its server permits it.
        """
        executor: Any = self._find_executor(name)
        links = [block for block in result.content if isinstance(block, BinaryContent) and block.is_link]
        if links and self._resources is not None:
            find_server = getattr(executor, "find_resource_server", None)
            server = None if find_server is None else find_server(name)
            if server is not None:
                self._resources.add_links(links, server, executor, names=self._specs)
        if self._reader is None or executor is self._reader:
            return result
        return self._reader.shorten_result(result)

    def _find_executor(self, name: str) -> ToolExecutor | None:
        """Return None for a function of the client, and for a name whose target is not the one first offered."""
        if name in self._client_functions:
            return None
        executor = self._routes.get(name) or next((each for each in self._executors if each.can_execute(name)), None)
        if executor is None or self._targets.get(name, target := _target_of(executor, name)) != target:
            return None
        return executor


def _call_target_of(executor: ToolExecutor, call: ToolCall) -> CallTarget:
    find = getattr(executor, "find_call_target", None)
    found: CallTarget | None = None if find is None else find(call)
    return found or CallTarget(server="", tool=call.name)


def _target_of(executor: ToolExecutor, name: str) -> object:
    find = getattr(executor, "target_of", None)
    return executor if find is None else find(name)

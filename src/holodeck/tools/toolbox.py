"""The tools of one run: collected from its executors, named once, and routed to the executor of each call.

A `Toolbox` is built for one run and closed at its end. It closes the `ResultReader` of the run; the executors and the
`ArgumentChecker` are shared with other runs and belong to an agent or a gateway.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import is_not

from holodeck.lib import log
from holodeck.lib.call_errors import TOOL_ADDED
from holodeck.lib.call_errors import TOOL_CHANGED as TOOL_CHANGED_TEXT
from holodeck.models.events import MissingServer, RunNoticed
from holodeck.models.items import BinaryContent, FunctionCall
from holodeck.models.model_io import ToolSpec
from holodeck.tools.calls import Approver, ArgumentChecker, CallPipeline, Scope
from holodeck.tools.executor import (
    OUT_OF_SCOPE,
    TOOL_CHANGED,
    UNKNOWN_TARGET,
    UNKNOWN_TOOL,
    CallRecorder,
    CallRules,
    Refusal,
    ToolCall,
    ToolExecutor,
    ToolResult,
)
from holodeck.tools.resource_reader import ResourceReader
from holodeck.tools.result_reader import ResultReader

# New tools of a server that a refusal or a notice names: the model sees all of them among its tools.
_MAX_NAMES = 10
_NAME_REASSIGNED = (
    "The tool '{name}' was not run: its server is gone, or another server has the name now. "
    "Look at the tools that are offered now."
)


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
        approver: Approver | None = None,
        scope: Scope | None = None,
        pipeline: CallPipeline | None = None,
    ) -> None:
        """`checker` is shared with other runs and closed by its owner.

        `needs_approval` selects the calls that wait for a person's approval: a turn with such a call ends the run
        before any call of that turn is executed. `is_valid_call` is False for a call of a client function that the
        client could not read: its arguments are checked here, and the model gets an error. `recorder` records every
        call but those that read the rest of a long result, which stays inside this process. For `approver` and `scope`
        see `CallPipeline`. `pipeline`: the rules of the run that waits for this one, in place of all these.
        """
        self.pipeline = pipeline or CallPipeline(checker, approver=approver, recorder=recorder, scope=scope)
        self._needs_approval = needs_approval
        self._is_valid_call = is_valid_call
        self._reader = reader
        self._resources = resources
        own: list[ToolExecutor | None] = [reader, resources]
        self._given = executors
        self._executors: tuple[ToolExecutor, ...] = (*executors, *[each for each in own if each is not None])
        self._client_functions: Mapping[str, ToolSpec] = {spec.name: spec for spec in client_functions}
        self._routes: dict[str, ToolExecutor] = {}
        self._specs: Mapping[str, ToolSpec] = self._client_functions
        self._offers: list[Sequence[ToolSpec]] = []
        """The latest `specs` of each executor, which return the same object while nothing has changed."""
        self.offered: tuple[ToolSpec, ...] = tuple(client_functions)
        """What the latest `collect_specs` has returned: the same tuple until something changes."""
        self._targets: Mapping[str, tuple[str, str] | None] = {}
        """By name, the target of the tool when the name was first offered."""
        self._latest_specs: Mapping[str, ToolSpec] = {}
        """By name, the tool as it was offered last in this run, also while it is not offered."""
        self._changed: set[str] = set()
        """Names of tools that the model saw with another description or other parameters in this run."""
        self._added: dict[str, str] = {}
        """By name of a tool that its server did not have when it was first offered in this run: the server."""
        self.notices: list[RunNoticed] = []
        """Events that the log of the run gets before its next turn."""
        self.missing: dict[str, MissingServer] = {}
        """By name, the servers that were unavailable at any time during the run."""

    async def collect_specs(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the model may be offered now, and route their names. An executor may offer none."""
        if not self._executors:
            return self.offered
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
        return self.offered

    def _route_names(self, offers: list[Sequence[ToolSpec]]) -> None:
        filled = [(executor, offer) for executor, offer in zip(self._executors, offers, strict=True) if offer]
        if len(filled) == 1 and not self._offers and not self._client_functions:
            # Nothing can be shadowed or have changed: the run takes the offer as all other runs do, as a whole.
            executor, offer = filled[0]
            whole = executor.find_offer(offer)
            self._specs = self._latest_specs = whole.by_name
            self._targets, self._routes = whole.targets, dict.fromkeys(whole.by_name, executor)
            self._offers, self.offered = offers, tuple(offer)
            return
        self._merge_offers(offers)

    def _merge_offers(self, offers: list[Sequence[ToolSpec]]) -> None:
        specs: dict[str, ToolSpec] = dict(self._client_functions)
        routes: dict[str, ToolExecutor] = {}
        self._targets = targets = dict(self._targets)
        self._latest_specs = latest_specs = dict(self._latest_specs)
        known = set(targets.values())
        known_servers = {target[0] for target in known if target is not None and target[0]}
        added, changed = list[str](), list[str]()
        for executor, offer in zip(self._executors, offers, strict=True):
            found = executor.find_offer(offer).targets
            for spec in offer:
                target = found[spec.name]
                if spec.name in specs:
                    if spec.name not in routes or routes[spec.name] is not executor:
                        log.debug("tools.shadowed", tool=spec.name, kind=executor.kind)
                    continue
                if targets.setdefault(spec.name, target) != target:
                    log.warning("tools.name_moved", tool=spec.name)
                    continue
                if target is not None and target[0] in known_servers and target not in known:
                    log.warning("tools.added", tool=spec.name, server=target[0])
                    self._added[spec.name] = target[0]
                    added.append(spec.name)
                latest = latest_specs.setdefault(spec.name, spec)
                if latest is not spec and latest != spec:
                    log.warning("tools.changed", tool=spec.name)
                    latest_specs[spec.name] = spec
                    self._changed.add(spec.name)
                    changed.append(spec.name)
                specs[spec.name] = spec
                routes[spec.name] = executor
        if added or changed:
            self._add_notices(added, changed)
        # Tools that were offered before keep their places, so that the prompt grows at its end only.
        if self._offers:
            specs = {name: specs[name] for name in (*self._specs, *specs) if name in specs}
        self._offers, self._specs, self._routes = offers, specs, routes
        # The tuple of the only executor with tools is the same for all runs: providers encode it once.
        offered = tuple(specs.values())
        self.offered = next((offer for offer in offers if isinstance(offer, tuple) and offer == offered), offered)

    def _add_notices(self, added: Sequence[str], changed: Sequence[str]) -> None:
        if added:
            text = f"Since this run began, these tools are new: {_list_names(added)}."
            self.notices.append(RunNoticed(code="tools_added", text=text, names=tuple(added)))
        if changed:
            text = f"Since this run began, these tools have changed: {_list_names(changed)}."
            self.notices.append(RunNoticed(code="tools_changed", text=text, names=tuple(changed)))

    def take_notices(self) -> list[RunNoticed]:
        """Return the notices that were not taken yet."""
        notices, self.notices = self.notices, []
        return notices

    def close(self) -> None:
        """Delete the results stored for this run. May be called twice."""
        if self._reader is not None:
            self._reader.close()

    def update_missing(self) -> None:
        """Add the servers that are unavailable now to `missing`."""
        for executor in self._given:
            for server in executor.missing_servers():
                self.missing.setdefault(server.name, server)

    def find_unavailable(self) -> dict[str, MissingServer]:
        """Return the servers that are unavailable now, by name."""
        return {server.name: server for executor in self._given for server in executor.missing_servers()}

    def is_client_function(self, name: str) -> bool:
        """Return True for a function that the client executes itself."""
        return name in self._client_functions

    def is_client_call(self, call: FunctionCall) -> bool:
        """Return True for a call that the client executes itself."""
        return call.name in self._client_functions and (self._is_valid_call is None or self._is_valid_call(call))

    def needs_approval(self, call: FunctionCall) -> bool:
        """Return True for a call that needs a person's approval before it is executed."""
        return self._needs_approval is not None and self._needs_approval(call)

    def find_spec(self, name: str) -> ToolSpec | None:
        return self._specs.get(name)

    def find_missing_reason(self, name: str) -> str | None:
        """Return why a tool of this name is not offered, if an executor knows more than that it is not."""
        reasons = (executor.find_missing_reason(name) for executor in self._executors)
        return next((reason for reason in reasons if reason is not None), None)

    def find_rules(self, call: ToolCall) -> CallRules:
        """Find the tool of a call, and return the rules for it. An unknown tool is a refusal."""
        name, executor = call.name, self.find_executor(call.name)
        if executor is not None and name in self._specs:
            rules = executor.find_rules(call)
            if name not in self._changed and name not in self._added:
                return rules
            return replace(rules, refusal=Refusal(code=TOOL_CHANGED, text=self._describe_change(name)))
        targets = (each.find_bound_target(call) for each in self._executors)
        target = next((target for target in targets if target is not None), UNKNOWN_TARGET)
        if name in self._client_functions:
            # Its arguments are checked here, because the client could not read them.
            refusal = Refusal(code=UNKNOWN_TOOL, text=f"There is no tool '{name}'.")
            return CallRules(target=target, result=refusal.to_result(call.call_id))
        return CallRules(target=target, refusal=self._explain_missing(name))

    def _explain_missing(self, name: str) -> Refusal:
        if name in self._specs:
            return _refuse_moved(name)
        reason = self.find_missing_reason(name)
        if reason is not None:
            return Refusal(code=OUT_OF_SCOPE, text=reason)
        import difflib

        close = difflib.get_close_matches(name, self._specs, n=3)
        hint = f" Did you mean {' or '.join(repr(each) for each in close)}?" if close else ""
        return Refusal(code=UNKNOWN_TOOL, text=f"There is no tool '{name}'.{hint}")

    def refuse_moved(self, call: ToolCall) -> ToolResult:
        """Build the result of a call whose name has no executor, or not the one that it was approved for."""
        return _refuse_moved(call.name).to_result(call.call_id)

    def _describe_change(self, name: str) -> str:
        if name in self._changed:
            return TOOL_CHANGED_TEXT.format(tool=name)
        others = [each for each in self._list_added(name) if each != name]
        return TOOL_ADDED.format(tool=name, others=f", as well as {_list_names(others)}" if others else "")

    def _list_added(self, name: str) -> list[str]:
        """Return the tools that the server of a new tool has added in this run, and that the model was not told of."""
        server = self._added.get(name)
        return [each for each, its_server in self._added.items() if its_server == server]

    def acknowledge_change(self, name: str) -> None:
        """Record that the model knows of a changed tool, or of the new tools of a server: a refusal has told it."""
        if name in self._changed:
            self._changed.discard(name)
            return
        for each in self._list_added(name):
            del self._added[each]

    def forget_offer(self, name: str) -> None:
        """Record that the model knows of a change that the next offer will have: it was told by a result."""
        self._latest_specs = {each: spec for each, spec in self._latest_specs.items() if each != name}

    def may_repeat(self, name: str) -> bool:
        """Return True for a tool that may be run twice without harm."""
        executor = self.find_executor(name)
        return executor is not None and executor.may_repeat(name)

    def prepare_result(self, name: str, result: ToolResult) -> ToolResult:
        """Return the result as the model gets it: a long one is cut, with a note on how to read the rest.

        The resources that the result links to can be read from now on, if its server permits it.
        """
        links = [block for block in result.content if isinstance(block, BinaryContent) and block.is_link]
        if links and self._resources is not None and (executor := self.find_executor(name)) is not None:
            server = executor.find_resource_server(name)
            if server is not None:
                self._resources.add_links(links, server, executor, names=self._specs)
        if self._reader is None or self._routes.get(name) is self._reader:
            return result
        return self._reader.shorten_result(result)

    def find_executor(self, name: str) -> ToolExecutor | None:
        """Return what executes calls of a name.

        None for a function of the client, and for a name whose target is not the one first offered.
        """
        if name in self._client_functions:
            return None
        executor = self._routes.get(name) or next((each for each in self._executors if each.can_execute(name)), None)
        if executor is None or self._targets.get(name, target := executor.target_of(name)) != target:
            return None
        return executor


def _refuse_moved(name: str) -> Refusal:
    return Refusal(code=UNKNOWN_TOOL, text=_NAME_REASSIGNED.format(name=name))


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
    return f"{', '.join(names[:_MAX_NAMES])}{more}"

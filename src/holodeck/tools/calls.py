"""The rules of a call in their one order: scope, change, arguments, approval, record, execution, record, count.

Every call of a tool, resource, prompt or agent passes a `CallPipeline`, whichever door it came through. A door finds
the target and gives what it knows of it as `CallRules`; it has no rule of its own. What differs between doors is the
`Approver`: it pauses the run, asks the peer, the terminal or a hook, or refuses.

`find_refusal` comes first, then `approve`, then `execute`. The steps of a durable run call them one by one, and store
what they return; `run` is all of them, for a door that answers at once. A refusal is recorded where it is found.

Arguments come as the text of a model. `parse_arguments` and `ArgumentChecker`, which compares them with the input
schema of the tool, raise `BadArgumentsError`, whose text is sent to the model so that it can correct the call.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

from holodeck.lib import log
from holodeck.lib.call_errors import NOT_APPROVED
from holodeck.lib.call_errors import OUT_OF_SCOPE as OUT_OF_SCOPE_TEXT
from holodeck.lib.json.parse import parse_json
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.models.model_io import ToolSpec
from holodeck.tools.executor import (
    APPROVAL_DECLINED,
    APPROVAL_NEEDED,
    CANCELLED,
    INTERNAL_ERROR,
    INVALID_ARGUMENTS,
    NOT_RECORDED,
    OUT_OF_SCOPE,
    REFUSED,
    CallRecorder,
    CallRules,
    CallTarget,
    QuestionHandler,
    Refusal,
    ToolCall,
    ToolResult,
)

# Characters of each problem in an error text for the model: five problems make a paragraph.
_MAX_PROBLEM_CHARS = 200


class BadArgumentsError(ValueError):
    """The arguments cannot be used. The text is for the model."""


def parse_arguments(text: str) -> dict[str, Any]:
    """Parse the arguments. Empty text and `null` mean no arguments. Raises `BadArgumentsError`."""
    if not text.strip():
        return {}
    try:
        value = parse_json(text)
    except ValueError as error:
        near = text[:MAX_SHOWN_CHARS]
        raise BadArgumentsError(f"The arguments are not valid JSON ({error}). They begin: {near}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadArgumentsError('The arguments must be a JSON object, such as {"name": "value"}.')
    return value


class ArgumentChecker:
    """Checks arguments against the input schemas of tools. Owned and closed by an agent or a gateway."""

    def __init__(self, *, in_process: bool = False) -> None:
        """`in_process`: see `SchemaChecker`."""
        self._checker = SchemaChecker(in_process=in_process)

    async def check_arguments(self, tool: str, schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Raise `BadArgumentsError` with the first violations of the schema.

        A check that is impossible or takes too long is logged and does not fail the call: the executor of the tool
        validates its arguments as well.
        """
        try:
            violations = await self._checker.find_violations(schema, arguments)
        except (SchemaError, UncheckedError) as error:
            log.warning("tools.arguments_unchecked", tool=tool, reason=error)
            return
        if violations:
            problems = (f"{each.path or 'arguments'}: {each.message[:_MAX_PROBLEM_CHARS]}" for each in violations)
            raise BadArgumentsError("The arguments do not fit the tool: " + "; ".join(problems))

    async def close(self) -> None:
        """End the schema worker process, if one was started."""
        await self._checker.close()


T = TypeVar("T")
Decision: TypeAlias = ToolCall | ToolResult | Refusal
"""What becomes of a call: the call to execute, the result in its place, or why it does not run."""
ApprovalAnswer: TypeAlias = bool | Literal["always"]
"""What a person says to a call. `always`: yes, and to each later call of the tool while the tool is as it is now."""
AskPerson = Callable[[str, str, Mapping[str, Any]], Awaitable[ApprovalAnswer]]
"""Asks for a person's approval of a call: `(server, tool, arguments)` to the decision."""


class Scope(Protocol):
    """The rules for what a caller may use."""

    def allows(self, target: CallTarget) -> bool: ...


class Approver(ABC):
    """Decides about calls that need a person's approval."""

    sees_every_call = False
    """True: it decides about all calls, and gets their results."""
    on_question: QuestionHandler | None = None
    """Asks the person for whom calls are made, when a server has a question while it works on one."""

    @abstractmethod
    async def approve(self, call: ToolCall, rules: CallRules, pipeline: CallPipeline) -> Decision:
        """Decide about a call that has passed the other rules. The call to execute is marked as approved."""

    async def change_result(self, call: ToolCall, rules: CallRules, result: ToolResult) -> ToolResult:
        """Return the result that the model gets in place of this one."""
        return result


class TerminalApprover(Approver):
    """Asks the person at the terminal, but not about what the person has approved before: by name, or for good."""

    def __init__(self, ask: AskPerson | None, approved: Sequence[str] = ()) -> None:
        """`ask` None: there is no person. `approved`: names or globs of tools, see `is_named`."""
        self._ask = ask
        self._approved = approved
        self._always: dict[CallTarget, ToolSpec | None] = {}
        """Tools whose calls run without a question, as they were when the person said so."""
        self._lock = asyncio.Lock()

    async def approve(self, call: ToolCall, rules: CallRules, pipeline: CallPipeline) -> Decision:
        target = rules.target
        if is_named(self._approved, target):
            return replace(call, is_approved=True)
        if self._ask is None:
            return refuse_unasked(target)
        # One question at a time: the answer may settle the others as well.
        async with self._lock:
            if target in self._always and self._always[target] == call.spec:
                return replace(call, is_approved=True)
            answer = await self._ask(target.server, target.tool, call.arguments)
        if answer == "always":
            self._always[target] = call.spec
        if answer:
            return replace(call, is_approved=True)
        return Refusal(code=APPROVAL_DECLINED, text=NOT_APPROVED)


def is_named(patterns: Sequence[str], target: CallTarget) -> bool:
    """Return whether one of the patterns names a tool: `server.tool`, or `tool` of any server, each a name or a glob.

    Names of servers have no dots. A tool with a dot in its name is only named with its server.
    """
    for pattern in patterns:
        server, dot, tool = pattern.partition(".")
        if fnmatchcase(target.tool, tool if dot else pattern) and (not dot or fnmatchcase(target.server, server)):
            return True
    return False


class CallPipeline:
    """The rules for the calls of one run, or of one request. Owns nothing."""

    def __init__(
        self,
        checker: ArgumentChecker,
        *,
        approver: Approver | None = None,
        recorder: CallRecorder | None = None,
        scope: Scope | None = None,
        on_end: Callable[[CallTarget, Any, float], None] | None = None,
    ) -> None:
        """`approver` None: a call that needs an approval is refused. `scope` None: everything is allowed.

        `on_end` is called at the end of each `run` with the target, what it returns (None: it raises) and the seconds.
        """
        self._checker = checker
        self._approver = approver
        self._recorder = recorder
        self._scope = scope
        self._on_end = on_end

    @property
    def on_question(self) -> QuestionHandler | None:
        return None if self._approver is None else self._approver.on_question

    async def run(
        self,
        call: ToolCall,
        rules: CallRules,
        send: Callable[[ToolCall], Awaitable[T]],
        to_result: Callable[[ToolCall, T], ToolResult],
    ) -> T | ToolResult | Refusal:
        """Check a call, have it approved, and execute it. For the parameters see `execute`."""
        outcome: object = None
        started_at = time.perf_counter()
        try:
            outcome = refusal = await self.find_refusal(call, rules)
            if refusal is not None:
                return refusal
            outcome = answer = await self.execute(call, rules, send, to_result)
            return answer
        finally:
            if self._on_end is not None and rules.is_recorded:
                self._on_end(rules.target, outcome, time.perf_counter() - started_at)

    async def find_refusal(self, call: ToolCall, rules: CallRules) -> Refusal | None:
        """Return why a call cannot run: its target is unknown, out of scope or changed, or its arguments do not fit."""
        refusal = rules.refusal
        if refusal is None and self._scope is not None and not self._scope.allows(rules.target):
            text = OUT_OF_SCOPE_TEXT.format(tool=rules.target.tool, server=rules.target.server)
            refusal = Refusal(code=OUT_OF_SCOPE, text=text)
        if refusal is None:
            try:
                await self.check_arguments(call)
            except BadArgumentsError as error:
                refusal = Refusal(code=INVALID_ARGUMENTS, text=str(error))
        if refusal is not None:
            await self._record_refusal(call, rules, refusal.code)
        return refusal

    async def check_arguments(self, call: ToolCall) -> None:
        """Raise `BadArgumentsError` when the arguments do not fit the input schema of the tool as it was offered."""
        if call.spec is not None:
            await self._checker.check_arguments(call.name, call.spec.parameters, call.arguments)

    async def approve(self, call: ToolCall, rules: CallRules) -> Decision:
        """Decide about a call that has no refusal. Only an approval that is needed and not there is asked for."""
        needs_approval = rules.needs_approval and not rules.is_approved
        decision: Decision
        if rules.refusal is not None:
            decision = rules.refusal
        elif rules.result is not None:
            decision = rules.result
        elif self._approver is not None and (needs_approval or self._approver.sees_every_call):
            decision = await self._approver.approve(call, rules, self)
        elif needs_approval:
            decision = refuse_unasked(rules.target)
        else:
            return replace(call, is_approved=True) if rules.is_approved else call
        if isinstance(decision, Refusal):
            await self._record_refusal(call, rules, decision.code)
        elif isinstance(decision, ToolResult):
            if REFUSED in decision.metadata:
                await self._record_refusal(call, rules, str(decision.metadata[REFUSED]))
            elif rules.result is not None:
                await self.record_result(call, rules, decision)
        return decision

    async def execute(
        self,
        call: ToolCall,
        rules: CallRules,
        send: Callable[[ToolCall], Awaitable[T]],
        to_result: Callable[[ToolCall, T], ToolResult],
        *,
        decision: Decision | None = None,
    ) -> T | ToolResult | Refusal:
        """Execute a call and return what `send` returns, or the result or refusal in its place.

        `to_result`: the outcome of `send` for the record. `decision`: that of `approve`, if it was asked already.
        """
        if decision is None:
            # A call that is running already was permitted when it was sent.
            is_running = rules.refusal is None and call.resume is not None and call.resume.stored is not None
            decision = replace(call, is_approved=rules.is_approved) if is_running else await self.approve(call, rules)
        outcome: T | ToolResult | Refusal
        if isinstance(decision, ToolCall):
            call = decision if decision.resume is call.resume else replace(decision, resume=call.resume)
            recorder = self._recorder if rules.is_recorded else None
            if recorder is None:
                outcome = await send(call)
            else:
                outcome = await self._execute_recorded(call, rules.target, send, to_result, recorder)
        else:
            outcome = decision
        if self._approver is not None and self._approver.sees_every_call and isinstance(outcome, ToolResult):
            return await self._approver.change_result(call, rules, outcome)
        return outcome

    async def _execute_recorded(
        self,
        call: ToolCall,
        target: CallTarget,
        send: Callable[[ToolCall], Awaitable[T]],
        to_result: Callable[[ToolCall, T], ToolResult],
        recorder: CallRecorder,
    ) -> T | Refusal:
        reason = await recorder.record_call(call, target)
        if reason is not None:
            return Refusal(code=NOT_RECORDED, text=reason)
        started_at = time.monotonic()
        try:
            outcome = await send(call)
        except BaseException as error:
            code = CANCELLED if isinstance(error, asyncio.CancelledError) else INTERNAL_ERROR
            recorder.record_interruption(call, target, code, time.monotonic() - started_at)
            raise
        await recorder.record_result(call, target, to_result(call, outcome), time.monotonic() - started_at)
        return outcome

    async def record_result(self, call: ToolCall, rules: CallRules, result: ToolResult) -> None:
        """Record the result of a call that an earlier process began, and that is not run again."""
        if self._recorder is not None and rules.is_recorded:
            await self._recorder.record_result(call, rules.target, result, 0.0)

    async def _record_refusal(self, call: ToolCall, rules: CallRules, code: str) -> None:
        if self._recorder is not None and rules.is_recorded:
            await self._recorder.record_refusal(call, rules.target, code)


def build_unapproved(target: CallTarget, reason: str, *, code: str = APPROVAL_NEEDED) -> Refusal:
    """Build the refusal of a call that needs an approval, with the reason why it has none."""
    subject = f"The tool '{target.tool}' of server '{target.server}'"
    return Refusal(code=code, text=f"{subject} needs a person's approval, and {reason}")


def refuse_unasked(target: CallTarget) -> Refusal:
    """Build the refusal of a call that needs an approval where no person can be asked."""
    return build_unapproved(target, "there is no one to ask.")

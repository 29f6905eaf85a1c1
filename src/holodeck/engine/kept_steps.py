"""The steps of a run that survives: each is kept when it is done, and never done again.

A call that was under way when its process died is repeated only if that does no harm; else the model is told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from holodeck.durable.engine import Checkpoints, Plain, WorkTakenError
from holodeck.engine.eventlog import EventLog
from holodeck.engine.steps import Append, Errand, Turn
from holodeck.engine.turn_record import plain_turn, read_turn, told_again
from holodeck.lib.errors import ModelError
from holodeck.models.events import Event, ItemFinished
from holodeck.models.items import FunctionCallOutput
from holodeck.models.items_codec import decode_item, encode_item
from holodeck.tools.executor import ToolResult

OUTCOME_UNKNOWN = (
    "The process that ran this call ended before it had an answer. Whether the call took effect is unknown. "
    "Find out before you repeat it."
)


class KeptSteps:
    """Steps with a memory. `leave` stops at the next moment at which nothing is under way that cannot be repeated."""

    def __init__(self, checkpoints: Checkpoints) -> None:
        self._checkpoints = checkpoints
        self._under_way = 0
        self._settled = asyncio.Event()
        self._settled.set()
        self._last_asked = asyncio.Event()
        self._last_asked.set()
        self._has_failed = False
        self._has_given_up = False
        self.is_leaving = False
        """True once this process has left the rest of the run to another."""

    async def turn(self, number: int, log: EventLog, take: Callable[[Append], Awaitable[Turn]]) -> Turn:
        self._stay()
        fresh: list[Turn] = []
        finished: list[Event] = []

        async def ask() -> Plain:
            told: list[Event] = []

            def append(event: Event) -> None:
                told.append(event)
                if finished or isinstance(event, ItemFinished):
                    finished.append(event)  # told when it is kept: it may then not become another one
                else:
                    log.append(event)

            try:
                turn = await take(append)
            except ModelError as error:
                return {"failed": str(error), "provider": error.provider, "status": error.status, "code": error.code}
            fresh.append(turn)
            return plain_turn(turn, told)

        kept = await self._step(f"turn {number}", ask)
        if "failed" in kept:
            code = kept.get("code", "")
            raise ModelError(kept["failed"], provider=kept["provider"], status=kept["status"], code=code)
        if fresh:
            for event in finished:
                log.append(event)
            return fresh[0]
        for event in told_again(kept):
            log.append(event)
        return read_turn(kept)

    async def call(self, errand: Errand) -> ToolResult:
        call, is_fresh = errand.call, False

        async def send() -> Plain:
            nonlocal is_fresh
            is_fresh = True
            refusal = await errand.refusal() or await self._permission(errand)
            return {"may_repeat": errand.may_repeat()} if refusal is None else {"refusal": refusal}

        async def carry_out() -> Plain:
            if is_fresh or sent["may_repeat"]:
                result = await errand.execute()
                if self._has_given_up:
                    raise WorkTakenError
                return _plain_result(result)
            return _plain_result(ToolResult.failed(call.call_id, OUTCOME_UNKNOWN, outcome="unknown"))

        self._stay()
        self._begin()
        before, self._last_asked = self._last_asked, asyncio.Event()
        asked = self._last_asked
        try:
            sent = await self._step(f"send {call.id}", send)
            await self._after(before)
            asked.set()
            if "refusal" in sent:
                return ToolResult.failed(call.call_id, sent["refusal"])
            return _read_result(call.call_id, await self._step(f"call {call.id}", carry_out))
        except BaseException:
            self._has_failed = True
            raise
        finally:
            asked.set()
            self._end()

    async def _permission(self, errand: Errand) -> str | None:
        """Ask before the call counts as sent: while a person thinks, nothing is under way and nobody needs to wait."""
        self._end()
        try:
            refusal = await errand.permission()
        finally:
            self._begin()
        self._stay()
        return refusal

    @property
    def under_way(self) -> int:
        """How many calls are being carried out."""
        return self._under_way

    async def leave(self) -> None:
        """Begin nothing more; return when no call is under way. The run can then be cancelled and goes on elsewhere."""
        self.is_leaving = True
        await self._settled.wait()

    def give_up(self) -> None:
        """Wait for nothing. How a call ends from now on says only that its server was ended: its outcome is unknown."""
        self.is_leaving = self._has_given_up = True

    async def _after(self, other: asyncio.Event) -> None:
        """Steps are found again by their place, not by their name: nobody takes that of a call that failed."""
        await other.wait()
        if self._has_failed:
            raise WorkTakenError

    def _stay(self) -> None:
        if self.is_leaving:
            raise WorkTakenError

    def _begin(self) -> None:
        self._under_way += 1
        self._settled.clear()

    def _end(self) -> None:
        self._under_way -= 1
        if not self._under_way:
            self._settled.set()

    async def _step(self, name: str, work: Callable[[], Awaitable[Plain]]) -> Plain:
        try:
            return await self._checkpoints.step(name, work)
        except WorkTakenError:
            self.is_leaving = True
            raise


def _plain_result(result: ToolResult) -> Plain:
    output = FunctionCallOutput(call_id=result.call_id, content=result.content, is_error=result.is_error)
    return {"output": encode_item(output), "metadata": dict(result.metadata)}


def _read_result(call_id: str, kept: Plain) -> ToolResult:
    output = decode_item(kept["output"])
    assert isinstance(output, FunctionCallOutput)  # noqa: S101 - it was written as one
    return ToolResult(
        call_id=call_id,
        content=output.content,  # type: ignore[arg-type] # a result has no links and files
        is_error=output.is_error,
        metadata=kept["metadata"],
    )

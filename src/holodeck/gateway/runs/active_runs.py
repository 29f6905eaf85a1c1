"""Registry of the runs of one gateway that have not finished.

It is the `RunListener` of all runs: each is here from its start to its end, and found by id, so that other requests can
follow or cancel it. A request that waits for its run runs it itself; `start_background` and `run_until_stored` run a
background response. At the end of a run its toolbox is closed. Tool calls and the outcome of a run are logged and
recorded in the accounts, without arguments.

`drain` ends them in order when the gateway stops: durable runs are handed over to other gateways, the others may finish
until the deadline, and the rest is cancelled. `close` also ends background runs that still wait for storage.
"""

from __future__ import annotations

import asyncio
from typing import Any

from holodeck.gateway.auth.callers import RevokedCallers
from holodeck.gateway.limits import CallerLimits
from holodeck.gateway.runs.live_run import LiveRun, RunState
from holodeck.gateway.usage.accounts import Accounts
from holodeck.gateway.wire.response.writer import ResponseWriter
from holodeck.lib import log
from holodeck.lib.errors import BAD_QUESTION, CONTEXT_TOO_LONG, UNSUPPORTED_FIELD
from holodeck.lib.limits import STORE_RETRY_PAUSE
from holodeck.lib.tasks import TaskSet
from holodeck.models.events import Failure, RunResult, ToolFinished
from holodeck.tools.toolbox import Toolbox

# Seconds for cancelled runs to be stored and their ends to be sent. Longer would delay the exit for a reader that reads
# nothing.
STOP_WAIT = 2.0
_CALLERS_FAULTS = frozenset({BAD_QUESTION, CONTEXT_TOO_LONG, UNSUPPORTED_FIELD})
# Stands for a tool name that a model invented, which may be any text: it is neither logged nor counted itself.
_UNKNOWN_TOOL = "unknown"


class ActiveRuns:
    """The runs of this gateway that have not finished."""

    def __init__(self, accounts: Accounts, caller_limits: CallerLimits) -> None:
        """`accounts` records the runs. `caller_limits` counts those that are background responses."""
        self._accounts = accounts
        self._caller_limits = caller_limits
        self._live: dict[str, LiveRun[Any]] = {}
        self._background = TaskSet()
        self._background_ids: dict[str, str] = {}
        """The runs that are background responses, until they are stored, each with the id of its caller."""

    def __len__(self) -> int:
        return len(self._live)

    @property
    def background_count(self) -> int:
        """How many of the runs are background responses."""
        return len(self._background_ids)

    def find(self, run_id: str, caller_id: str) -> LiveRun[ResponseWriter] | None:
        """Return the unfinished response of a caller. None if it is another caller's, no response, or not here."""
        live = self._live.get(run_id)
        return (
            live
            if live is not None and live.caller_id == caller_id and isinstance(live.writer, ResponseWriter)
            else None
        )

    def find_stored(self, run_id: str) -> LiveRun[ResponseWriter] | None:
        """Return the unfinished response of any caller, if it will be stored. None: it is not here."""
        live = self._live.get(run_id)
        return live if live is not None and isinstance(live.writer, ResponseWriter) and live.writer.is_stored else None

    def list_stored(self) -> list[LiveRun[ResponseWriter]]:
        """Return the unfinished responses of all callers that will be stored, or are already."""
        return [
            live for live in self._live.values() if isinstance(live.writer, ResponseWriter) and live.writer.is_stored
        ]

    def has(self, run_id: str) -> bool:
        return run_id in self._live

    def is_working_on(self, run_id: str) -> bool:
        """Return whether a run is here, or waits here to be stored."""
        return run_id in self._live or run_id in self._background_ids

    def has_caller(self, caller_id: str) -> bool:
        """Return whether a run of a caller is here, or waits here to be stored."""
        return caller_id in self._background_ids.values() or any(
            live.caller_id == caller_id for live in self._live.values()
        )

    def cancel(self, run_id: str) -> None:
        """Cancel a run. Does nothing if it is not here."""
        if run_id in self._live:
            self._live[run_id].cancel()

    def cancel_background(self, revoked: RevokedCallers) -> None:
        """Cancel the background responses of these callers. Other runs end with their requests."""
        for run_id in self._background_ids.keys() & self._live.keys():
            if self._live[run_id].caller_id in revoked:
                self._live[run_id].cancel()

    def add(self, live: LiveRun[Any]) -> None:
        log.add_fields(response=live.id)
        self._live[live.id] = live

    def remove(self, live: LiveRun[Any]) -> None:
        self._live.pop(live.id, None)
        live.toolbox.close()

    def observe_call(self, live: LiveRun[Any], event: ToolFinished) -> None:
        """Log a tool call, and record it in the accounts."""
        server, tool = _tool_of(event, live.toolbox)
        is_error = event.output.is_error
        self._accounts.record_call(
            live.caller_id, live.trace.stand_in or live.model, server, tool, event.seconds, is_error=is_error
        )
        log.info(
            "gateway.tool_call",
            response=live.id,
            caller=live.caller_id,
            server=server or None,
            tool=tool,
            outcome="error" if is_error else "ok",
            seconds=round(event.seconds, 4),
        )

    def observe_end(self, live: LiveRun[Any], result: RunResult) -> None:
        """Log the outcome of a run, and record it in the accounts."""
        trace = live.trace
        model = trace.stand_in or live.model
        self._accounts.record_run(
            live.caller_id,
            model,
            result,
            # As `/v1/runs` has it. `result.seconds` leaves out the queue and what comes before the first turn.
            seconds=trace.seconds or 0.0,
            cost=trace.cost,
            first_token_seconds=trace.first_token_seconds,
        )
        if result.error is not None:
            _log_failure(live.id, model, result.error)
        counts: dict[str, object] = {
            "turns": result.turns,
            "tool_calls": result.tool_calls,
            "input_tokens": result.usage.input_tokens,
            "output_tokens": result.usage.output_tokens,
        }
        if result.missing_servers:
            counts["missing_servers"] = ",".join(server.name for server in result.missing_servers)
        if live.has_request_log:
            log.add_fields(model=model, run=result.status, **counts)
            return
        outcome = {"model": model, "status": result.status, **counts, "seconds": round(result.seconds, 4)}
        log.info("gateway.run", response=live.id, caller=live.caller_id, **outcome)

    def start_background(self, live: LiveRun[Any]) -> None:
        """Start a run as a task of this gateway, which outlives the request."""
        log.add_fields(response=live.id)
        self._live[live.id] = live
        self._background_ids[live.id] = live.caller_id
        self._caller_limits.acquire(live.caller_id)
        task = self._background.start(self.run_until_stored(live), name=f"background {live.id}")
        task.add_done_callback(lambda _: self._caller_limits.release(live.caller_id))

    async def run_until_stored(self, live: LiveRun[Any]) -> None:
        """Run to the end, and retry to store it until that succeeds: no request is there to report a failure to.

        Closes the run.
        """
        self._background_ids[live.id] = live.caller_id
        try:
            async with live:
                with log.scope(**live.log_context | {"response": live.id}):
                    live.has_request_log = False
                    await live.run_to_end()
                while live.state is RunState.FAILED_TO_STORE:
                    await asyncio.sleep(STORE_RETRY_PAUSE)
                    await live.retry_store()
        finally:
            self._background_ids.pop(live.id, None)

    async def close(self) -> None:
        """Cancel all runs, and all retries to store one. Waits as long as storage takes, which has its own timeouts."""
        await self.drain(0)
        self._background.cancel()
        await self._background.wait()

    async def drain(self, seconds: float) -> None:
        """Hand over durable runs, let the others run for `seconds`, then cancel the rest.

        Takes at most `seconds` and `STOP_WAIT`.
        """
        deadline = asyncio.get_running_loop().time() + seconds
        handovers = TaskSet()
        for live in self._live.values():
            if live.is_durable:
                handovers.start(live.hand_over())
        while self._live:
            remaining = deadline - asyncio.get_running_loop().time()
            if remaining <= 0:
                break
            await self._wait_finished(remaining)
        handovers.cancel()
        for live in list(self._live.values()):
            if live.is_durable:
                live.abandon()
            live.cancel()
        await self._wait_finished(STOP_WAIT)

    async def _wait_finished(self, seconds: float) -> None:
        """Wait until the runs of now have finished, at most `seconds`."""
        waits = TaskSet()
        for live in self._live.values():
            waits.start(live.finished.wait())
        await waits.wait(seconds)
        waits.cancel()


def _log_failure(response_id: str, model: str, failure: Failure) -> None:
    """Log why a run failed. What the caller was told is left out: it may quote the conversation."""
    is_withheld = failure.message != failure.public_message and failure.code not in _CALLERS_FAULTS
    cause = {"error": failure.message} if is_withheld else {}
    log.warning("gateway.run_failed", response=response_id, model=model, code=failure.code, **cause)


def _tool_of(event: ToolFinished, toolbox: Toolbox) -> tuple[str, str]:
    """Return the server of a call (empty for an agent's function) and its tool, as the operator or server names it."""
    metadata = event.metadata
    if "server" in metadata:
        return str(metadata["server"]), str(metadata.get("tool", event.name))
    is_ours = toolbox.find_spec(event.name) is not None and not toolbox.is_client_function(event.name)
    return "", event.name if is_ours else _UNKNOWN_TOOL

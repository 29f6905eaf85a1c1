"""When a fault strikes: on which requests, after how many good ones, every how many, how often."""

from __future__ import annotations

from collections.abc import Callable

from holodeck.testing.mcp.actions import Message
from holodeck.testing.mcp.faults import ANY, HANDSHAKE, ONCE, START, Era, Fault
from holodeck.testing.mcp.sizes import CRASH_EVERY


class FaultSchedule:
    """Counts the requests that match and says for each whether the fault strikes.

    `on` is a method (`tools/call`), a method and a tool or prompt (`tools/call:echo`), `*` for every request,
    or `handshake`; without it, the fault's own. The first `after` matching requests are served well, then every
    `every`-th one is struck, at most `times` times.
    """

    def __init__(
        self,
        fault: Fault,
        *,
        era: Era,
        on: str | None = None,
        after: int = 0,
        every: int | None = None,
        times: int | None = None,
        count_strikes: Callable[[], int] | None = None,
    ) -> None:
        self.fault = fault
        self._era = era
        self._on = on or fault.on
        self._after = after
        self._every = every or (CRASH_EVERY if fault is Fault.CRASH_LOOP else 1)
        self._times = times if times is not None else (1 if fault in ONCE else None)
        self._seen = 0
        self._strikes = 0
        self._count_strikes = count_strikes or (lambda: self._strikes)

    def strike(self, method: str, name: str | None = None) -> Fault | None:
        """Return the fault if it strikes this request, and count it."""
        if self.fault is Fault.NORMAL or not self._matches(method, name):
            return None
        self._seen += 1
        due = self._seen > self._after and (self._seen - self._after) % self._every == 0
        if not due or (self._times is not None and self._count_strikes() >= self._times):
            return None
        self._strikes += 1
        return self.fault

    def strike_message(self, message: Message) -> Fault | None:
        """Return the fault if the message is a request that it strikes."""
        if "id" not in message or "method" not in message:
            return None
        params = message.get("params")
        return self.strike(str(message["method"]), params.get("name") if isinstance(params, dict) else None)

    def strike_at_start(self) -> Fault | None:
        """Return the fault if it is one of those that strike before any request."""
        return self.strike(START) if self._on == START else None

    def _matches(self, method: str, name: str | None) -> bool:
        if self._on == ANY:
            return method != START
        if self._on == HANDSHAKE:
            return method == ("initialize" if self._era == "legacy" else "server/discover")
        wanted_method, _, wanted_name = self._on.partition(":")
        return method == wanted_method and wanted_name in ("", name)

"""Admission of requests: a few start in each turn of the event loop, others wait in line, and overload is refused.

Without it, all requests that have arrived start in one turn, which then takes as long as all of them together: probes
wait for it, clients give up, and their answers are made in vain. In line, a request costs its head and 64 KiB of
its body at most; it starts in the order of arrival. Reading takes a bounded part of each turn as well: thousands of
clients that are refused, and ask again at once, must not make a probe wait for all of them. A large body takes up to
some hundred milliseconds to be read into a request, so that only one is in a turn (`wait_large_turn`).

The gateway is overloaded

- while the first request in line has waited for `MAX_WAIT`,
- while `MAX_WAITING` requests are in line,
- once turns of the event loop have taken more than `LATE_TURN` each for `LATE_SECONDS`, until one takes less than half.

New requests are then refused, before their bodies are read. Nothing runs and no timer is set while no request comes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from holodeck.lib import log
from holodeck.lib.limits import KIB

# Requests that start in one turn. Each takes about a millisecond of CPU, so that a turn stays far below the half second
# in which a probe must be answered, and the work of a turn is large beside what a turn costs by itself.
STARTS_PER_TURN = 8
# Seconds of a turn in which data is read, so that a probe on a new connection, which takes two turns, is answered soon.
READ_SECONDS = 0.02
# Bytes of a body that is large: a smaller one takes about as long as its run.
LARGE_BODY_BYTES = 64 * KIB
# Seconds that the first request in line may have waited: a new one would wait as long and longer.
MAX_WAIT = 1.0
# Requests in line: what a burst of clients sends at once, and 128 MiB of bodies at most.
MAX_WAITING = 2_000
# Seconds of a turn that is late: a probe takes two or three turns.
LATE_TURN = 0.25
# Seconds of late turns in a row, so that one long computation or a pause of the whole machine refuses nothing.
LATE_SECONDS = 1.0
# Seconds between two turns that are measured while the gateway is overloaded and no request starts.
_RECHECK = 0.05
# Seconds between two lines of the log.
_LOG_PAUSE = 1.0
# Not the clock of the event loop: uvloop's stands still during a turn.
_now = time.monotonic


class Admission:
    """Decides for each request of one event loop whether it starts, waits, or is refused."""

    def __init__(self) -> None:
        self._line: deque[tuple[float, Callable[[], None]]] = deque()
        self._unread: deque[Callable[[], None]] = deque()
        """Readers of data that has come, in the order of arrival."""
        self.is_crowded = False
        """True while requests wait or are refused: a connection then asks `can_read` before it reads."""
        self._loop: asyncio.AbstractEventLoop
        self._started = 0
        """Requests that have started since the latest turn was counted."""
        self._turn_began_at = 0.0
        self._is_counting = False
        """Whether the end of the current turn will be seen."""
        self._late_since: float | None = None
        self._has_late_turns = False
        self._large_turn = asyncio.Lock()
        self._unlogged = 0
        self._is_log_paused = False
        self.refused = 0
        """Requests that were refused."""
        self.longest_turn = 0.0
        """Seconds of the longest turn that was measured."""

    @property
    def waiting(self) -> int:
        """Requests in line."""
        return len(self._line)

    @property
    def is_overloaded(self) -> bool:
        if self._has_late_turns:
            return True
        if not self._line:
            return False
        return len(self._line) >= MAX_WAITING or _now() - self._line[0][0] >= MAX_WAIT

    def start(self, run: Callable[[], None]) -> None:
        """Call `run` now, or in a later turn after those that came before."""
        if not self._is_counting:
            self._count_turn()
        if self._started < STARTS_PER_TURN and not self._line:
            self._started += 1
            run()
        else:
            self._line.append((_now(), run))
            self.is_crowded = True

    async def wait_large_turn(self) -> None:
        """Wait for a turn of the event loop in which no other large body begins to be read, in the order of arrival."""
        async with self._large_turn:
            await asyncio.sleep(0)

    def can_read(self) -> bool:
        """Return whether this turn has time to read data, and none waits. Otherwise it waits by `read_later`."""
        if not self._is_counting:
            self._count_turn()
        return not self._unread and _now() - self._turn_began_at < READ_SECONDS

    def read_later(self, read: Callable[[], None]) -> None:
        """Call `read` in a later turn, after those that came before."""
        self._unread.append(read)

    def count_refusal(self) -> None:
        """Count a request that was refused for overload. Writes one line a second at most."""
        self.refused += 1
        self._unlogged += 1
        self.is_crowded = True
        if not self._is_log_paused:
            self._write_log()
        if not self._is_counting:
            self._count_turn()

    def _count_turn(self) -> None:
        self._is_counting = True
        self._turn_began_at = _now()
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        now = _now()
        seconds = now - self._turn_began_at
        self.longest_turn = max(self.longest_turn, seconds)
        if seconds >= LATE_TURN or self._has_late_turns or self._late_since is not None:
            self._note_late_turn(seconds, now)
        has_started, self._started = self._started > 0, 0
        if self.is_crowded:
            self._go_on(now)
        if has_started or self._started or self._line or self._unread:
            # What has started runs in the next turn.
            self._turn_began_at = _now()
            self._loop.call_soon(self._end_turn)
        elif self._has_late_turns:
            self._loop.call_later(_RECHECK, self._count_turn)
        else:
            self._is_counting = False

    def _go_on(self, now: float) -> None:
        """Start requests that wait, and read data that waits."""
        while self._line and self._started < STARTS_PER_TURN:
            self._started += 1
            self._line.popleft()[1]()
        while self._unread and _now() - now < READ_SECONDS:
            self._unread.popleft()()
        self.is_crowded = bool(self._line or self._unread or self._has_late_turns)

    def _note_late_turn(self, seconds: float, now: float) -> None:
        """Note a turn that is late, or one after such turns."""
        if seconds < LATE_TURN:
            self._late_since = None
            self._has_late_turns = self._has_late_turns and seconds > LATE_TURN / 2
        elif self._late_since is None:
            self._late_since = now - seconds
        elif now - self._late_since >= LATE_SECONDS:
            self._has_late_turns = True
        self.is_crowded = self.is_crowded or self._has_late_turns

    def _write_log(self) -> None:
        """Write what was refused since the latest line, and go on in a second if there was something."""
        self._is_log_paused = self._unlogged > 0
        if self._is_log_paused:
            turn = round(self.longest_turn, 3)
            log.warning("gateway.overloaded", refused=self._unlogged, waiting=self.waiting, longest_turn=turn)
            self._unlogged = 0
            asyncio.get_running_loop().call_later(_LOG_PAUSE, self._write_log)

"""A thread that answers probes of `/healthz` while the event loop is late.

Admission bounds what starts and what is read in a turn of the event loop, but not what a turn computes: some large
bodies, or thousands of streams that all have something to send, take seconds. Probes would wait in the queue of the
listener for them, and an orchestrator would end a gateway that is only busy.

`HealthThread` waits for connections beside the event loop, and accepts none while the loop does: it asks for a turn
when one comes, ten times a second at most, and that is all it costs. If the turn has not come within `LATE_SECONDS`, it
accepts what waits, answers a connection that begins with a request for `/healthz` and closes it, and hands every other
one over to the event loop. It goes on until turns have been in time for `CALM_SECONDS`. The interpreter switches
between threads every few milliseconds, so an answer waits for no turn; it waits for one step of the garbage collector
at most, and a connection that the event loop has accepted before its late turn waits for that.

An event loop that has not turned for `STUCK_SECONDS` is not busy: the answer is a 503, and the log says so.

`start` and `stop` are called in the thread of the event loop. `stop` waits for the end of the thread, which is near: it
never waits for anything but sockets, and for those not longer than `LATE_SECONDS` once it was woken.
"""

from __future__ import annotations

import asyncio
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar

from holodeck.gateway.http.replies import HEALTHY, Reply
from holodeck.gateway.server.served_request import encode_reply
from holodeck.lib import log
from holodeck.lib.ids import new_id

# Seconds after which a turn of the event loop is late: a probe may take half a second in all.
LATE_SECONDS = 0.1
# Seconds of turns in time after which the event loop accepts alone again.
CALM_SECONDS = 1.0
# Seconds without a turn after which an event loop is taken for stuck: longer than the largest request takes.
STUCK_SECONDS = 30.0
# Seconds in which a connection may send its first bytes here: a probe sends them with the connection.
_FIRST_BYTES_SECONDS = 0.2
# Connections without first bytes that are held here at once. More stay in the queue of the listener.
_MAX_HELD = 1_024
# Bytes of a probe's request, with the headers that balancers add.
_PROBE_BYTES = 16_384
_HEALTH_REQUEST = b"GET /healthz HTTP/1."
_STUCK = Reply(status=HTTPStatus.SERVICE_UNAVAILABLE, body=b'{"status":"stuck"}')
# Seconds between two lines of the log that say that the event loop is stuck.
_LOG_PAUSE = 30.0
# Seconds for the thread to end: it is woken, and waits for nothing else.
_STOP_SECONDS = 5.0
_now = time.monotonic
_T = TypeVar("_T")


class _LoopClosedError(Exception):
    """The event loop is closed, without a call of `stop`."""


def is_health_request(data: bytes) -> bool:
    """Return whether a connection begins with one whole request for `/healthz`."""
    return data.startswith(_HEALTH_REQUEST) and data.endswith(b"\r\n\r\n")


def encode_health(reply: Reply = HEALTHY) -> bytes:
    """Encode the reply to a probe that is answered ahead of the application. Its connection is closed after it."""
    return encode_reply(reply, f"x-request-id: {new_id('req')}\r\nconnection: close\r\n".encode())


@dataclass(frozen=True)
class _Turn:
    """A turn of the event loop that was asked for."""

    asked_at: float = field(default_factory=_now)
    begun: list[bool] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Since it was asked for."""
        return _now() - self.asked_at


class HealthThread:
    """Answers probes on the connections of one listener while the event loop is late."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        take_over: Callable[[socket.socket], None],
        *,
        stuck_seconds: float = STUCK_SECONDS,
    ) -> None:
        """`take_over`: called in the event loop with each accepted connection that is no probe."""
        self._stuck_seconds = stuck_seconds
        self._loop = loop
        # Of its own: the event loop closes its listeners when it likes.
        self._listener = listener.dup()
        # They share this flag: a socket is blocking when it is made.
        self._listener.setblocking(False)
        self._take_over = take_over
        self._woken, self._waker = socket.socketpair()
        self._is_stopped = False
        self._held: dict[int, tuple[float, socket.socket]] = {}
        """Connections without first bytes, by descriptor, with the time at which they came."""
        self._logged_at = float("-inf")
        self._thread = threading.Thread(target=self._run, name="health", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Accept no connection any more. The event loop has those that were accepted. Idempotent."""
        self._is_stopped = True
        with suppress(OSError):
            self._waker.send(b"\0")
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        arrivals, pause = select.poll(), select.poll()
        for poll in (arrivals, pause):
            poll.register(self._woken, select.POLLIN)
        arrivals.register(self._listener, select.POLLIN)
        try:
            while not self._is_stopped:
                arrivals.poll()
                turn = self._ask_for_turn()
                # Asleep, so that connections that keep coming wake this thread ten times a second at most.
                pause.poll(LATE_SECONDS * 1_000)
                if not turn.begun:
                    self._serve_until_calm(turn)
        except _LoopClosedError:
            pass
        finally:
            for each in (self._listener, self._woken, self._waker, *(held for _, held in self._held.values())):
                each.close()

    def _ask_for_turn(self) -> _Turn:
        turn = _Turn()
        # A function in C: the event loop runs no line of Python for it.
        self._call_in_loop(turn.begun.append, True)
        return turn

    def _call_in_loop(self, function: Callable[[_T], object], value: _T) -> None:
        try:
            self._loop.call_soon_threadsafe(function, value)
        except RuntimeError:
            raise _LoopClosedError from None

    def _serve_until_calm(self, turn: _Turn) -> None:
        """Accept every connection until turns are in time again. `turn`: the one that is late."""
        poll, late_at = select.poll(), _now()
        poll.register(self._woken, select.POLLIN)
        while not self._is_stopped and _now() - late_at < CALM_SECONDS:
            if turn.seconds > LATE_SECONDS:
                if turn.begun:
                    turn = self._ask_for_turn()
                else:
                    late_at = _now()
            self._watch_listener(poll)
            for descriptor, _ in poll.poll(LATE_SECONDS * 1_000 / 2):
                if descriptor == self._listener.fileno():
                    self._accept(poll)
                elif descriptor in self._held:
                    self._read_first_bytes(poll, descriptor, turn)
            self._release_silent(poll)
        for descriptor in list(self._held):
            self._hand_over(poll, descriptor)

    def _watch_listener(self, poll: select.poll) -> None:
        """Wait for connections while there is room for them."""
        poll.register(self._listener, select.POLLIN if len(self._held) < _MAX_HELD else 0)

    def _accept(self, poll: select.poll) -> None:
        try:
            while len(self._held) < _MAX_HELD:
                connection, _ = self._listener.accept()
                connection.setblocking(False)
                self._held[connection.fileno()] = _now(), connection
                poll.register(connection, select.POLLIN)
        except BlockingIOError:
            pass
        except OSError:
            # Descriptors are short, so the connections stay where they are. The event loop logs it.
            time.sleep(LATE_SECONDS / 2)

    def _read_first_bytes(self, poll: select.poll, descriptor: int, turn: _Turn) -> None:
        connection = self._held[descriptor][1]
        try:
            data = connection.recv(_PROBE_BYTES, socket.MSG_PEEK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not is_health_request(data):
            self._hand_over(poll, descriptor)
            return
        poll.unregister(descriptor)
        del self._held[descriptor]
        with suppress(OSError), connection:
            # What is left unread would reset the connection at its end.
            connection.recv(len(data))
            connection.send(encode_health(self._build_reply(turn)))

    def _build_reply(self, turn: _Turn) -> Reply:
        seconds = turn.seconds
        if turn.begun or seconds < self._stuck_seconds:
            return HEALTHY
        if _now() - self._logged_at >= _LOG_PAUSE:
            self._logged_at = _now()
            log.error("gateway.stuck", seconds=round(seconds))
        return _STUCK

    def _release_silent(self, poll: select.poll) -> None:
        """Hand over the connections that have sent nothing for too long. The oldest come first."""
        too_old = _now() - _FIRST_BYTES_SECONDS
        for descriptor, (came_at, _) in list(self._held.items()):
            if came_at > too_old:
                break
            self._hand_over(poll, descriptor)

    def _hand_over(self, poll: select.poll, descriptor: int) -> None:
        poll.unregister(descriptor)
        _, connection = self._held.pop(descriptor)
        try:
            self._call_in_loop(self._take_over, connection)
        except _LoopClosedError:
            connection.close()
            raise

"""The track that agents record to or replay from, if any: `runtime` asks for it when it builds a model or a server.

The track is a context variable, so that agents of other tasks and threads do not see it. Test runners may run a test in
a context that was copied before the fixture of the test was set up; for them there is one track of the whole process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holodeck.lib.ids import new_id

if TYPE_CHECKING:
    from holodeck.providers.base import ModelProvider
    from holodeck.tools.mcp.transports.base import OnMessage, Transport, TransportSetup


class Track(Protocol):
    """One track of a cassette, as the composition of an agent uses it."""

    @property
    def is_replay(self) -> bool:
        """True: models and servers answer from the cassette. False: they are asked, and recorded."""
        ...

    def set_agent(self, path: Path) -> None:
        """Use the folder of this agent file as `${workspaceFolder}`. Only the first one counts."""

    def open_model(self, model: ModelProvider) -> ModelProvider:
        """Return the model that records or replays. It owns `model`, which a replay never asks."""
        ...

    def build_transport(self, setup: TransportSetup, on_message: OnMessage) -> Transport:
        """Build the transport that records or replays the messages of a server."""
        ...

    def make_id(self, prefix: str) -> str:
        """Return the next id: the same ones, in the same order, in a recording and in its replays."""
        ...


OpenTrack = Callable[[], Track]
"""Returns the track; opens it for its first user."""

_current: ContextVar[OpenTrack | None] = ContextVar("cassette_track", default=None)
_process_wide: list[OpenTrack] = []


def find_track() -> Track | None:
    """Return the track that agents use which are built now, or None. Raises `ConfigError` if it is not recorded."""
    open_track = _current.get() or (_process_wide[-1] if _process_wide else None)
    return None if open_track is None else open_track()


@contextmanager
def use_track(open_track: OpenTrack, *, is_process_wide: bool = False) -> Iterator[None]:
    """Let agents that are built during the block use a track."""
    token = _current.set(open_track)
    if is_process_wide:
        _process_wide.append(open_track)
    try:
        yield
    finally:
        if is_process_wide:
            _process_wide.remove(open_track)
        _current.reset(token)


def make_id(prefix: str) -> str:
    """Return a new id: that of the current track, or else a random one."""
    track = find_track()
    return new_id(prefix) if track is None else track.make_id(prefix)

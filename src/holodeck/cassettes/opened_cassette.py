"""An opened cassette: agents that are built while it is open are recorded or replayed.

    with OpenedCassette(Path("x.yaml")) as cassette:
        ...

A cassette has tracks. Outside of `track(name)` agents use the one without a name. Each track is replayed if the file
has it and recorded otherwise, as `record` says. At the end, a replay that did something else than the recording raises
`CassetteMismatchError`, and what was recorded is written. Nothing is written after an error other than a failed
assertion: the recording would be half of one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from holodeck.cassettes.active import use_track
from holodeck.cassettes.cassette import Cassette, Entry, TrackData, describe_age, find_drift
from holodeck.cassettes.cassette_file import read_cassette, write_cassette
from holodeck.cassettes.player import ReplayedTrack
from holodeck.cassettes.recorder import RecordedTrack
from holodeck.cassettes.track import Redactor, Workspace
from holodeck.lib.errors import CassetteMismatchError, ConfigError, Problem
from holodeck.tools.mcp.lock.drift import ToolDrift

RecordMode = Literal["auto", "always", "never"]
"""`auto`: record what the file does not have, except in CI. `always`: record. `never`: replay only."""


class OpenedCassette:
    """A cassette in use. Enter it once, with `with` or `async with`."""

    def __init__(
        self,
        path: Path,
        record: RecordMode = "auto",
        *,
        how_to_record: str = 'record="always"',
        keeps_other_tracks: bool = True,
        is_process_wide: bool = False,
    ) -> None:
        """Read the file. Raises `ConfigError` for a damaged one, and for a missing one that may not be recorded.

        `how_to_record`: for errors. `keeps_other_tracks`: tracks of the file that are not used stay when it
        is written. `is_process_wide`: also for agents of tasks that do not have the context of the `with` block.
        """
        self.path = path
        self._record = record
        self._how_to_record = how_to_record
        self._keeps_other_tracks = keeps_other_tracks
        self._is_process_wide = is_process_wide
        self._may_record = record == "always" or (record == "auto" and not os.environ.get("CI"))
        self._before = read_cassette(path) if path.exists() else None
        age = f"It was recorded {describe_age(self._before.age)}. " if self._before is not None else ""
        self._hint = f"{age}If the change is meant, record it anew: {how_to_record}."
        if self._before is None and not self._may_record:
            raise self._missing_error("there is no such cassette")
        self._redactor, self._workspace = Redactor(), Workspace()
        self._tracks: dict[str, RecordedTrack | ReplayedTrack] = {}
        self._stack = ExitStack()
        self._written: Cassette | None = None
        self._is_finished = False

    @property
    def is_replay(self) -> bool:
        """Whether the file is replayed, at least in part."""
        return self._before is not None and self._record != "always"

    @property
    def age(self) -> timedelta | None:
        """How long ago the file was recorded; None if there was none."""
        return None if self._before is None else self._before.age

    @property
    def unused(self) -> list[Entry]:
        """The recorded requests that the agent did not ask so far, of the tracks that were used."""
        return [entry for track in self._replayed_tracks() for entry in track.unused]

    @property
    def mismatch(self) -> CassetteMismatchError | None:
        """The first difference between the recording and this run."""
        return next((track.mismatch for track in self._replayed_tracks() if track.mismatch is not None), None)

    @property
    def drift(self) -> dict[str, tuple[ToolDrift, ...]]:
        """After a recording, how tools of servers differ from those of the file before; empty otherwise."""
        before, after = self._before, self._written
        if before is None or after is None:
            return {}
        return find_drift(before, {server: after.list_tools(server) for server in after.servers})

    def can_open(self, name: str) -> bool:
        """Return whether the file has a track of this name, or it may be recorded."""
        return self._may_record or (self._before is not None and name in self._before.tracks)

    @contextmanager
    def track(self, name: str) -> Iterator[None]:
        """Let agents that are built during the block use the track of this name.

        Raises `ConfigError` at the start if the file does not have it and it may not be recorded, and
        `CassetteMismatchError` at the end, as the cassette itself does.
        """
        track = self._open_track(name)
        try:
            with use_track(lambda: track, is_process_wide=self._is_process_wide):
                yield
        except Exception as error:
            _raise_mismatch(track, error)
            raise
        _raise_mismatch(track, None)
        self._raise_unused(track)

    def __enter__(self) -> Self:
        opened = use_track(lambda: self._open_track(""), is_process_wide=self._is_process_wide)
        self._stack.enter_context(opened)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()
        self.finish(error)

    def finish(self, error: BaseException | None = None) -> None:
        """Write what was recorded, and raise `CassetteMismatchError` if the replay differs. Only the first time.

        `error`: how the block ended. The end of the block does this by itself.
        """
        if self._is_finished:
            return
        self._is_finished = True
        if error is None or isinstance(error, AssertionError):
            self._write()
        default = self._tracks.get("")
        if default is not None and (error is None or isinstance(error, Exception)):
            _raise_mismatch(default, error)
            if error is None:
                self._raise_unused(default)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, traceback)

    def _replayed_tracks(self) -> list[ReplayedTrack]:
        return [track for track in self._tracks.values() if isinstance(track, ReplayedTrack)]

    def _open_track(self, name: str) -> RecordedTrack | ReplayedTrack:
        if name not in self._tracks:
            recorded = self._before.tracks.get(name) if self._before is not None and self._record != "always" else None
            if recorded is None and not self._may_record:
                if name:
                    raise self._missing_error(f"the cassette has no track '{name}'")
                # Nothing was recorded outside of the tracks with names: a request there is a mismatch.
                recorded = TrackData(recorded_at=datetime.now(UTC))
            self._tracks[name] = (
                RecordedTrack(name, self._redactor, self._workspace)
                if recorded is None
                else ReplayedTrack(recorded, self.path, self._hint, self._redactor, self._workspace)
            )
        return self._tracks[name]

    def _write(self) -> None:
        """Write what was recorded, with the tracks of the file that stay."""
        recorded = [track for track in self._tracks.values() if isinstance(track, RecordedTrack) and not track.is_empty]
        if not recorded:
            return
        kept = dict(self._before.tracks) if self._before is not None and self._keeps_other_tracks else {}
        for track in recorded:
            kept[track.name] = track.take_track()
        agent = next((track.agent for track in recorded if track.agent), "")
        self._written = Cassette(path=self.path, recorded_at=datetime.now(UTC), agent=agent, tracks=kept)
        write_cassette(self._written)

    def _raise_unused(self, track: RecordedTrack | ReplayedTrack) -> None:
        if not isinstance(track, ReplayedTrack) or not (unused := track.unused):
            return
        shown = ", ".join(f"entry {entry['entry']} ({_describe_entry(entry)})" for entry in unused)
        name = f", track '{track.name}'" if track.name else ""
        text = f"{self.path}{name}: the agent did not ask what was recorded: {shown}.\n{self._hint}"
        raise CassetteMismatchError(text, file=str(self.path), track=track.name, entry=unused[0]["entry"])

    def _missing_error(self, message: str) -> ConfigError:
        is_ci = self._record == "auto"
        reason = "The variable CI is set, so nothing is recorded here. " if is_ci else ""
        fix = f"{reason}Record it on your machine ({self._how_to_record}), and commit it."
        return ConfigError.of([Problem(message=message, file=str(self.path), fix=fix)])


def _raise_mismatch(track: RecordedTrack | ReplayedTrack, error: Exception | None) -> None:
    """Raise the mismatch of a track in place of what it has caused."""
    if isinstance(track, ReplayedTrack) and track.mismatch is not None and error is not track.mismatch:
        raise track.mismatch from error


def _describe_entry(entry: Entry) -> str:
    if "model" in entry:
        return "a request to the model"
    tool = (entry.get("params") or {}).get("name")
    return f"{entry['request']} {tool} of {entry['server']}" if tool else f"{entry['request']} of {entry['server']}"

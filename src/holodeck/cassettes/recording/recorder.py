"""Records a track: the entries in the order in which requests were sent and messages came.

An entry gets its answer in place if nothing came between; otherwise the answer is an entry of its own. Entries are
redacted as a whole at the end, when all secrets are known: `take_track`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from holodeck.cassettes.cassette import Entry, TrackData
from holodeck.cassettes.model_data import drop_wrong_pieces
from holodeck.cassettes.recording.redactor import Redactor
from holodeck.cassettes.track_base import TrackBase
from holodeck.cassettes.workspace import Workspace

if TYPE_CHECKING:
    from holodeck.providers.base import ModelProvider
    from holodeck.tools.mcp.transports.base import OnMessage, Transport, TransportSetup


class RecordedTrack(TrackBase):
    """A track that is being recorded. Models and servers are asked."""

    is_replay: Literal[False] = False

    def __init__(self, name: str, redactor: Redactor, workspace: Workspace) -> None:
        super().__init__(name, redactor, workspace)
        self._entries: list[Entry] = []

    def open_model(self, model: ModelProvider) -> ModelProvider:
        from holodeck.cassettes.recording.recorded_model import RecordedModel

        return RecordedModel(model, self)

    def build_transport(self, setup: TransportSetup, on_message: OnMessage) -> Transport:
        from holodeck.cassettes.recording.recorded_transport import RecordedTransport

        self._redactor.add_server(setup.tool, setup.errors)
        return RecordedTransport(setup, on_message, self)

    def add(self, **entry: Any) -> int:
        """Add an entry without the keys that are None, and return its number."""
        number = len(self._entries) + 1
        self._entries.append({"entry": number, **{key: value for key, value in entry.items() if value is not None}})
        return number

    def add_answer(self, number: int, **answer: Any) -> None:
        """Add the answer to the request of an entry."""
        if number == len(self._entries):
            self._entries[-1] |= answer
        else:
            self.add(answer_to=number, **answer)

    @property
    def is_empty(self) -> bool:
        return not self._entries

    def take_track(self) -> TrackData:
        """Return what was recorded, without secrets and without the folder of the agent."""
        entries = self._workspace.to_portable(self._redactor.redact(self._entries))
        for entry in entries:
            drop_wrong_pieces(entry.get("answer", ()))
        return TrackData(name=self.name, recorded_at=datetime.now(UTC), entries=entries)

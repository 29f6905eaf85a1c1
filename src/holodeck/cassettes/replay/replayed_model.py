"""A model that answers from a cassette."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holodeck.cassettes.model_data import decode_events, decode_model_error, encode_request
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper

if TYPE_CHECKING:
    from holodeck.cassettes.replay.player import ReplayedTrack


class ReplayedModel(ModelWrapper):
    """Answers in place of another model, of which only the name is used."""

    def __init__(self, inner: ModelProvider, track: ReplayedTrack) -> None:
        super().__init__(inner)
        self._track = track

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Yield the recorded deltas. Raises `CassetteMismatchError`, and the `ModelError` that was recorded."""
        entry = self._track.localize(await self._track.ask_model(self.name, encode_request(request)))
        if events := decode_events(entry.get("answer", ())):
            yield events
        if "error" in entry:
            raise decode_model_error(entry["error"])

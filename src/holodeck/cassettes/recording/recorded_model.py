"""A model whose requests and answers are recorded."""

from __future__ import annotations

from contextlib import aclosing

from holodeck.cassettes.model_data import encode_events, encode_model_error, encode_request
from holodeck.cassettes.recording.recorder import RecordedTrack
from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelEvent, ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches


class RecordedModel(ModelWrapper):
    """Asks another model, and records what it is asked and answers. A request that is abandoned has no answer."""

    def __init__(self, inner: ModelProvider, track: RecordedTrack) -> None:
        super().__init__(inner)
        self._track = track

    async def stream_batches(self, request: ModelRequest) -> Batches:
        number = self._track.add(model=self.name, request=encode_request(request))
        events: list[ModelEvent] = []
        try:
            async with aclosing(stream_in_batches(self._inner, request)) as batches:
                async for batch in batches:
                    events += batch
                    yield batch
        except ModelError as error:
            answer = {"answer": encode_events(events)} if events else {}
            self._track.add_answer(number, **answer, error=encode_model_error(error))
            raise
        except GeneratorExit:
            # The engine has read enough: the replay ends in the same place.
            self._track.add_answer(number, answer=encode_events(events))
            raise
        else:
            self._track.add_answer(number, answer=encode_events(events))

"""The Responses API: OpenAI's own dialect, in which a model can be handed back its encrypted thoughts."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from holodeck.lib.errors import ModelError
from holodeck.lib.secret import Secret
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches
from holodeck.providers.http.endpoint import Endpoint
from holodeck.providers.http.model import HTTPModel
from holodeck.providers.http.model_address import ModelAddress, append_path, bearer_headers, host_of
from holodeck.providers.openai_responses import ResponsesDecoder
from holodeck.providers.responses_request import build_responses_body

OPENAI_URL = "https://api.openai.com/v1"
_BAD_REQUEST = 400


class ResponsesDialect:
    """How the dialect is spoken to one model."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.wants_encrypted = True
        """Models that do not reason refuse the wish, so it is given up after the first refusal."""

    def build_body(self, request: ModelRequest) -> dict[str, Any]:
        return build_responses_body(request, model=self._model, wants_encrypted=self.wants_encrypted)

    def create_decoder(self, request: ModelRequest, address: ModelAddress) -> ResponsesDecoder:
        return ResponsesDecoder(request, address)


class Responses(HTTPModel):
    """A model at a server that speaks the Responses API. `base_url` usually ends in `/v1`."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str = OPENAI_URL,
        api_key: Secret | None = None,
        key_source: str = "model.api_key",
        provider: str = "openai",
    ) -> None:
        address = ModelAddress(
            provider=provider, model=model, host=host_of(base_url), key=api_key, key_source=key_source
        )
        endpoint = Endpoint(
            append_path(base_url, "/responses"), address=address, headers=lambda: bearer_headers(api_key)
        )
        self._responses_dialect = ResponsesDialect(model)
        super().__init__(endpoint, self._responses_dialect)

    async def stream_batches(self, request: ModelRequest) -> Batches:
        """Ask once; twice when the model turns out to have no encrypted thoughts."""
        try:
            async with aclosing(super().stream_batches(request)) as batches:
                async for batch in batches:
                    yield batch
        except ModelError as error:
            if not (self._responses_dialect.wants_encrypted and _is_about_encryption(error)):
                raise
            self._responses_dialect.wants_encrypted = False
        else:
            return
        async with aclosing(super().stream_batches(request)) as batches:
            async for batch in batches:
                yield batch


def _is_about_encryption(error: ModelError) -> bool:
    return error.status == _BAD_REQUEST and "encrypted" in str(error).lower()

"""Anthropic Messages: the dialect of Claude, in which tool results carry pictures and say that they failed."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from holodeck.lib.secret import Secret
from holodeck.models.model_io import ModelRequest
from holodeck.providers.anthropic_answer import AnthropicDecoder
from holodeck.providers.anthropic_request import build_anthropic_body
from holodeck.providers.http.endpoint import Endpoint
from holodeck.providers.http.model import HTTPModel
from holodeck.providers.http.model_address import ModelAddress, append_path, host_of

ANTHROPIC_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"


class AnthropicDialect:
    """How the dialect is spoken to one model."""

    def __init__(self, model: str) -> None:
        self._model = model

    def build_body(self, request: ModelRequest) -> dict[str, Any]:
        return build_anthropic_body(request, model=self._model)

    def create_decoder(self, request: ModelRequest, address: ModelAddress) -> AnthropicDecoder:
        return AnthropicDecoder(request, address)


class Anthropic(HTTPModel):
    """A model at a server that speaks Anthropic Messages. `base_url` is with or without `/v1`."""

    def __init__(
        self,
        *,
        model: str,
        base_url: str = ANTHROPIC_URL,
        api_key: Secret | None = None,
        key_source: str = "ANTHROPIC_API_KEY",
    ) -> None:
        address = ModelAddress(
            provider="anthropic", model=model, host=host_of(base_url), key=api_key, key_source=key_source
        )
        has_version = urlsplit(base_url).path.rstrip("/").endswith(("/v1", "/messages"))
        url = append_path(base_url, "/messages" if has_version else "/v1/messages")
        super().__init__(Endpoint(url, address=address, headers=lambda: _headers(api_key)), AnthropicDialect(model))


def _headers(api_key: Secret | None) -> dict[str, str]:
    key = {"x-api-key": api_key.reveal()} if api_key else {}
    return {"anthropic-version": API_VERSION, **key}

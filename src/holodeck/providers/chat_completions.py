"""Chat Completions: OpenAI's older dialect, which Ollama, vLLM, LiteLLM, llama.cpp and most gateways speak as well."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from holodeck.lib.secret import Secret
from holodeck.models.model_io import ModelRequest
from holodeck.providers.chat_answer import ChatDecoder
from holodeck.providers.http.endpoint import Endpoint
from holodeck.providers.http.model import HTTPModel
from holodeck.providers.http.model_address import ModelAddress, append_path, bearer_headers, host_of
from holodeck.providers.openai_chat import build_chat_body

OPENAI_HOST = "api.openai.com"
DEFAULT_AZURE_VERSION = "2024-10-21"
_PATH = "/chat/completions"


class ChatDialect:
    """How the dialect is spoken to one kind of server."""

    def __init__(self, model: str, *, max_tokens_field: str = "max_tokens") -> None:
        self._model = model
        self._max_tokens_field = max_tokens_field

    def build_body(self, request: ModelRequest) -> dict[str, Any]:
        return build_chat_body(request, model=self._model, max_tokens_field=self._max_tokens_field)

    def create_decoder(self, request: ModelRequest, address: ModelAddress) -> ChatDecoder:
        return ChatDecoder(request, address)


class ChatCompletions(HTTPModel):
    """A model at a server that speaks Chat Completions. `base_url` usually ends in `/v1`."""

    def __init__(
        self,
        *,
        base_url: str,
        model: str,
        api_key: Secret | None = None,
        key_source: str = "model.api_key",
        provider: str = "openai_compatible",
    ) -> None:
        address = ModelAddress(
            provider=provider, model=model, host=host_of(base_url), key=api_key, key_source=key_source
        )
        field = "max_completion_tokens" if address.host == OPENAI_HOST else "max_tokens"
        endpoint = Endpoint(append_path(base_url, _PATH), address=address, headers=lambda: bearer_headers(api_key))
        super().__init__(endpoint, ChatDialect(model, max_tokens_field=field))


class AzureChatCompletions(HTTPModel):
    """The same at Azure OpenAI, where the name of a deployment is part of the address."""

    def __init__(
        self,
        *,
        base_url: str,
        deployment: str,
        api_key: Secret,
        api_version: str | None = None,
        key_source: str = "AZURE_OPENAI_API_KEY",
    ) -> None:
        address = ModelAddress(
            provider="azure_openai", model=deployment, host=host_of(base_url), key=api_key, key_source=key_source
        )
        endpoint = Endpoint(
            azure_url(base_url, deployment, api_version),
            address=address,
            headers=lambda: {"api-key": api_key.reveal()},
        )
        super().__init__(endpoint, ChatDialect(deployment, max_tokens_field="max_completion_tokens"))


def azure_url(base_url: str, deployment: str, api_version: str | None) -> str:
    """The address of a deployment; a base that ends in `/openai/v1` is Azure's newer form, without a version."""
    if urlsplit(base_url).path.rstrip("/").endswith("/openai/v1"):
        return append_path(base_url, _PATH)
    parts = urlsplit(append_path(base_url, f"/openai/deployments/{quote(deployment, safe='')}{_PATH}"))
    version = f"api-version={quote(api_version or DEFAULT_AZURE_VERSION)}"
    return urlunsplit(parts._replace(query=f"{parts.query}&{version}" if parts.query else version))

"""The model providers: how each one is built, and what the wrappers have to know about it.

A provider is one `RegistryRow` here, and one `ProviderSpec` in `models/provider.py` with the rules of its
configuration. Those with OpenAI's Chat Completions API need no row here. A row imports the provider's module when it is
built, so that a command loads only the dialect that it uses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.llm import LLM
from holodeck.models.provider import PROVIDER_SPECS, Provider
from holodeck.providers.base import ModelProvider
from holodeck.providers.tool_schemas.rules import SchemaRulesName

if TYPE_CHECKING:
    from holodeck.providers.http.model import ModelAccess


@record
class ModelSettings:
    """A configured model with its key."""

    llm: LLM
    key: Secret | None = None
    key_source: str = "model.api_key"
    """Where the key comes from, for error messages."""

    @property
    def name(self) -> str:
        return self.llm.name or ""

    @property
    def access(self) -> ModelAccess:
        return {
            "api_key": self.key,
            "key_source": self.key_source,
            "extra_headers": self.llm.headers,
            "has_silence_limit": self.llm.timeout is not None,
        }


BuildModel = Callable[[ModelSettings], ModelProvider]


@record
class RegistryRow:
    """One provider."""

    build: BuildModel
    """Builds the bare model, without wrappers. Makes no network access."""
    schema_rules: SchemaRulesName = "generic"
    """Which tool schemas the provider accepts."""
    guarantees_format: Literal["never", "strict", "always"] = "never"
    """Whether the provider itself makes answers match `response_format`. `strict`: for strict schemas, and only at the
    provider's own service, since another program behind an `endpoint` may ignore the format."""


def _build_openai(settings: ModelSettings) -> ModelProvider:
    """Call OpenAI itself through its Responses API; other servers mostly have Chat Completions only."""
    if settings.llm.endpoint is not None:
        return _build_chat(settings, settings.llm.endpoint)
    from holodeck.providers.openai_responses import Responses

    return Responses(model=settings.name, **settings.access)


def _build_azure(settings: ModelSettings) -> ModelProvider:
    from holodeck.providers.openai_chat import AzureChatCompletions

    return AzureChatCompletions(
        base_url=settings.llm.endpoint or "",
        deployment=settings.name,
        api_version=settings.llm.api_version,
        **settings.access,
    )


def _build_anthropic(settings: ModelSettings) -> ModelProvider:
    from holodeck.providers.anthropic import ANTHROPIC_URL, Anthropic

    llm = settings.llm
    return Anthropic(model=settings.name, base_url=llm.endpoint or ANTHROPIC_URL, cache=llm.cache, **settings.access)


def _build_compatible(settings: ModelSettings) -> ModelProvider:
    return _build_chat(settings, settings.llm.endpoint or settings.llm.spec.default_endpoint or "")


def _build_ollama(settings: ModelSettings) -> ModelProvider:
    endpoint = settings.llm.endpoint or settings.llm.spec.default_endpoint or ""
    # Users write the address of the server; its OpenAI dialect is under `/v1`.
    has_path = bool(urlsplit(endpoint).path.strip("/"))
    return _build_chat(settings, endpoint if has_path else endpoint.rstrip("/") + "/v1")


def _build_chat(settings: ModelSettings, base_url: str) -> ModelProvider:
    from holodeck.providers.openai_chat import ChatCompletions

    return ChatCompletions(
        base_url=base_url,
        model=settings.name,
        provider=str(settings.llm.provider),
        fields=settings.llm.api,
        asks_for_usage=not settings.llm.spec.streams_usage_unasked,
        **settings.access,
    )


def _build_local(settings: ModelSettings) -> ModelProvider:
    from holodeck.providers.local.model import Local

    return Local(settings.llm)


def _build_rehearsal(_: ModelSettings) -> ModelProvider:
    from holodeck.providers.rehearsal.model import Rehearsal

    return Rehearsal()


_ROWS: Mapping[Provider, RegistryRow] = {
    Provider.OPENAI: RegistryRow(build=_build_openai, schema_rules="openai", guarantees_format="strict"),
    Provider.AZURE_OPENAI: RegistryRow(build=_build_azure, schema_rules="openai", guarantees_format="strict"),
    Provider.ANTHROPIC: RegistryRow(build=_build_anthropic, schema_rules="anthropic", guarantees_format="strict"),
    Provider.OLLAMA: RegistryRow(build=_build_ollama),
    Provider.LOCAL: RegistryRow(build=_build_local, guarantees_format="always"),
    Provider.REHEARSAL: RegistryRow(build=_build_rehearsal),
}
PROVIDERS: Mapping[Provider, RegistryRow] = {
    provider: _ROWS.get(provider, RegistryRow(build=_build_compatible)) for provider in PROVIDER_SPECS
}

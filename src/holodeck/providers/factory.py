"""The model of an agent file, ready to be asked: its dialect, its key, and the wrappers that make it dependable."""

from __future__ import annotations

import importlib
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import cast
from urllib.parse import urlsplit

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import MODEL_FIRST_EVENT_TIMEOUT, MODEL_IDLE_TIMEOUT
from holodeck.lib.redaction import register_secrets
from holodeck.lib.secret import Secret
from holodeck.models.llm import API_KEY_VARIABLES, LLM, Provider
from holodeck.models.model_io import ModelEvent, ModelRequest
from holodeck.providers.base import ModelProvider
from holodeck.providers.tool_schemas import SchemaRulesName

OLLAMA_URL = "http://localhost:11434/v1"


def build_model_provider(llm: LLM, environ: Mapping[str, str]) -> ModelProvider:
    """Nothing is reached yet: a missing key or server is an error of the first question."""
    if llm.provider is Provider.REHEARSAL:
        return cast(ModelProvider, importlib.import_module("holodeck.providers.rehearsal").Rehearsal())
    if llm.provider is Provider.LOCAL:
        return cast(ModelProvider, importlib.import_module("holodeck.providers.local").Local(llm))
    from holodeck.providers.wrappers.circuit_breaker import CircuitBreaker
    from holodeck.providers.wrappers.retry import Retrying
    from holodeck.providers.wrappers.schema_adapter import SchemaAdapter
    from holodeck.providers.wrappers.timeout import Timeouts

    # The time-outs stand around the retries: a model that is silent for minutes is not asked again for as many more.
    first, idle = llm.timeout or MODEL_FIRST_EVENT_TIMEOUT, llm.timeout or MODEL_IDLE_TIMEOUT
    patient = Timeouts(Retrying(_build_model(llm, environ)), first=first, idle=idle)
    return SchemaAdapter(CircuitBreaker(patient), choose_schema_rules(llm))


def choose_schema_rules(llm: LLM) -> SchemaRulesName:
    """Which schemas the provider of a model accepts for tools."""
    if llm.provider is Provider.ANTHROPIC:
        return "anthropic"
    return "openai" if llm.provider in {Provider.OPENAI, Provider.AZURE_OPENAI} else "generic"


class UnconfiguredModel:
    """A model that cannot be asked, and says why to whoever tries."""

    def __init__(self, name: str, error: Callable[[], ModelError]) -> None:
        self.name = name
        self._error = error

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        for event in self._events():
            yield event

    def _events(self) -> Iterable[ModelEvent]:
        raise self._error()

    async def close(self) -> None:
        return None


def _build_model(llm: LLM, environ: Mapping[str, str]) -> ModelProvider:
    name = llm.name or ""
    variable = API_KEY_VARIABLES.get(llm.provider)
    key = llm.api_key or (Secret(environ[variable]) if variable and environ.get(variable) else None)
    if key is not None:
        register_secrets(key.reveal())
    source = "model.api_key" if llm.api_key or not variable else variable
    if key is None and variable and (llm.endpoint is None or llm.provider is Provider.AZURE_OPENAI):
        return UnconfiguredModel(name, lambda: _missing_key_error(llm.provider, name, variable))
    if llm.provider is Provider.ANTHROPIC:
        from holodeck.providers.anthropic import ANTHROPIC_URL, Anthropic

        return Anthropic(model=name, base_url=llm.endpoint or ANTHROPIC_URL, api_key=key, key_source=source)
    if llm.provider is Provider.OPENAI and llm.endpoint is None:
        from holodeck.providers.openai_responses import Responses

        return Responses(model=name, api_key=key, key_source=source)
    from holodeck.providers.openai_chat import AzureChatCompletions, ChatCompletions

    if llm.provider is Provider.AZURE_OPENAI:
        return AzureChatCompletions(
            base_url=llm.endpoint or "",
            deployment=name,
            api_key=key or Secret(""),
            api_version=llm.api_version,
            key_source=source,
        )
    base_url = _ollama_url(llm.endpoint) if llm.provider is Provider.OLLAMA else llm.endpoint or ""
    return ChatCompletions(base_url=base_url, model=name, api_key=key, key_source=source, provider=str(llm.provider))


def _ollama_url(endpoint: str | None) -> str:
    """People write the address of the server; its OpenAI dialect is under `/v1`."""
    if endpoint is None:
        return OLLAMA_URL
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + "/v1"


def _missing_key_error(provider: Provider, name: str, variable: str) -> ModelError:
    return ModelError(
        f"Model '{name}' ({provider}) has no API key. Set the environment variable {variable}, or write "
        f"'api_key: ${{{variable}}}' under 'model'.",
        provider=str(provider),
    )

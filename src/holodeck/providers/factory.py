"""Builds the model of a configuration: the provider's row in the registry, its key, and the wrappers around it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping

from holodeck.lib.errors import ModelError
from holodeck.lib.limits import MODEL_FIRST_EVENT_TIMEOUT, MODEL_IDLE_TIMEOUT
from holodeck.lib.redaction import LOG_SECRETS, register_secrets, secrets_in
from holodeck.lib.secret import Secret
from holodeck.models.llm import LLM
from holodeck.models.model_io import ModelEvent, ModelRequest
from holodeck.models.provider import Provider
from holodeck.providers.base import ModelProvider
from holodeck.providers.registry import PROVIDERS, ModelSettings

# Attempts of a turn at a model with stand-ins: a second one for a connection that was lost while it was idle.
_QUICK_ATTEMPTS = 2


def build_model_provider(llm: LLM, environ: Mapping[str, str], *, has_alternatives: bool = False) -> ModelProvider:
    """Build a model. Makes no network access: a missing key or server is an error of the first request.

    `has_alternatives`: another model can answer, so that it is tried less often.
    """
    row = PROVIDERS[llm.provider]
    if not llm.spec.is_service:
        return row.build(ModelSettings(llm=llm))
    from holodeck.providers.wrappers.schema_adapter import SchemaAdapter

    return SchemaAdapter(
        _with_retries(_build_service(llm, environ), llm, has_alternatives=has_alternatives), row.schema_rules
    )


def build_pass_through(llm: LLM, environ: Mapping[str, str], path: str) -> ModelProvider | None:
    """Build what hands on bodies to another API of the model's server, such as `/embeddings`. None: it has no such API.

    Makes no network access.
    """
    if not llm.spec.is_service or llm.provider is Provider.ANTHROPIC:
        return None
    from holodeck.providers.http.model import HTTPModel
    from holodeck.providers.http.pass_through import PassThrough

    service = _build_service(llm, environ)
    if not isinstance(service, HTTPModel):
        # Without a key, every request raises the error that says so.
        return service
    endpoint = service.find_sibling(path)
    return None if endpoint is None else _with_retries(PassThrough(endpoint), llm)


def _with_retries(model: ModelProvider, llm: LLM, *, has_alternatives: bool = False) -> ModelProvider:
    from holodeck.providers.wrappers.guarded import GuardedModel, Timeouts
    from holodeck.providers.wrappers.retry import RetryPolicy

    first, idle = llm.timeout or MODEL_FIRST_EVENT_TIMEOUT, llm.timeout or MODEL_IDLE_TIMEOUT
    retry = RetryPolicy(attempts=_QUICK_ATTEMPTS, max_retry_after=0.0) if has_alternatives else None
    return GuardedModel(model, timeouts=Timeouts(first=first, idle=idle), retry=retry)


class UnconfiguredModel:
    """A model that cannot be used; every request raises the error that says why."""

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


def _build_service(llm: LLM, environ: Mapping[str, str]) -> ModelProvider:
    variable = llm.environment_key
    key = llm.api_key or (Secret(environ[variable]) if variable and environ.get(variable) else None)
    if key is not None:
        register_secrets(key.reveal())
    for name, value in llm.headers.items():
        LOG_SECRETS.add(value.reveal())
        register_secrets(*secrets_in(name, value.reveal()))
    source = variable or "model.api_key"
    settings = ModelSettings(llm=llm, key=key, key_source=source)
    # Another program behind an `endpoint` may need no key.
    if key is None and llm.spec.key_variable and llm.is_at_provider:
        return UnconfiguredModel(settings.name, lambda: _missing_key_error(llm, settings.name))
    return PROVIDERS[llm.provider].build(settings)


def _missing_key_error(llm: LLM, name: str) -> ModelError:
    variable = llm.spec.key_variable
    fix = f"rite 'api_key: ${{{variable}}}' under 'model'."
    # The variable alone is enough for the provider's own hosts only.
    fix = f"Set the environment variable {variable}, or w{fix}" if llm.environment_key else f"W{fix}"
    return ModelError(f"Model '{name}' ({llm.provider}) has no API key. {fix}", provider=str(llm.provider))

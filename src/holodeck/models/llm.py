"""The model of `model`: which provider and model an agent uses, with what each provider requires of a file.

A provider has two registry rows: its `ProviderSpec` here, for configuration files, and its row in
`providers/registry.py`, which builds it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from holodeck.lib.limits import MAX_TIMEOUT
from holodeck.lib.record import record
from holodeck.lib.secret import Secret
from holodeck.models.file_model import FileModel, Integer, NonEmpty, Number, Violation, as_written, validate_with_rules
from holodeck.models.url import ALLOW_INSECURE, CLEARTEXT_KEY, BadURLError, is_sent_in_cleartext, parse_endpoint


class Provider(StrEnum):
    """The service or library that runs a model."""

    OPENAI = "openai"
    AZURE_OPENAI = "azure_openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    OPENAI_COMPATIBLE = "openai_compatible"
    LOCAL = "local"
    REHEARSAL = "rehearsal"


@record
class ProviderSpec:
    """What a configuration file must or may say about the models of one provider."""

    key_variable: str | None = None
    """Environment variable with the key, used if the file has none. None: the provider has no such variable."""
    is_service: bool = True
    """Whether it is reached over HTTP: its models need a `name`, and may have a `timeout`."""
    needs_endpoint: bool = False
    """Whether `endpoint` is required, because the provider has no common address."""
    has_api_version: bool = False
    """Whether `api_version` is accepted."""
    default_model: str | None = None
    """The `name` that `holodeck init` writes where the user names no model."""
    example_endpoint: str | None = None
    """The `endpoint` that `holodeck init` writes. None: it writes none."""
    own_hosts: tuple[str, ...] = ()
    """Hosts of the provider's own service, and, after a leading dot, their domains. The first is used without an
    `endpoint`. Only these receive the key in `key_variable`."""


PROVIDER_SPECS: Mapping[Provider, ProviderSpec] = {
    Provider.OPENAI: ProviderSpec(
        key_variable="OPENAI_API_KEY", default_model="gpt-5-mini", own_hosts=("api.openai.com", ".api.openai.com")
    ),
    Provider.AZURE_OPENAI: ProviderSpec(
        key_variable="AZURE_OPENAI_API_KEY",
        needs_endpoint=True,
        has_api_version=True,
        default_model="gpt-5-mini",
        example_endpoint="https://my-resource.openai.azure.com",
        own_hosts=(
            *(".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
            *(".openai.azure.us", ".cognitiveservices.azure.us", ".openai.azure.cn", ".cognitiveservices.azure.cn"),
        ),
    ),
    Provider.ANTHROPIC: ProviderSpec(
        key_variable="ANTHROPIC_API_KEY", default_model="claude-sonnet-4-5", own_hosts=("api.anthropic.com",)
    ),
    Provider.OLLAMA: ProviderSpec(default_model="qwen3", example_endpoint="http://localhost:11434"),
    Provider.OPENAI_COMPATIBLE: ProviderSpec(
        needs_endpoint=True, default_model="default", example_endpoint="http://localhost:8000/v1"
    ),
    Provider.LOCAL: ProviderSpec(is_service=False),
    Provider.REHEARSAL: ProviderSpec(is_service=False),
}
API_KEY_VARIABLES = {provider: spec.key_variable for provider, spec in PROVIDER_SPECS.items() if spec.key_variable}
NEEDS_ENDPOINT = {provider for provider, spec in PROVIDER_SPECS.items() if spec.needs_endpoint}
NEEDS_NAME = {provider for provider, spec in PROVIDER_SPECS.items() if spec.is_service}
_HAS_API_VERSION = {provider for provider, spec in PROVIDER_SPECS.items() if spec.has_api_version}


class LLM(FileModel):
    """A model, its provider, and the parameters of its requests."""

    provider: Provider = Field(default=Provider.REHEARSAL, strict=False)
    """Provider of the model. `rehearsal` follows rules and needs no key."""
    name: NonEmpty | None = None
    """Name of the model at its provider."""
    endpoint: NonEmpty | None = None
    """Base URL of the API."""
    api_key: Secret | None = None
    """API key, as a variable: `${OPENAI_API_KEY}`. Absent: the provider's usual variable, if it is set."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may receive the key by plain http://, such as names inside a cluster."""
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    """Sampling temperature, from 0 to 2. Absent: the provider's default."""
    max_tokens: Annotated[Integer, Field(ge=1)] | None = None
    """Tokens that one answer of the model may have. Absent: the provider's default."""
    context_tokens: Annotated[Integer, Field(ge=1)] | None = None
    """Tokens that the model has room for, request and answer together. Absent: unknown, until the provider refuses.

    Used by a gateway where a request has `truncation: auto` or `context_management`.
    """
    top_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    """Nucleus sampling: choose among the likeliest tokens of this total probability. Absent: the provider's default."""
    timeout: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] | None = None
    """Seconds without output after which a turn fails. Absent: 600 before the first output, 300 after it."""
    api_version: NonEmpty | None = None
    """API version of Azure OpenAI. Only for `azure_openai`."""

    @property
    def spec(self) -> ProviderSpec:
        return PROVIDER_SPECS[self.provider]

    @property
    def is_at_provider(self) -> bool:
        """Whether requests go to the provider's own service, and not to another program behind an `endpoint`."""
        return self.endpoint is None or self.spec.needs_endpoint

    @property
    def environment_key(self) -> str | None:
        """The variable whose key is sent, because the file has none. None: no key of the environment is."""
        if self.api_key is not None or not is_own_host(self.spec, self.endpoint):
            return None
        return self.spec.key_variable

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[LLM]) -> LLM:
        return validate_with_rules(cls.__name__, data, handler, _check_llm)


def is_own_host(spec: ProviderSpec, endpoint: str | None) -> bool:
    """Whether requests go to a host of the provider's own service. True without an endpoint."""
    if endpoint is None:
        return True
    try:
        host = parse_endpoint(endpoint).host.lower().rstrip(".")
    except BadURLError:
        return False
    return any(host.endswith(own) if own.startswith(".") else host == own for own in spec.own_hosts)


def _check_llm(data: dict[str, Any]) -> list[Violation]:
    provider = data.get("provider", Provider.REHEARSAL)
    if not isinstance(provider, str):
        # The type of the field reports it.
        return []
    written = as_written(provider)
    found: list[Violation] = []
    if provider in NEEDS_NAME and not data.get("name"):
        found.append(Violation(key="name", message=f"'name' is required for provider {written}", fix="Name the model."))
    if provider in NEEDS_ENDPOINT and not data.get("endpoint"):
        found.append(Violation(key="endpoint", message=f"'endpoint' is required for provider {written}"))
    if provider not in _HAS_API_VERSION and data.get("api_version") is not None:
        found.append(Violation(key="api_version", message="'api_version' has no meaning here (only for azure_openai)"))
    if provider not in NEEDS_NAME and data.get("timeout") is not None:
        found.append(Violation(key="timeout", message=f"'timeout' has no meaning here (not for {written})"))
    endpoint = data.get("endpoint")
    if isinstance(endpoint, str) and endpoint.strip():
        problem = _endpoint_problem(endpoint)
        if problem:
            found.append(Violation(key="endpoint", message=problem))
        elif data.get("api_key") and is_sent_in_cleartext(endpoint, data.get("allow_insecure_hosts")):
            found.append(Violation(key="endpoint", message=CLEARTEXT_KEY, fix=ALLOW_INSECURE))
    return found


def _endpoint_problem(endpoint: str) -> str | None:
    try:
        scheme = parse_endpoint(endpoint).scheme
    except BadURLError as error:
        return str(error).replace("'url'", "'endpoint'")
    if scheme not in {"http", "https"}:
        return "'endpoint' must use https:// or http://"
    return "'endpoint' must not have a '#' part" if urlsplit(endpoint).fragment else None

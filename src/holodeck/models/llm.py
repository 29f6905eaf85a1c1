"""The model behind an agent, as it stands in its file."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from holodeck.lib.limits import MAX_TIMEOUT
from holodeck.lib.secret import Secret
from holodeck.models.file_model import FileModel, Integer, NonEmpty, Number, Violation, as_written, validate_with_rules
from holodeck.models.url import ALLOW_INSECURE, CLEARTEXT_KEY, BadURLError, is_sent_in_cleartext, parse_endpoint


class Provider(StrEnum):
    """Who runs the model."""

    OPENAI = "openai"
    AZURE_OPENAI = "azure_openai"
    ANTHROPIC = "anthropic"
    OLLAMA = "ollama"
    OPENAI_COMPATIBLE = "openai_compatible"
    LOCAL = "local"
    REHEARSAL = "rehearsal"


API_KEY_VARIABLES = {
    Provider.OPENAI: "OPENAI_API_KEY",
    Provider.AZURE_OPENAI: "AZURE_OPENAI_API_KEY",
    Provider.ANTHROPIC: "ANTHROPIC_API_KEY",
}
"""Where the key is looked for when the file does not give one."""

NEEDS_ENDPOINT = {Provider.AZURE_OPENAI, Provider.OPENAI_COMPATIBLE}
NEEDS_NAME = set(Provider) - {Provider.LOCAL, Provider.REHEARSAL}


class LLM(FileModel):
    """Which model, where, and how it is asked."""

    provider: Provider = Field(default=Provider.REHEARSAL, strict=False)
    """Who runs the model. `rehearsal` follows rules and needs no key."""
    name: NonEmpty | None = None
    """The model's name at its provider."""
    endpoint: NonEmpty | None = None
    """The base URL of the API."""
    api_key: Secret | None = None
    """The key, as a variable: `${OPENAI_API_KEY}`. Absent: that variable of the provider, if it is set."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may get the key by plain http://, such as names inside a cluster."""
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    """How freely the model chooses its words, from 0 to 2. Absent: the provider's default."""
    max_tokens: Annotated[Integer, Field(ge=1)] | None = None
    """The most tokens that one answer of the model may have. Absent: the provider's default."""
    top_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    """Only the likeliest words that together have this probability are chosen from. Absent: the provider's default."""
    timeout: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] | None = None
    """Seconds that the model may say nothing. Absent: 600 before its first word, and 300 after that."""
    api_version: NonEmpty | None = None
    """Azure OpenAI's version of the API."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[LLM]) -> LLM:
        return validate_with_rules(cls.__name__, data, handler, _check_llm)


def _check_llm(data: dict[str, Any]) -> list[Violation]:
    provider = data.get("provider", Provider.REHEARSAL)
    if not isinstance(provider, str):
        return []  # the field's own type says so
    written = as_written(provider)
    found: list[Violation] = []
    if provider in NEEDS_NAME and not data.get("name"):
        found.append(Violation(key="name", message=f"'name' is required for provider {written}", fix="Name the model."))
    if provider in NEEDS_ENDPOINT and not data.get("endpoint"):
        found.append(Violation(key="endpoint", message=f"'endpoint' is required for provider {written}"))
    if provider != Provider.AZURE_OPENAI and data.get("api_version") is not None:
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

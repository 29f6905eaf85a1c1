"""The providers of models: what each one requires of a configuration file, and where its models are.

A provider is a `ProviderSpec` here and a row in `providers/registry.py`, which builds it. A service or a program with
OpenAI's Chat Completions API at an address of its own needs the row here only.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import urlsplit

from holodeck.lib.record import record
from holodeck.models.generation import (
    ANTHROPIC_FIELDS,
    CHAT_FIELDS,
    LOCAL_FIELDS,
    OLLAMA_FIELDS,
    REHEARSAL_FIELDS,
    RESPONSES_FIELDS,
    APIFields,
)


class Provider(StrEnum):
    """The service or library that runs a model."""

    OPENAI = "openai"
    AZURE_OPENAI = "azure_openai"
    ANTHROPIC = "anthropic"
    GEMINI = "gemini"
    MISTRAL = "mistral"
    GROQ = "groq"
    OPENROUTER = "openrouter"
    DEEPSEEK = "deepseek"
    XAI = "xai"
    TOGETHER = "together"
    FIREWORKS = "fireworks"
    CEREBRAS = "cerebras"
    OLLAMA = "ollama"
    LM_STUDIO = "lm_studio"
    VLLM = "vllm"
    OPENAI_COMPATIBLE = "openai_compatible"
    LOCAL = "local"
    REHEARSAL = "rehearsal"


ProviderName = Literal[
    "openai",
    "azure_openai",
    "anthropic",
    "gemini",
    "mistral",
    "groq",
    "openrouter",
    "deepseek",
    "xai",
    "together",
    "fireworks",
    "cerebras",
    "ollama",
    "lm_studio",
    "vllm",
    "openai_compatible",
    "local",
    "rehearsal",
]


@record
class ProviderSpec:
    """The rules of what a configuration file must or may say about the models of one provider."""

    label: str
    """Name for people, of the service or the program."""
    other_names: tuple[str, ...] = ()
    """Names that other programs have for it, for the hint at a name that is not known."""
    key_variable: str | None = None
    """Environment variable with the key, used if the file has none. None: the provider has no such variable."""
    is_service: bool = True
    """Whether it is reached over HTTP: its models need a `name`, and may have a `timeout`."""
    needs_endpoint: bool = False
    """Whether `endpoint` is required, because the provider has no common address."""
    default_endpoint: str | None = None
    """Address without an `endpoint`. None: the class of the provider has it, or there is none."""
    streams_usage_unasked: bool = False
    """Whether streams end with the usage by themselves, and a request with `stream_options` is refused."""
    has_api_version: bool = False
    """Whether `api_version` is accepted."""
    api: APIFields = CHAT_FIELDS
    """The fields of its API."""
    api_at_endpoint: APIFields | None = None
    """The fields of the API behind an `endpoint`. None: those of `api`."""
    own_headers: frozenset[str] = frozenset({"authorization"})
    """Headers that only HoloDeck sets, in addition to those of every request, in lower case."""
    default_model: str | None = None
    """The `name` that `holodeck init` writes where the user names no model."""
    example_endpoint: str | None = None
    """The `endpoint` that `holodeck init` writes, where the user gives none. None: it writes none."""
    own_hosts: tuple[str, ...] = ()
    """Hosts of the provider's own service, and, after a leading dot, their domains. The first is used without an
    `endpoint`. Only these receive the key in `key_variable`."""


def _service(label: str, endpoint: str, key_variable: str, default_model: str, **more: Any) -> ProviderSpec:
    """Return the row of a service with OpenAI's Chat Completions API. `more`: other fields of the row."""
    return ProviderSpec(
        label=label,
        default_endpoint=endpoint,
        key_variable=key_variable,
        default_model=default_model,
        own_hosts=(urlsplit(endpoint).hostname or "",),
        **more,
    )


PROVIDER_SPECS: Mapping[Provider, ProviderSpec] = {
    Provider.OPENAI: ProviderSpec(
        label="OpenAI",
        other_names=("gpt", "chatgpt", "openai_responses"),
        key_variable="OPENAI_API_KEY",
        default_model="gpt-6-luna",
        own_hosts=("api.openai.com", ".api.openai.com"),
        api=RESPONSES_FIELDS,
        api_at_endpoint=CHAT_FIELDS,
    ),
    Provider.AZURE_OPENAI: ProviderSpec(
        label="Azure OpenAI",
        other_names=("azure",),
        key_variable="AZURE_OPENAI_API_KEY",
        needs_endpoint=True,
        has_api_version=True,
        default_model="gpt-5-mini",
        example_endpoint="https://my-resource.openai.azure.com",
        own_hosts=(
            *(".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"),
            *(".openai.azure.us", ".cognitiveservices.azure.us", ".openai.azure.cn", ".cognitiveservices.azure.cn"),
        ),
        own_headers=frozenset({"api-key"}),
    ),
    Provider.ANTHROPIC: ProviderSpec(
        label="Anthropic",
        other_names=("claude",),
        key_variable="ANTHROPIC_API_KEY",
        default_model="claude-sonnet-5-5",
        own_hosts=("api.anthropic.com",),
        api=ANTHROPIC_FIELDS,
        own_headers=frozenset({"x-api-key", "anthropic-version"}),
    ),
    Provider.GEMINI: _service(
        "Google Gemini",
        "https://generativelanguage.googleapis.com/v1beta/openai",
        "GEMINI_API_KEY",
        "gemini-3.8-flash",
        other_names=("google", "google_genai", "google_gla", "vertex", "vertexai"),
    ),
    Provider.MISTRAL: _service(
        "Mistral",
        "https://api.mistral.ai/v1",
        "MISTRAL_API_KEY",
        "mistral-medium-latest",
        other_names=("mistralai",),
        streams_usage_unasked=True,
    ),
    Provider.GROQ: _service("Groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY", "qwen/qwen3.8-27b"),
    Provider.OPENROUTER: _service(
        "OpenRouter",
        "https://openrouter.ai/api/v1",
        "OPENROUTER_API_KEY",
        "openai/gpt-6-luna",
        other_names=("open_router",),
    ),
    Provider.DEEPSEEK: _service("DeepSeek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY", "deepseek-v4-flash"),
    Provider.XAI: _service("xAI", "https://api.x.ai/v1", "XAI_API_KEY", "grok-4.7", other_names=("grok", "x_ai")),
    Provider.TOGETHER: _service(
        "Together AI",
        "https://api.together.xyz/v1",
        "TOGETHER_API_KEY",
        "deepseek-ai/deepseek-v4.1-flash",
        other_names=("together_ai", "togetherai"),
    ),
    Provider.FIREWORKS: _service(
        "Fireworks AI",
        "https://api.fireworks.ai/inference/v1",
        "FIREWORKS_API_KEY",
        "accounts/fireworks/models/deepseek-v4p1-flash",
        other_names=("fireworks_ai", "fireworksai"),
    ),
    Provider.CEREBRAS: _service("Cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY", "qwen-3.8-27b"),
    Provider.OLLAMA: ProviderSpec(
        label="Ollama, on this machine",
        default_model="qwen3",
        default_endpoint="http://localhost:11434",
        api=OLLAMA_FIELDS,
    ),
    Provider.LM_STUDIO: ProviderSpec(
        label="LM Studio, on this machine", other_names=("lmstudio",), default_endpoint="http://localhost:1234/v1"
    ),
    Provider.VLLM: ProviderSpec(
        label="vLLM, on this machine", other_names=("hosted_vllm",), default_endpoint="http://localhost:8000/v1"
    ),
    Provider.OPENAI_COMPATIBLE: ProviderSpec(
        label="Another server with OpenAI's API",
        other_names=("custom", "generic", "litellm", "llama_cpp", "llamacpp", "openai_like", "sglang"),
        needs_endpoint=True,
        example_endpoint="http://localhost:8000/v1",
    ),
    Provider.LOCAL: ProviderSpec(
        label="A small model in this process", other_names=("llama", "transformers"), is_service=False, api=LOCAL_FIELDS
    ),
    Provider.REHEARSAL: ProviderSpec(
        label="No model: follows rules, needs no key",
        other_names=("fake", "mock", "test"),
        is_service=False,
        api=REHEARSAL_FIELDS,
    ),
}
NEEDS_ENDPOINT = {provider for provider, spec in PROVIDER_SPECS.items() if spec.needs_endpoint}
NEEDS_NAME = {provider for provider, spec in PROVIDER_SPECS.items() if spec.is_service}


def find_provider(name: str) -> Provider | None:
    """Return the provider that a name means: its own, or one that other programs have for it. None: no provider's."""
    wanted = name.strip().lower().replace("-", "_").replace(".", "_").replace(" ", "_")
    return next((each for each, spec in PROVIDER_SPECS.items() if wanted == each or wanted in spec.other_names), None)

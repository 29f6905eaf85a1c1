"""Requests go to the model that the agent file names, with the key that belongs to it."""

from __future__ import annotations

from typing import Any

import pytest
from providers.model_exchange import collect_events, model_request, run_with_timeout

from holodeck.lib.errors import ModelError
from holodeck.lib.secret import Secret
from holodeck.models.llm import LLM
from holodeck.models.model_io import ModelAnswer
from holodeck.models.provider import ProviderName
from holodeck.providers.factory import build_model_provider
from holodeck.testing.model.script import say, status
from holodeck.testing.model.scripted import DialectName, Received, ScriptedModel

ENVIRON = {"OPENAI_API_KEY": "key-openai", "AZURE_OPENAI_API_KEY": "key-azure", "ANTHROPIC_API_KEY": "key-anthropic"}


def received_by(dialect: DialectName, environ: dict[str, str], *, path: str | None = None, **llm: Any) -> Received:
    """What the server of this model gets."""

    async def exchange() -> Received:
        async with ScriptedModel(say("ok")).serve(dialect) as server:
            endpoint = server.url if path is None else server.url.removesuffix("/v1") + path
            model = build_model_provider(LLM(name="my-model", endpoint=endpoint, **llm), environ)
            assert model.name == "my-model"
            events = await collect_events(model, model_request())
            await model.close()
            assert isinstance(events[-1], ModelAnswer)
            return server.received[0]

    return run_with_timeout(exchange())


def test_openai_at_another_endpoint_speaks_chat_completions_with_the_key_of_the_file() -> None:
    received = received_by("chat", {}, provider="openai", api_key=Secret("mine"))
    assert received.headers["authorization"] == "Bearer mine"
    assert received.json["model"] == "my-model"


def test_azure_and_anthropic_have_headers_of_their_own_for_the_key() -> None:
    azure = received_by(
        "chat", {}, provider="azure_openai", path="", api_version="2025-01-01", api_key=Secret("key-azure")
    )
    assert azure.headers["api-key"] == "key-azure"
    assert azure.path == "/openai/deployments/my-model/chat/completions"
    assert azure.query == {"api-version": "2025-01-01"}
    claude = received_by("anthropic", {}, provider="anthropic", api_key=Secret("key-anthropic"))
    assert claude.headers["x-api-key"] == "key-anthropic"


@pytest.mark.parametrize(("provider", "dialect"), [("openai", "chat"), ("anthropic", "anthropic")])
def test_another_endpoint_gets_no_key_of_the_environment(provider: str, dialect: DialectName) -> None:
    assert not [value for value in received_by(dialect, ENVIRON, provider=provider).headers.values() if "key-" in value]


@pytest.mark.parametrize(
    ("provider", "endpoint", "variable"),
    [
        ("openai", None, "OPENAI_API_KEY"),
        ("openai", "https://EU.api.openai.com./v1", "OPENAI_API_KEY"),
        ("openai", "https://api.openai.com.evil.example/v1", None),
        ("openai", "https://xapi.openai.com/v1", None),
        ("anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ("azure_openai", "https://mine.openai.azure.com", "AZURE_OPENAI_API_KEY"),
        ("azure_openai", "https://mine-openai.azure.com", None),
        ("azure_openai", "https://proxy.example/openai.azure.com", None),
        ("openai_compatible", "https://api.openai.com/v1", None),
        ("groq", None, "GROQ_API_KEY"),
        ("groq", "https://models.example.com/v1", None),
        ("vllm", None, None),
    ],
)
def test_the_key_of_the_environment_is_for_the_providers_own_hosts(
    provider: ProviderName, endpoint: str | None, variable: str | None
) -> None:
    llm = LLM(provider=provider, name="m", endpoint=endpoint)
    assert llm.environment_key == variable
    assert llm.model_copy(update={"api_key": Secret("mine")}).environment_key is None


def test_a_request_asks_for_the_usage_of_a_stream_except_where_that_is_refused() -> None:
    assert received_by("chat", {}, provider="groq").json["stream_options"] == {"include_usage": True}
    assert "stream_options" not in received_by("chat", {}, provider="mistral").json


def test_the_key_of_the_file_comes_first() -> None:
    received = received_by("chat", ENVIRON, provider="openai", api_key=Secret("mine"))
    assert received.headers["authorization"] == "Bearer mine"


@pytest.mark.parametrize("provider", ["openai_compatible", "ollama"])
def test_a_custom_endpoint_gets_no_key_of_another_provider(provider: str) -> None:
    assert "authorization" not in received_by("chat", ENVIRON, provider=provider).headers


def test_the_address_of_ollama_needs_no_path() -> None:
    assert received_by("chat", {}, provider="ollama", path="").path == "/v1/chat/completions"
    assert received_by("chat", {}, provider="ollama", path="/").path == "/v1/chat/completions"


@pytest.mark.parametrize(
    ("llm", "variable"),
    [
        (LLM(provider="openai", name="gpt"), "OPENAI_API_KEY"),
        (LLM(provider="anthropic", name="claude"), "ANTHROPIC_API_KEY"),
        (LLM(provider="azure_openai", name="gpt", endpoint="https://a.openai.azure.com"), "AZURE_OPENAI_API_KEY"),
    ],
)
@pytest.mark.parametrize("environ", [{}, {"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "", "AZURE_OPENAI_API_KEY": ""}])
def test_a_missing_key_is_named_at_the_first_request(llm: LLM, variable: str, environ: dict[str, str]) -> None:
    model = build_model_provider(llm, environ)
    for _ in range(2):
        with pytest.raises(ModelError, match=f"has no API key. Set the environment variable {variable}") as found:
            run_with_timeout(collect_events(model, model_request()))
        assert found.value.provider == llm.provider
    run_with_timeout(model.close())


def test_a_request_to_a_busy_provider_is_repeated() -> None:
    async def exchange() -> None:
        async with ScriptedModel(status(503, retry_after="0"), say("ok")).serve() as server:
            model = build_model_provider(LLM(provider="openai_compatible", name="m", endpoint=server.url), {})
            await collect_events(model, model_request())
            await model.close()
            assert len(server.received) == 2

    run_with_timeout(exchange())


def test_the_name_of_a_missing_ollama_model_comes_with_the_way_to_fetch_it() -> None:
    async def exchange() -> None:
        async with ScriptedModel(status(404)).serve() as server:
            model = build_model_provider(LLM(provider="ollama", name="qwen3", endpoint=server.url), {})
            with pytest.raises(ModelError, match="ollama pull qwen3"):
                await collect_events(model, model_request())
            await model.close()

    run_with_timeout(exchange())

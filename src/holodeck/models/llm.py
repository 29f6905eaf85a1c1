"""The model of `model`: which provider and model an agent uses, with what each provider requires of a file.

The rules of each provider are its `ProviderSpec` in `models/provider.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from itertools import chain, count
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

import orjson
from pydantic import Field, ModelWrapValidatorHandler, StringConstraints, model_validator

from holodeck.lib.limits import MAX_TIMEOUT
from holodeck.lib.secret import Secret
from holodeck.models.file_model import (
    FileModel,
    Integer,
    NonEmpty,
    Number,
    PublicName,
    Violation,
    as_written,
    quote_value,
    validate_with_rules,
)
from holodeck.models.generation import OPTION_OF, APIFields, Effort, ModelAPI, Verbosity
from holodeck.models.model_io import JSON_OBJECT_SCHEMA, ModelRequest
from holodeck.models.price import KnownPrice, ModelPrices, Price, find_known_price
from holodeck.models.provider import (
    NEEDS_ENDPOINT,
    NEEDS_NAME,
    PROVIDER_SPECS,
    Provider,
    ProviderName,
    ProviderSpec,
)
from holodeck.models.url import ALLOW_INSECURE, CLEARTEXT_KEY, BadURLError, is_sent_in_cleartext, parse_endpoint


def _limits_of(option: str) -> Any:
    """Return the limits of a generation option for the key of the same name."""
    values = OPTION_OF[option].values
    # Messages about files show whole numbers.
    minimum, maximum = (None if each is None else int(each) for each in (values.minimum, values.maximum))
    return Field(ge=minimum, le=maximum, max_length=values.max_length)


CacheMode = Literal["auto", "off", "1h"]
# Headers that the HTTP client sets for every request, or that describe the connection.
_OWN_HEADERS = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "content-type", "host", "proxy-authorization"}
    | {"transfer-encoding", "upgrade", "user-agent"}
)
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t -~]*")
_HAS_API_VERSION = {provider for provider, spec in PROVIDER_SPECS.items() if spec.has_api_version}


class Deployment(FileModel):
    """One of several deployments of a model. A key that is absent has the value of the model itself."""

    name: NonEmpty | None = None
    """Name of the model at this deployment. E.g. `gpt-5-mini-eu`, not `''`."""
    endpoint: NonEmpty | None = None
    """Base URL of the API. E.g. `https://eu.models.example.com/v1`, not `eu.models.example.com`."""
    api_key: Secret | None = None
    """API key, as a variable. E.g. `${MODEL_KEY}`, not `${NOT_SET}`."""
    headers: dict[str, Secret] | None = None
    """More HTTP headers of every request. E.g. `{X-Team: '${API_TOKEN}'}`, not `{Content-Type: text/plain}`."""
    api_version: NonEmpty | None = None
    """API version of Azure OpenAI. E.g. `2025-04-01-preview`, not `20250401`."""
    weight: Annotated[Number, Field(gt=0, le=1000)] = 1.0
    """Share of the requests, in proportion to the weights of the others. E.g. `2`, not `0`."""
    requests_per_minute: Annotated[Integer, Field(ge=1)] | None = None
    """Requests that the provider accepts within a minute, from one gateway. Absent: unlimited. E.g. `500`, not `0`."""
    tokens_per_minute: Annotated[Integer, Field(ge=1)] | None = None
    """Tokens that the provider accepts within a minute, from one gateway. Absent: unlimited. E.g. `200000`, not `0`."""


_DEPLOYMENT_KEYS = ("name", "endpoint", "api_key", "headers", "api_version")


class LLM(FileModel):
    """A model, its provider, and the parameters of its requests."""

    use: PublicName | None = None
    """Name of a model that is defined elsewhere: under `models` of the gateway that serves the agent, or of
    `~/.holodeck/config.yaml`. Beside it stand options only, such as `temperature`. E.g. `fast`, not `fats`, beside
    `{provider: null, name: null}`."""
    provider: Provider = Field(default=Provider.REHEARSAL, strict=False)
    """Provider of the model. `rehearsal` follows rules and needs no key. E.g. `anthropic`, not `open_ai`, beside
    `{name: claude-sonnet-4-5}`."""
    name: NonEmpty | None = None
    """Name of the model at its provider. E.g. `gpt-5-mini`, not absent."""
    endpoint: NonEmpty | None = None
    """Base URL of the API. E.g. `https://models.example.com/v1`, not `models.example.com`, beside `{provider:
    openai_compatible}`."""
    api_key: Secret | None = None
    """API key, as a variable: `${OPENAI_API_KEY}`. Absent: the provider's usual variable, for its own hosts only. E.g.
    `${OPENAI_API_KEY}`, not `${NOT_SET}`."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may receive the key by plain http://, such as names inside a cluster. E.g. `[models.internal]`, not
    `models.internal`, beside `{provider: openai_compatible, endpoint: 'http://models.internal/v1', api_key:
    '${MODEL_KEY}'}`."""
    temperature: Annotated[Number, _limits_of("temperature")] | None = None
    """Sampling temperature, from 0 to 2. Absent: the provider's default. E.g. `0.2`, not `3`."""
    max_tokens: Annotated[Integer, _limits_of("max_tokens")] | None = None
    """Tokens that one answer of the model may have. Absent: the provider's default. E.g. `2000`, not `'2000'`."""
    context_tokens: Annotated[Integer, Field(ge=1)] | None = None
    """Tokens that the model has room for, request and answer together. Absent: unknown, until the provider refuses.

    Used by a gateway where a request has `truncation: auto` or `context_management`. E.g. `128000`, not `0`.
    """
    top_p: Annotated[Number, _limits_of("top_p")] | None = None
    """Nucleus sampling: choose among the likeliest tokens of this total probability. Absent: the provider's default.
    E.g. `0.9`, not `90`."""
    effort: Effort | None = None
    """Reasoning effort. Absent: the provider's default. E.g. `low`, not `little`."""
    verbosity: Verbosity | None = None
    """Length of answers. Absent: the provider's default. E.g. `low`, not `brief`."""
    stop: Annotated[list[Annotated[str, StringConstraints(min_length=1)]], _limits_of("stop")] = Field(
        default_factory=list
    )
    """Texts before which an answer ends. E.g. `[END]`, not `END`, beside `{provider: openai_compatible, endpoint:
    'http://localhost:8000/v1'}`."""
    seed: Annotated[Integer, _limits_of("seed")] | None = None
    """Seed of the sampling, for answers that can be repeated. Absent: another one each time. E.g. `7`, not `'7'`,
    beside `{provider: openai_compatible, endpoint: 'http://localhost:8000/v1'}`."""
    presence_penalty: Annotated[Number, _limits_of("presence_penalty")] | None = None
    """From -2 to 2. Above 0, the answer avoids words that it has already. Absent: the provider's default. E.g. `0.5`,
    not `3`."""
    frequency_penalty: Annotated[Number, _limits_of("frequency_penalty")] | None = None
    """From -2 to 2. Above 0, the answer avoids words that it has often. Absent: the provider's default. E.g. `0.5`, not
    `3`."""
    headers: dict[str, Secret] = Field(default_factory=dict)
    """More HTTP headers of every request to the provider, such as `X-Team: ${API_TOKEN}`. E.g. `{X-Team:
    '${API_TOKEN}'}`, not `{Content-Type: text/plain}`."""
    extra_body: dict[str, Any] = Field(default_factory=dict)
    """More members for the JSON body of every request to the provider, such as `top_k: 20`. E.g. `{top_k: 20}`, not
    `{temperature: 0.5}`, beside `{provider: openai_compatible, endpoint: 'http://localhost:8000/v1'}`."""
    allow_extra_parameters: list[NonEmpty] = Field(default_factory=list)
    """In a gateway: parameters that callers may add to a request, such as `top_k`. They go into its `extra_body`. E.g.
    `[top_k]`, not `[messages]`, beside `{provider: openai_compatible, endpoint: 'http://localhost:8000/v1'}`."""
    timeout: Annotated[Number, Field(gt=0, le=MAX_TIMEOUT)] | None = None
    """Seconds without output after which a turn fails. Absent: 600 before the first output, 300 after it. E.g. `120`,
    not `0`."""
    price: Price | None = None
    """Price of the tokens, for the cost of runs and for budgets. Absent: that of the price table; see `holodeck
    prices`. E.g. `{input: 0.25, cached: 0.025, output: 2}`, not `{input: 0.25}`."""
    cache: CacheMode = "auto"
    """Use of the provider's prompt cache. `auto`: requests have marks, so that a turn reads what the turns before it
    have sent from the cache; `1h`: the same, stored for an hour instead of five minutes. Other providers than
    `anthropic` need no marks. E.g. `1h`, not `always`, beside `{provider: anthropic}`."""
    api_version: NonEmpty | None = None
    """API version of Azure OpenAI. Only for `azure_openai`. E.g. `2025-04-01-preview`, not `20250401`, beside
    `{provider: azure_openai, endpoint: 'https://me.openai.azure.com'}`."""
    deployments: list[Deployment] = Field(default_factory=list)
    """Deployments of the model, between which requests are spread: regions, or keys. E.g. `[{endpoint:
    'https://eu.models.example.com/v1'}, {endpoint: 'https://us.models.example.com/v1'}]`, not
    `https://eu.models.example.com/v1`, beside `{provider: openai_compatible}`."""
    fallback: list[LLM] = Field(default_factory=list)
    """Models that stand in, in this order, while this one cannot answer: each as this section, or by its name, as in
    `use`. A run stays with the
    model that answered its first turn. E.g. `[{provider: ollama, name: qwen3}]`, not `{provider: ollama}`."""

    if TYPE_CHECKING:
        # A provider is given by its name and a secret as text, both of which the fields convert.
        def __init__(
            self,
            *,
            use: str | None = None,
            provider: Provider | ProviderName = Provider.REHEARSAL,
            name: str | None = None,
            endpoint: str | None = None,
            api_key: str | Secret | None = None,
            allow_insecure_hosts: list[str] = ...,
            temperature: float | None = None,
            max_tokens: int | None = None,
            context_tokens: int | None = None,
            top_p: float | None = None,
            effort: Effort | None = None,
            verbosity: Verbosity | None = None,
            stop: list[str] = ...,
            seed: int | None = None,
            presence_penalty: float | None = None,
            frequency_penalty: float | None = None,
            headers: Mapping[str, str | Secret] = ...,
            extra_body: Mapping[str, Any] = ...,
            allow_extra_parameters: list[str] = ...,
            timeout: float | None = None,
            price: Price | None = None,
            cache: CacheMode = "auto",
            api_version: str | None = None,
            deployments: list[Deployment] = ...,
            fallback: list[LLM] = ...,
        ) -> None: ...

    @property
    def spec(self) -> ProviderSpec:
        return PROVIDER_SPECS[self.provider]

    @property
    def api(self) -> APIFields:
        """The fields of the API that requests go to."""
        endpoint = self.deployments[0].endpoint if self.deployments else None
        return _api_of(self.provider, endpoint or self.endpoint)

    def list_deployments(self) -> list[LLM]:
        """Return the model as it is at each of its deployments; without deployments, the model alone."""
        if not self.deployments:
            return [self]
        found = []
        for each in self.deployments:
            given = {key: getattr(each, key) for key in _DEPLOYMENT_KEYS if getattr(each, key) is not None}
            found.append(self.model_copy(update={**given, "deployments": [], "fallback": []}))
        return found

    @cached_property
    def request_defaults(self) -> Mapping[str, Any]:
        """Values of this file for fields of a `ModelRequest`."""
        found = {name: getattr(self, name) for name in OPTION_KEYS if getattr(self, name) not in (None, [])}
        return {name: tuple(value) if isinstance(value, list) else value for name, value in found.items()}

    def complete_request(self, request: ModelRequest) -> ModelRequest:
        """Return the request with the values of this file for fields that it does not set.

        With stand-ins it is returned as it is: each model gets its own values once it is asked.
        """
        if self.fallback:
            return request
        unset = {name: value for name, value in self.request_defaults.items() if getattr(request, name) in (None, ())}
        if self.extra_body:
            unset["extra_body"] = {**self.extra_body, **request.extra_body}
        if request.json_mode and "json_mode" not in self.api.request:
            unset |= {"json_mode": False, "response_format": request.response_format or JSON_OBJECT_SCHEMA}
        return replace(request, **unset) if unset else request

    @cached_property
    def stand_ins(self) -> Mapping[str, LLM]:
        """The models that stand in, by the names that responses have for them: of `use` or at the provider, unique."""
        found: dict[str, LLM] = {}
        for model in self.fallback:
            name = model.use or model.name or str(model.provider)
            choices = chain((name, f"{model.provider}:{name}"), (f"{model.provider}:{name}:{n}" for n in count(2)))
            found[next(each for each in choices if each not in found)] = model
        return found

    @cached_property
    def prices(self) -> ModelPrices:
        """The prices of this model and of its stand-ins."""
        stand_ins = {name: model.effective_price for name, model in self.stand_ins.items()}
        return ModelPrices(usual=self.effective_price, stand_ins=stand_ins)

    @property
    def is_at_provider(self) -> bool:
        """Whether requests go to the provider's own service, and not to another program behind an `endpoint`."""
        return self.endpoint is None or self.spec.needs_endpoint

    @cached_property
    def effective_price(self) -> Price | None:
        """The price of the file, or else that of the price table. None: the cost is unknown."""
        if self.price is not None:
            return self.price
        return None if self.known_price is None else self.known_price.price

    @cached_property
    def known_price(self) -> KnownPrice | None:
        """The price of the price table. None: it does not have the model, or has another price for each deployment."""
        if not self.spec.is_service:
            return None
        if self.deployments:
            first, *others = (each.known_price for each in self.list_deployments())
            return first if all(each == first for each in others) else None
        host = self.spec.own_hosts[0] if self.spec.own_hosts and not self.spec.needs_endpoint else ""
        url = self.endpoint or self.spec.default_endpoint or (f"https://{host}" if host else "")
        return find_known_price(url, self.name or "") if url else None

    @property
    def environment_key(self) -> str | None:
        """The variable whose key is sent, because the file has none. None: no key of the environment is."""
        if self.api_key or not is_own_host(self.spec, self.endpoint):
            return None
        return self.spec.key_variable

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[LLM]) -> LLM:
        return validate_with_rules(cls.__name__, data, handler, _check_llm)


OPTION_KEYS = tuple(name for name in OPTION_OF if name in LLM.model_fields)
"""Keys of a model that are options of its requests."""
# Keys that only some APIs have a field for.
_API_KEYS = (*(name for name in OPTION_KEYS if set(OPTION_OF[name].sent_as) < set(get_args(ModelAPI))), "extra_body")


class NamedModel(FileModel):
    """A model that agent files name by `use`."""

    name: PublicName
    """Name for `use`. E.g. `fast`, not `my model`."""
    model: LLM
    """The model, as in an agent file. E.g. `{provider: openai, name: gpt-5-mini}`, not absent."""


def is_own_host(spec: ProviderSpec, endpoint: str | None) -> bool:
    """Return whether requests go to a host of the provider's own service. True without an endpoint."""
    if endpoint is None:
        return True
    try:
        host = parse_endpoint(endpoint).host.lower().rstrip(".")
    except BadURLError:
        return False
    return any(host.endswith(own) if own.startswith(".") else host == own for own in spec.own_hosts)


def is_same_model(one: LLM, other: LLM) -> bool:
    """Return whether requests of both go to the same model: the same name at the same address."""
    return (one.name or "").casefold() == (other.name or "").casefold() and _address_of(one) == _address_of(other)


def _address_of(model: LLM) -> str:
    """Return the address of a model in a form that can be compared; the name of the provider where there is none."""
    if not model.spec.is_service:
        return str(model.provider)
    is_own = is_own_host(model.spec, model.endpoint) and not model.spec.needs_endpoint
    if is_own and model.spec.own_hosts:
        return model.spec.own_hosts[0]
    endpoint = model.endpoint or model.spec.default_endpoint or ""
    return endpoint.rstrip("/").removesuffix("/v1").replace("//127.0.0.1", "//localhost").casefold()


def _check_llm(data: dict[str, Any]) -> list[Violation]:
    provider = data.get("provider", Provider.REHEARSAL)
    if not isinstance(provider, str):
        # The type of the field reports it.
        return []
    if data.get("use") is not None and "provider" not in data:
        message = "'use' names a model that a file defines, and there is none here"
        return [Violation(key="use", message=message, fix="Write the model itself.")]
    if isinstance(data.get("deployments"), list) and data["deployments"]:
        return [*_check_deployments(data), *_check_stand_ins(data.get("fallback"))]
    written = as_written(provider)
    found: list[Violation] = []
    if provider in NEEDS_NAME and not data.get("name"):
        found.append(Violation(key="name", message=f"'name' is required for provider {written}", fix="Name the model."))
    if provider in NEEDS_ENDPOINT and not data.get("endpoint"):
        found.append(Violation(key="endpoint", message=f"'endpoint' is required for provider {written}"))
    if provider not in _HAS_API_VERSION and data.get("api_version") is not None:
        found.append(Violation(key="api_version", message="'api_version' has no meaning here (only for azure_openai)"))
    if provider != Provider.ANTHROPIC and data.get("cache", "auto") != "auto":
        found.append(Violation(key="cache", message="'cache' has no meaning here (only for anthropic)"))
    if provider not in NEEDS_NAME and data.get("timeout") is not None:
        found.append(Violation(key="timeout", message=f"'timeout' has no meaning here (not for {written})"))
    if provider in PROVIDER_SPECS:
        found += _check_api_keys(data, Provider(provider))
        found += _check_headers(data.get("headers"), Provider(provider))
    found += _check_stand_ins(data.get("fallback"))
    endpoint, has_secrets = data.get("endpoint"), data.get("api_key") or data.get("headers")
    if isinstance(endpoint, str) and endpoint.strip():
        problem = _endpoint_problem(endpoint)
        if problem:
            found.append(Violation(key="endpoint", message=problem))
        elif has_secrets and is_sent_in_cleartext(endpoint, data.get("allow_insecure_hosts")):
            found.append(Violation(key="endpoint", message=CLEARTEXT_KEY, fix=ALLOW_INSECURE))
    return found


def _check_deployments(data: dict[str, Any]) -> list[Violation]:
    """Check the model as it is at each deployment. The types of their keys are checked by the field."""
    shared = {key: value for key, value in data.items() if key not in ("deployments", "fallback")}
    found: list[Violation] = []
    for number, entry in enumerate(data["deployments"], 1):
        for each in _check_llm(shared | entry) if isinstance(entry, dict) else ():
            found.append(replace(each, key="deployments", message=f"deployment {number}: {each.message}"))
    return found


def _check_stand_ins(fallback: Any) -> list[Violation]:
    """Refuse stand-ins with stand-ins. The models themselves are checked by the field."""
    listed = fallback if isinstance(fallback, list) else []
    if not any(isinstance(each, dict) and each.get("fallback") for each in listed):
        return []
    message = "a model in 'fallback' cannot have a 'fallback' of its own"
    return [Violation(key="fallback", message=message, fix="Write all of them into one list.")]


def _api_of(provider: Provider, endpoint: object) -> APIFields:
    spec = PROVIDER_SPECS[provider]
    return (endpoint is not None and spec.api_at_endpoint) or spec.api


def _check_api_keys(data: Mapping[str, Any], provider: Provider) -> list[Violation]:
    """Check the keys whose meaning depends on the API of the provider. Their types are checked by the fields."""
    api = _api_of(provider, data.get("endpoint"))
    foreign = [key for key in _API_KEYS if key not in api.request and data.get(key) not in (None, [], {})]
    if data.get("allow_extra_parameters") and "extra_body" not in api.request:
        foreign.append("allow_extra_parameters")
    found = [Violation(key=key, message=f"'{key}' has no meaning here (not for {provider})") for key in foreign]
    for key in ("extra_body", "allow_extra_parameters"):
        names = data.get(key)
        texts = [name for name in names if isinstance(name, str)] if isinstance(names, dict | list) else []
        own = [name for name in texts if name in api.body]
        if own:
            message = f"'{key}' must not have '{own[0]}', which HoloDeck itself sends to {provider}"
            fix = f"Write '{own[0]}' under 'model'." if own[0] in LLM.model_fields else "Remove it."
            found.append(Violation(key=key, message=message, fix=fix))
    if isinstance(data.get("extra_body"), dict) and not _is_json(data["extra_body"]):
        found.append(Violation(key="extra_body", message="'extra_body' has a value that JSON does not have"))
    return found


def _is_json(value: Any) -> bool:
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


def _check_headers(headers: Any, provider: Provider) -> list[Violation]:
    if not headers or not isinstance(headers, dict):
        # The type of the field reports it.
        return []
    spec = PROVIDER_SPECS[provider]
    if not spec.is_service:
        return [Violation(key="headers", message=f"'headers' has no meaning here (not for {provider})")]
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(str(name)):
            return [Violation(key="headers", message=f"{quote_value(name)} is not the name of a header")]
        if name.lower() in _OWN_HEADERS | spec.own_headers:
            message = f"'headers' must not have '{name}', which HoloDeck itself sends to {provider}"
            fix = "Write the key as 'api_key'." if name.lower() in spec.own_headers else "Remove it."
            return [Violation(key="headers", message=message, fix=fix)]
        if isinstance(value, str) and not _HEADER_VALUE.fullmatch(value):
            message = f"the header '{name}' has a line break or another character that no header may have"
            return [Violation(key="headers", message=message)]
    return []


def _endpoint_problem(endpoint: str) -> str | None:
    try:
        scheme = parse_endpoint(endpoint).scheme
    except BadURLError as error:
        return str(error).replace("'url'", "'endpoint'")
    if scheme not in {"http", "https"}:
        return "'endpoint' must use https:// or http://"
    return "'endpoint' must not have a '#' part" if urlsplit(endpoint).fragment else None

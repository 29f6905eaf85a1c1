"""Which fields of a `ModelRequest` the API of a model has.

`APIFields` is the one place where this is written down for an API. A field that the API does not have is either a hint,
which changes no answer and is left out (those for prompt caches, `safety_identifier`, `user`, `effort`, `summary`, and
the service tiers that mean the usual one), or it is refused: `find_unsupported` names it. `json_mode` is neither: a
model without it gets `JSON_OBJECT_SCHEMA`. The fields that are not named here exist in every API.
"""

from __future__ import annotations

from holodeck.lib.record import record
from holodeck.models.model_io import ModelRequest

USUAL_TIERS = frozenset({"auto", "default", "standard"})
"""Values of `service_tier` that any provider fulfils, since they ask for nothing special."""
# Fields that change the answer, in the order in which they are checked.
_ANSWER_FIELDS = ("stop", "seed", "presence_penalty", "frequency_penalty", "verbosity", "top_logprobs", "extra_body")
# Fields whose 0 is a value, and not the absence of one.
_ZERO_COUNTS = frozenset({"seed", "top_logprobs"})


@record
class APIFields:
    """The fields of one API."""

    request: frozenset[str]
    """Fields of `ModelRequest` that are sent."""
    has_all_tiers: bool = False
    """Whether every `service_tier` is sent. Otherwise `USUAL_TIERS` are accepted."""
    body: frozenset[str] = frozenset()
    """Members of the JSON body that HoloDeck writes itself, so that no `extra_body` may have them."""


_SAMPLING = frozenset({"stop", "seed", "presence_penalty", "frequency_penalty"})
CACHE_HINTS = frozenset({"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"})
"""Fields for the prompt caches of OpenAI's APIs."""
_HINTS = CACHE_HINTS | {"service_tier", "safety_identifier", "user"}
# Members of these names in both of OpenAI's APIs.
_OPENAI_BODY = frozenset(
    {"model", "stream", "temperature", "top_p", "presence_penalty", "frequency_penalty", "top_logprobs"}
    | {"tools", "tool_choice", "parallel_tool_calls"}
    | _HINTS
)
RESPONSES_FIELDS = APIFields(
    request=(_SAMPLING - {"stop", "seed"})
    | _HINTS
    | {"json_mode", "top_logprobs", "effort", "verbosity", "extra_body"},
    has_all_tiers=True,
    body=_OPENAI_BODY | {"input", "instructions", "store", "include", "max_output_tokens", "reasoning", "text"},
)
CHAT_FIELDS = APIFields(
    request=_SAMPLING | _HINTS | {"json_mode", "top_logprobs", "effort", "verbosity", "extra_body"},
    has_all_tiers=True,
    body=_OPENAI_BODY
    | {"messages", "stream_options", "max_tokens", "max_completion_tokens", "reasoning_effort", "verbosity"}
    | {"response_format", "logprobs", "stop", "seed"},
)
OLLAMA_FIELDS = APIFields(
    request=_SAMPLING | {"json_mode", "top_logprobs", "effort", "extra_body"},
    body=CHAT_FIELDS.body,
)
ANTHROPIC_FIELDS = APIFields(
    request=frozenset({"stop", "service_tier", "safety_identifier", "user", "effort", "extra_body"}),
    body=frozenset(
        {"model", "max_tokens", "messages", "stream", "system", "temperature", "top_p", "stop_sequences"}
        | {"output_config", "tools", "tool_choice", "metadata", "service_tier", "cache_control"}
    ),
)
LOCAL_FIELDS = APIFields(request=_SAMPLING | {"json_mode"})
# Fixed rules give the same answer for every seed.
REHEARSAL_FIELDS = APIFields(request=frozenset({"stop", "seed"}))


def find_unsupported(request: ModelRequest, api: APIFields) -> str | None:
    """Return the first field of a request that must be refused, since the API does not have it; else None."""
    for name in _ANSWER_FIELDS:
        if name not in api.request:
            value = getattr(request, name)
            if value is not None if name in _ZERO_COUNTS else value:
                return name
    tier = request.service_tier
    return None if tier is None or api.has_all_tiers or tier in USUAL_TIERS else "service_tier"

"""Log probabilities as both APIs have them: `logprobs` of a text, with the `top_logprobs` of each token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holodeck.models.model_io import Logprob


def logprobs_to_json(logprobs: Sequence[Logprob]) -> list[dict[str, Any]]:
    return [{**_token_to_json(each), "top_logprobs": list(map(_token_to_json, each.top))} for each in logprobs]


def _token_to_json(entry: Logprob) -> dict[str, Any]:
    # The Responses API requires the bytes, which not every provider reports.
    encoded = entry.token.encode("utf-8", "replace") if entry.bytes is None else entry.bytes
    return {"token": entry.token, "logprob": entry.logprob, "bytes": list(encoded)}

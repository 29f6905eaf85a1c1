"""The model of an agent in code: named by a text, described by an `LLM`, or an object of the program's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic

from holodeck.lib.errors import ConfigError
from holodeck.models.llm import LLM
from holodeck.models.model_io import ModelRequest
from holodeck.providers.base import Batches, ModelProvider, ModelWrapper, stream_in_batches


def parse_model(model: str | LLM | ModelProvider) -> tuple[LLM, ModelProvider | None]:
    """Return the settings of a model, and the model itself if the program has made it.

    Raises `ConfigError` for a text that names no model.
    """
    if isinstance(model, str):
        return _parse_name(model), None
    if isinstance(model, LLM):
        return model, None
    missing = [name for name in ("name", "stream", "close") if not hasattr(model, name)]
    if missing or isinstance(model, type):
        raise ConfigError(
            f"{model!r} is no model: give 'provider:name', an LLM, or an object with 'name', 'stream' and 'close'."
        )
    return LLM(), model


def _parse_name(text: str) -> LLM:
    from holodeck.config.source import explain_unknown_model, parse_model_name

    data = parse_model_name(text)
    if data is None:
        message, hint = explain_unknown_model(text)
        raise ConfigError(f"{message}. {hint}")
    try:
        return LLM.model_validate(data)
    except pydantic.ValidationError as error:
        problems = describe_problems(error, {"model": data}, at=("model",))
        fix = "That takes more than a name: 'model' of a file, an entry of 'test_settings.models', or an LLM in Python."
        raise ConfigError(f"The model '{text}' cannot be used: {problems} {fix}") from None


class BorrowedModel(ModelWrapper):
    """A model of the program, which closes it itself."""

    def stream_batches(self, request: ModelRequest) -> Batches:
        return stream_in_batches(self._inner, request)

    async def close(self) -> None:
        """Leave the model open."""


def describe_problems(error: pydantic.ValidationError, data: Mapping[str, Any], at: tuple[str | int, ...] = ()) -> str:
    """Return a sentence for each problem. `data`: as it would be in an agent file; `at`: where the model is in it."""
    from holodeck.config.validation import explain
    from holodeck.config.yaml_reader import Document

    document = Document(file="", value=data)
    found = error.errors(include_input=False, include_url=False)
    explained = [explain({**each, "loc": (*at, *each["loc"])}, document, data) for each in found]
    return " ".join(f"{each.message}. {each.fix}".strip() for each in explained)

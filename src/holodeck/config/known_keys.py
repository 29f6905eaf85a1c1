"""The valid keys at each path of a file, derived from the models, and the closest match of a misspelled key."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from holodeck.config.yaml_reader import KeyPath


def known_keys(root: type[BaseModel], path: KeyPath, data: Any) -> list[str]:
    """Return the valid keys of the mapping at this path. Empty when the path leads to no model."""
    model = model_at(root, path, data)
    return (
        [] if model is None else [key for name, field in model.model_fields.items() for key in spellings(name, field)]
    )


def model_at(root: type[BaseModel], path: KeyPath, data: Any) -> type[BaseModel] | None:
    """Return the model of the mapping at this path; of several, the one that matches the `type` in the data."""
    model: type[BaseModel] | None = root
    annotation: Any = root
    for part in path:
        data = _child_of(data, part)
        if isinstance(part, str):
            field = _find_field(model, part) if model is not None else None
            if field is None:
                return None
            annotation = field.annotation
        model = _choose_model(list(_models_in(annotation)), data)
    return model


def closest_match(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that is most similar to a word, without regard to case and to `-` or `_`; None if none is
    similar."""
    folded = {choice.lower().replace("-", "_"): choice for choice in choices}
    close = difflib.get_close_matches(word.lower().replace("-", "_"), folded, n=1, cutoff=0.7)
    return folded[close[0]] if close else None


def spellings(name: str, field: FieldInfo) -> list[str]:
    """Return the names that a field may have in a file."""
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return [str(choice) for choice in alias.choices]
    return [alias] if isinstance(alias, str) else [name]


def _find_field(model: type[BaseModel], key: str) -> FieldInfo | None:
    return next((field for name, field in model.model_fields.items() if key in spellings(name, field)), None)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield every model inside an annotation, through lists, unions and `Annotated`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif get_origin(annotation) is not Literal and get_origin(annotation) is not dict:
        for inner in get_args(annotation):
            yield from _models_in(inner)


def _choose_model(models: list[type[BaseModel]], data: Any) -> type[BaseModel] | None:
    if len(models) < 2:  # noqa: PLR2004 - nothing to choose from
        return models[0] if models else None
    kind = data.get("type") if isinstance(data, dict) else None
    return next((model for model in models if kind in get_args(model.model_fields["type"].annotation)), None)


def _child_of(data: Any, part: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(part)
    return data[part] if isinstance(data, list) and isinstance(part, int) and part < len(data) else None

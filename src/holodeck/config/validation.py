"""A document against a model: the validated model, or everything that is wrong with the document."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, TypeVar

import pydantic

from holodeck.config.known_keys import closest_match, known_keys
from holodeck.config.problems import explain, key_path, value_at
from holodeck.config.yaml_reader import Document, KeyPath
from holodeck.lib.errors import Problem

Model = TypeVar("Model", bound=pydantic.BaseModel)


def validate(model: type[Model], data: Any, document: Document) -> tuple[Model | None, list[Problem]]:
    """Validate twice where a key is misspelled: once as written, once as meant, so no follow-up error is invented."""
    try:
        return model.model_validate(data), []
    except pydantic.ValidationError as error:
        errors = error.errors(include_input=False, include_url=False)
    unknown = [item for item in errors if item["type"] == "extra_forbidden"]
    if not unknown:
        return None, _deduplicate([explain(item, document, data, model) for item in errors])
    problems = [explain(item, document, data, model) for item in unknown]
    meant = copy.deepcopy(data)
    places = dict(document.positions)
    for item in unknown:
        _correct_key(model, meant, key_path(item["loc"], data), places)
    corrected = replace(document, value=meant, positions=places)
    try:
        model.model_validate(meant)
    except pydantic.ValidationError as error:
        again = error.errors(include_input=False, include_url=False)
        problems += [explain(item, corrected, meant, model) for item in again if item["type"] != "extra_forbidden"]
    return None, _deduplicate(problems)


def _correct_key(root: type[pydantic.BaseModel], data: Any, path: KeyPath, places: dict[KeyPath, Any]) -> None:
    """Rename a misspelled key to what was meant, or take an unknown one out."""
    parent = value_at(data, path[:-1])
    if not path or not isinstance(parent, dict) or path[-1] not in parent:
        return
    value = parent.pop(path[-1])
    choice = closest_match(str(path[-1]), known_keys(root, path[:-1], data))
    if choice is not None and choice not in parent:
        parent[choice] = value
        places[(*path[:-1], choice)] = places.get(path, places.get(()))


def _deduplicate(problems: list[Problem]) -> list[Problem]:
    return list(dict.fromkeys(problems))

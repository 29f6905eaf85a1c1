"""What is wrong with a definition that a program has made, in the words that files are explained with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pydantic

from holodeck.config.validation import explain
from holodeck.config.yaml_reader import Document


def describe_problems(error: pydantic.ValidationError, data: Mapping[str, Any], at: tuple[str | int, ...] = ()) -> str:
    """Return a sentence for each problem. `data`: as it would be in an agent file; `at`: where the model is in it."""
    document = Document(file="", value=data)
    found = error.errors(include_input=False, include_url=False)
    explained = [explain({**each, "loc": (*at, *each["loc"])}, document, data) for each in found]
    return " ".join(f"{each.message}. {each.fix}".strip() for each in explained)

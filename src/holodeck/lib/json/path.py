"""Paths to values inside JSON, such as `$.items[0].price`: the part of JSONPath that names exactly one value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

Steps = tuple[str | int, ...]
"""Keys of objects and positions in arrays, from the outside in."""

_STEP = re.compile(
    r"""\.(?P<name>[^.\[\]'"\s]+)|\[(?P<index>-?\d+)\]|\['(?P<single>[^']*)'\]|\["(?P<double>[^"]*)"\]"""
)


def parse_json_path(text: str) -> Steps:
    """Return the steps of a path. Raises `ValueError`, which says where it cannot be read.

    `$` is the value itself, `.name` and `["any name"]` a member, `[0]` an element, and `[-1]` the last one.
    """
    if not text.startswith("$"):
        raise ValueError("a path begins with '$', such as $.items[0].price")
    steps: list[str | int] = []
    position = 1
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise ValueError(f"the path cannot be read from '{text[position : position + 20]}' on")
        index = found["index"]
        name = next((found[key] for key in ("name", "single", "double") if found[key] is not None), "")
        steps.append(name if index is None else int(index))
        position = found.end()
    return tuple(steps)


def find_json_value(value: Any, steps: Sequence[str | int]) -> Any:
    """Return the value at a path. Raises `LookupError` where there is none."""
    for step in steps:
        is_object, is_array = isinstance(value, dict), isinstance(value, list)
        if not (is_object if isinstance(step, str) else is_array):
            raise LookupError(step)
        value = value[step]
    return value

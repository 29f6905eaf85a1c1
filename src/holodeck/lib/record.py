"""`record`, the decorator of every class that is immutable data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """Make a class a keyword-only dataclass with slots, compared and hashed by value, immutable for the type checker.

    Immutability is not enforced at run time: that doubles the cost of construction, and a stream constructs several
    records for each word. `dataclass` itself is for what `record` is not: state that changes, values compared by
    identity, and the steps of test scripts, whose one argument is positional.
    """
    return dataclass(kw_only=True, slots=True, unsafe_hash=True)(kind)

"""`record`, the decorator of every class that is immutable data."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """Make a class a keyword-only dataclass with slots, compared and hashed by value, immutable for the type checker.

    Immutability is not enforced at run time: that doubles the cost of construction, and a stream constructs several
    records for each word. `dataclass` itself is for what `record` is not: state that changes, values compared by
    identity, and the steps of test scripts, whose one argument is positional.
    """
    return dataclass(kw_only=True, slots=True, unsafe_hash=True)(kind)


def copy_record(value: T, **changes: Any) -> T:
    """Return a record with some fields changed, as `dataclasses.replace` does at three times the cost.

    For what is copied in every turn of a model. The record has no `__post_init__`.
    """
    kind: Any = type(value)
    copied: T = object.__new__(kind)
    names, get_values = _fields_of(kind)
    for name, found in zip(names, get_values(value), strict=True):
        setattr(copied, name, found)
    for name, changed in changes.items():
        setattr(copied, name, changed)
    return copied


@cache
def _fields_of(kind: type[Any]) -> tuple[tuple[str, ...], attrgetter[Any]]:
    names = tuple(each.name for each in fields(kind))
    return names, attrgetter(*names)

"""`record`, the decorator of every class that is immutable data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """Make a class a keyword-only dataclass with slots, compared and hashed by value, immutable for the type checker.

    Immutability is not enforced at run time: that doubles the cost of construction, and a stream constructs several
    records for each word. `dataclass` itself is for what `record` is not: state that changes, values compared by
    identity, and the steps of test scripts, whose one argument is positional.

    All records share one `__repr__`, `__eq__` and `__hash__`: `dataclass` would compile three functions for each class,
    a tenth of the time that `from holodeck import Agent` takes.
    """
    own = kind.__dict__
    made: Any = dataclass(kw_only=True, slots=True, eq=False, repr=False)(kind)
    if "__repr__" not in own:
        made.__repr__ = _show
    if "__eq__" not in own:
        made.__eq__ = _is_equal
    if own.get("__hash__") is None:
        made.__hash__ = _hash_values
    completed: type[T] = made
    return completed


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


@recursive_repr()
def _show(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _is_equal(self: Any, other: Any) -> Any:
    kind: Any = self.__class__
    if other.__class__ is not kind:
        return NotImplemented
    get_values = _compared_values(kind)
    return get_values(self) == get_values(other)


def _hash_values(self: Any) -> int:
    kind: Any = type(self)
    return hash(_hashed_values(kind)(self))


@cache
def _compared_values(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    return build_getter([each.name for each in fields(kind) if each.compare])


@cache
def _hashed_values(kind: type[Any]) -> Callable[[Any], tuple[Any, ...]]:
    return build_getter([each.name for each in fields(kind) if (each.compare if each.hash is None else each.hash)])


def build_getter(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Build a function that returns these attributes of an object as a tuple."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda value: tuple([getattr(value, name) for name in names])

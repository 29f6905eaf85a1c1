"""Basic types of every layer: the `record` decorator for immutable data, and `Clock`, a source of wall-clock time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """Make a class a keyword-only dataclass with slots, compared and hashed by value, immutable for the type checker.

    Immutability is not enforced at run time: that doubles the cost of construction, and a stream constructs several
    records for each word. Outside busy paths use `dataclass(frozen=True)`.
    """
    return dataclass(kw_only=True, slots=True, unsafe_hash=True)(kind)


Clock = Callable[[], float]
"""Returns seconds since 1970. Wall-clock time, because a monotonic clock may stop while a laptop sleeps, and a token
expires all the same."""


def wall_clock() -> float:
    return time.time()

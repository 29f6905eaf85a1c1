"""Data that does not change once it is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def record(kind: type[T]) -> type[T]:
    """A class of data for busy paths: by keyword, equal by value, and never changed.

    The type checker sees to the last; at run time nothing watches over it, because that doubles what making one costs,
    and a stream makes several for every word. Elsewhere `dataclass(frozen=True)` is right.
    """
    return dataclass(kw_only=True, slots=True, unsafe_hash=True)(kind)


Clock = Callable[[], float]
"""Seconds since 1970. By the wall clock: a laptop that slept has an old token, whatever a monotonic clock says."""


def wall_clock() -> float:
    return time.time()

"""Pauses that double: the one rule for every retry in the product."""

from __future__ import annotations

import random

# 2 ** 1024 is no float any more, and long before that every pause is at its longest.
_MAX_DOUBLINGS = 60


def backoff_pause(
    failures: int, *, first: float, longest: float, spread: float = 1.0, random_number: float | None = None
) -> float:
    """Seconds to wait after so many failures in a row: `first`, doubled for each further one, at most `longest`.

    `spread`: multiply by a random factor between 1 and this, so that what failed together is not retried together.
    `random_number`, between 0 and 1, replaces chance.
    """
    pause = min(longest, first * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))
    chance = random.random() if random_number is None else random_number  # noqa: S311 - not for secrets
    return pause * (1.0 + (spread - 1.0) * chance)

"""Exponential backoff: the pause before a retry, computed the same way everywhere."""

from __future__ import annotations

import random

# 2.0 ** 1024 overflows, and every pause reaches its maximum long before that.
_MAX_DOUBLINGS = 60


def backoff_pause(
    failures: int, *, first: float, longest: float, spread: float = 1.0, random_number: float | None = None
) -> float:
    """Return the seconds to wait after `failures` consecutive failures: `first`, doubled each time, up to `longest`.

    The pause is multiplied by a random factor between 1 and `spread`, so that clients that failed together do not
    retry together; the result may therefore exceed `longest`. `random_number`, between 0 and 1, replaces the random
    source in tests.
    """
    pause = min(longest, first * 2.0 ** min(max(failures - 1, 0), _MAX_DOUBLINGS))
    chance = random.random() if random_number is None else random_number  # noqa: S311 - not for secrets
    return pause * (1.0 + (spread - 1.0) * chance)

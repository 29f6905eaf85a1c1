"""Async tests under a bounded wait: `@aio` for half a minute, `@aio(60)` for a real server that is fetched first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, overload

P = ParamSpec("P")
AsyncTest = Callable[P, Coroutine[Any, Any, None]]

# Ends a test that hangs, also on a busy machine; less than the 30 s that the product allows for most things.
LIMIT = 28.0


@overload
def aio(test: AsyncTest[P]) -> Callable[P, None]: ...
@overload
def aio(test: float) -> Callable[[AsyncTest[P]], Callable[P, None]]: ...


def aio(test: AsyncTest[P] | float) -> Callable[P, None] | Callable[[AsyncTest[P]], Callable[P, None]]:
    """Run an async test to its end, or fail it when its time is over."""
    if isinstance(test, int | float):
        return lambda inner: _bounded(inner, float(test))
    return _bounded(test, LIMIT)


def _bounded(test: AsyncTest[P], seconds: float) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def within() -> None:
            async with asyncio.timeout(seconds):
                await test(*args, **kwargs)

        asyncio.run(within())

    return run

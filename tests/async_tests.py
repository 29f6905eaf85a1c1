"""Async tests under a bounded wait: `@async_test` for half a minute, `@async_test(60)` for a real server that is
fetched first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, overload

P = ParamSpec("P")
AsyncTest = Callable[P, Coroutine[Any, Any, None]]

# Ends a test that hangs, also on a busy machine; less than the 30 s that the product allows for most things.
TIMEOUT = 28.0


@overload
def async_test(test: AsyncTest[P]) -> Callable[P, None]: ...
@overload
def async_test(test: float) -> Callable[[AsyncTest[P]], Callable[P, None]]: ...


def async_test(test: AsyncTest[P] | float) -> Callable[P, None] | Callable[[AsyncTest[P]], Callable[P, None]]:
    """Run an async test to its end, or fail it when its time is over."""
    if isinstance(test, int | float):
        return lambda inner: _with_timeout(inner, float(test))
    return _with_timeout(test, TIMEOUT)


def _with_timeout(test: AsyncTest[P], seconds: float) -> Callable[P, None]:
    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def run_with_timeout() -> None:
            async with asyncio.timeout(seconds):
                await test(*args, **kwargs)

        asyncio.run(run_with_timeout())

    return run

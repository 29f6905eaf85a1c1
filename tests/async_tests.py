"""Async tests under a bounded wait: `@async_test` for half a minute, `@async_test(60)` for a real server that is
fetched first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from functools import wraps
from typing import Any, ParamSpec, overload

from patience import patience

P = ParamSpec("P")
AsyncTest = Callable[P, Coroutine[Any, Any, None]]

# Less than the 30 s that the product allows for most things.
TIMEOUT = 28.0


_shared_runners: list[asyncio.Runner] = []


@contextmanager
def sharing_loop(runner: asyncio.Runner) -> Iterator[None]:
    """Let async tests run on the loop of a runner that outlives them, where something is connected that they share."""
    _shared_runners.append(runner)
    try:
        yield
    finally:
        _shared_runners.remove(runner)


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
            async with asyncio.timeout(patience(seconds)):
                await test(*args, **kwargs)

        if _shared_runners:
            _run_shared(_shared_runners[-1], run_with_timeout())
        else:
            asyncio.run(run_with_timeout())

    return run


def _run_shared(runner: asyncio.Runner, test: Coroutine[Any, Any, None]) -> None:
    """Run a test as `asyncio.run` does: with a context of its own, and nothing of it runs on afterwards."""
    loop = runner.get_loop()
    before = asyncio.all_tasks(loop)
    try:
        runner.run(test, context=copy_context())
    finally:
        runner.run(_cancel(asyncio.all_tasks(loop) - before))


async def _cancel(tasks: set[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

"""Work in a forked child with limits on CPU time and memory, so that nothing it reads can stop this process."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from holodeck.lib.errors import ExecutionError

T = TypeVar("T")

_OUT_OF_MEMORY = 3
"""Exit status of a child that could not get more memory."""
_FAILED = 1


class LimitExceededError(ExecutionError):
    """The work needed more CPU time or memory than it may have, or crashed the interpreter."""


def run_limited(work: Callable[[], T], *, cpu_seconds: int, memory_bytes: int) -> T:
    """Run `work` in a fork of this process and return its result, which must be picklable.

    Blocks. `memory_bytes` is beyond what this process has now. Raises `LimitExceededError`, and what `work` raises.
    Call it in a program with one thread: a fork has no other threads, and the locks that they hold are held for ever.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _serve_result(work, writing, cpu_seconds, memory_bytes)
    os.close(writing)
    try:
        with os.fdopen(reading, "rb") as pipe:
            data = pipe.read()
    except BaseException:
        # Ctrl-C: the child gets it, too, unless it is busy in a call that takes none.
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    # In one long call of the kernel, the limit of the user is reached, too, before the signal is delivered.
    cpu_limit = _lower_limit(resource.RLIMIT_CPU, cpu_seconds)
    was_killed_late = code == -signal.SIGKILL and used.ru_utime + used.ru_stime >= cpu_limit
    if code == -signal.SIGXCPU or was_killed_late:
        raise LimitExceededError("it took too much CPU time")
    if code == _OUT_OF_MEMORY:
        raise LimitExceededError("it took too much memory")
    if code < 0 or not data:
        raise LimitExceededError(f"the process that did it has crashed ({code})")
    # Of a process of our own code, on a pipe that no other has.
    result, error = pickle.loads(data)  # noqa: S301
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return] # it is what `work` returned


def _serve_result(work: Callable[[], T], writing: int, cpu_seconds: int, memory_bytes: int) -> None:
    """Run the work, write its result or its error to the pipe, and end this process."""
    status = _FAILED
    try:
        _set_limits(cpu_seconds, memory_bytes)
        outcome: tuple[T | None, Exception | None]
        try:
            outcome = (work(), None)
        except MemoryError:
            raise
        except Exception as error:
            outcome = (None, error)
        data = pickle.dumps(outcome)
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(data)
        sys.stdout.flush()
        sys.stderr.flush()
        status = 0
    except MemoryError:
        status = _OUT_OF_MEMORY
    finally:
        # Nothing of the parent runs here: no handlers at the exit, no finally blocks of its callers.
        os._exit(status)


def _set_limits(cpu_seconds: int, memory_bytes: int) -> None:
    # What the parent has allocated is not garbage here, and to touch it would copy it.
    gc.freeze()
    for kind, limit in (
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, _current_address_space() + memory_bytes),
        (resource.RLIMIT_CORE, 0),
    ):
        # Some systems have no limit of the address space.
        with suppress(ValueError, OSError):
            resource.setrlimit(kind, (_lower_limit(kind, limit), resource.getrlimit(kind)[1]))
    signal.signal(signal.SIGXCPU, signal.SIG_DFL)


def _lower_limit(kind: int, limit: int) -> int:
    """Return a limit below that of the user, at which the kernel kills without saying why."""
    hard = resource.getrlimit(kind)[1]
    return limit if hard == resource.RLIM_INFINITY else min(limit, max(hard - 1, 0))


def _current_address_space() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()

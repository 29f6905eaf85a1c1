"""State of this process that all its tests share, and that a test can change for the ones after it.

`restore_logging` puts loggers back: the product configures the logging of its process, which a test cannot undo.
`restore_secrets` forgets the secrets that were read: each is masked in the log and in messages of the whole process.
`ProcessState` is everything else. The folders that the product adds to `sys.path` for the functions of an agent are
removed; the rest a test puts back itself (`monkeypatch` does): the environment, the working folder, the umask, handlers
of signals, limits, replaced modules and context variables. Warning filters and captured streams are pytest's own to
restore, and the caches of the product depend on their arguments only. A test takes some 200 microseconds more for it.
"""

from __future__ import annotations

import contextvars
import logging
import os
import resource
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from holodeck.lib import log
from holodeck.lib.redaction import LOG_SECRETS, OPERATOR_SECRETS

_CATCHABLE = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})
_LIMITS = (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_AS, resource.RLIMIT_CORE)
# Set by pytest, for each phase of a test.
_OF_PYTEST = frozenset({"PYTEST_CURRENT_TEST"})


@contextmanager
def restore_secrets() -> Iterator[None]:
    """Give the sets of secrets of the process the values back that they had before."""
    sets = (LOG_SECRETS, OPERATOR_SECRETS)
    before = [(dict(vars(each)), each._values.copy()) for each in sets]
    try:
        yield
    finally:
        for each, (attributes, values) in zip(sets, before, strict=True):
            vars(each).update(attributes, _values=values)


@contextmanager
def restore_logging() -> Iterator[None]:
    """Give every logger its level, handlers, filters and switches back, and remove those that were added.

    A logger that did not exist before is as if nobody had configured it.
    """
    manager = logging.root.manager
    before = {logger: _settings(logger) for logger in _loggers()}
    switches = manager.disable, logging.logThreads, logging.logProcesses, logging.logMultiprocessing
    writers = list(log._writers)
    try:
        yield
    finally:
        changed = False
        for logger in _loggers():
            expected = before.get(logger, (logging.NOTSET, True, False, [], []))
            if _settings(logger) != expected:
                changed = True
                logger.level, logger.propagate, logger.disabled, logger.handlers[:], logger.filters[:] = expected
        if changed or manager.disable != switches[0]:
            manager.disable, logging.logThreads, logging.logProcesses, logging.logMultiprocessing = switches
            # Loggers remember which levels they write; setting one forgets it for all of them.
            logging.root.setLevel(logging.root.level)
        log._writers[:] = writers


def _loggers() -> list[logging.Logger]:
    known = logging.root.manager.loggerDict.values()
    return [logging.root, *(each for each in known if isinstance(each, logging.Logger))]


def _settings(logger: logging.Logger) -> tuple[int, bool, bool, list[Any], list[Any]]:
    return logger.level, logger.propagate, logger.disabled, list(logger.handlers), list(logger.filters)


class ProcessState:
    """What the process looks like now. `restore` brings it back to that, and names what a test should have put back."""

    def __init__(self) -> None:
        self._environ = _environment()
        self._cwd = _working_folder()
        self._umask = _umask()
        self._handlers = _signal_handlers()
        self._limits = _limits()
        self._path = list(sys.path)
        self._modules = dict(sys.modules)
        self._context = contextvars.copy_context()

    def restore(self) -> list[str]:
        """Undo what has changed since, and return a sentence about each change that is a mistake of the test."""
        return [
            *self._restore_environment(),
            *self._restore_folder(),
            *self._restore_signals(),
            *self._restore_imports(),
            *self._restore_context(),
        ]

    def _restore_environment(self) -> Iterator[str]:
        now = _environment()
        if now != self._environ:
            for name in _changed_keys(self._environ, now):
                yield f"the environment variable {name}"
                if name in self._environ:
                    os.environ[name] = self._environ[name]
                else:
                    del os.environ[name]

    def _restore_folder(self) -> Iterator[str]:
        if (folder := _working_folder()) != self._cwd:
            yield f"the working folder (now {folder})"
            os.chdir(self._cwd)
        if (umask := _umask()) != self._umask:
            yield f"the umask (now {umask:03o})"
            os.umask(self._umask)
        for limit, before, now in zip(_LIMITS, self._limits, _limits(), strict=True):
            if before != now:
                yield f"the resource limit {limit} (now {now})"
                # A lowered hard limit stays.
                with suppress(ValueError):
                    resource.setrlimit(limit, before)

    def _restore_signals(self) -> Iterator[str]:
        for number, before, now in zip(_CATCHABLE, self._handlers, _signal_handlers(), strict=True):
            if before != now:
                yield f"the handler of signal {number} (now {now})"
                signal.signal(number, before)

    def _restore_imports(self) -> Iterator[str]:
        if sys.path != self._path:
            self._forget_imports_from(set(sys.path) - set(self._path))
            sys.path[:] = self._path
        for name, module in self._modules.items():
            if sys.modules.get(name) is not module:
                yield f"the imported module {name}"
                sys.modules[name] = module

    def _forget_imports_from(self, folders: set[str]) -> None:
        """Forget the modules of folders that were added to `sys.path`: the next test has others of the same name."""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if name not in self._modules and any(Path(file).is_relative_to(folder) for folder in folders if folder):
                del sys.modules[name]

    def _restore_context(self) -> Iterator[str]:
        for variable, value in contextvars.copy_context().items():
            # One that was not set has its default in an empty context.
            context = self._context if variable in self._context else contextvars.Context()
            before = context.run(variable.get, None)
            if value is not before:
                yield f"the context variable {variable.name}"
                variable.set(before)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in _OF_PYTEST}


def _changed_keys(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [name for name in before.keys() | now.keys() if before.get(name) != now.get(name)]


def _working_folder() -> str:
    try:
        return os.getcwd()  # noqa: PTH109 - a string is all that is compared
    except FileNotFoundError:
        return "one that was removed"


def _umask() -> int:
    # There is no call that only reads it.
    umask = os.umask(0o022)
    os.umask(umask)
    return umask


def _signal_handlers() -> list[Any]:
    return [signal.getsignal(number) for number in _CATCHABLE]


def _limits() -> list[tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in _LIMITS]

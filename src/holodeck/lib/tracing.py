"""Where the time of a request goes, told to whoever listens; while nobody does, it costs next to nothing.

A span has names, numbers and kinds of errors. It never has a prompt, an answer or the value of an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Literal, Protocol, Self

Value = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Value | None]
"""What is known of a span. None is left out."""
Kind = Literal["server", "client", "internal"]


class Span(Protocol):
    """Something that takes time."""

    def rename(self, name: str) -> None: ...

    def set(self, attributes: Attributes) -> None: ...

    def fail(self, kind: str) -> None:
        """It did not work. `kind` is a class of errors, never the words of one."""
        ...

    def carrier(self) -> Mapping[str, str]:
        """What another program needs to go on with this trace: `traceparent` and `tracestate`."""
        ...


class Tracer(Protocol):
    """Takes spans. Within one, in this task and in those that it starts, new ones are its children."""

    def span(
        self, name: str, attributes: Attributes, *, kind: Kind, parent: Mapping[str, str] | None
    ) -> AbstractContextManager[Span]: ...

    def carrier(self) -> Mapping[str, str]:
        """That of the span that we are in; empty outside of any."""
        ...

    def close(self) -> None:
        """Hand over what is left. Bounded."""
        ...


class _NoopSpan:
    """A span that nobody hears of."""

    def rename(self, name: str) -> None:
        return None

    def set(self, attributes: Attributes) -> None:
        return None

    def fail(self, kind: str) -> None:
        return None

    def carrier(self) -> Mapping[str, str]:
        return {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None


NOOP_SPAN: Final = _NoopSpan()
_tracers: list[Tracer] = []


def is_enabled() -> bool:
    """Whether anybody listens. Ask before gathering attributes on a busy path."""
    return bool(_tracers)


def span(
    name: str, attributes: Attributes, *, kind: Kind = "internal", parent: Mapping[str, str] | None = None
) -> AbstractContextManager[Span]:
    """A span around a `with` block. `parent`: the headers of a request that may belong to somebody's trace."""
    if not _tracers:
        return NOOP_SPAN
    return _tracers[-1].span(name, attributes, kind=kind, parent=parent)


def carrier() -> Mapping[str, str]:
    """What another process needs to go on with the trace that we are in: the `parent` of a span there."""
    return _tracers[-1].carrier() if _tracers else {}


def add_tracer(tracer: Tracer) -> None:
    """Tell this one, until `remove_tracer`."""
    _tracers.append(tracer)


def remove_tracer(tracer: Tracer) -> None:
    """Tell it no more. Doing it twice is the same as doing it once."""
    if tracer in _tracers:
        _tracers.remove(tracer)

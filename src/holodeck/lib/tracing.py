"""Spans: measures where the time of a request goes, for the installed tracer. Almost free while there is none.

`span` opens a span as a `with` block; spans opened inside it, also in tasks started there, are its children. The last
tracer that was added receives all spans. A span has names, numbers and kinds of errors, never a prompt, an answer or
the value of an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final, Literal, Protocol, Self

Value = str | int | float | bool | Sequence[str]
Attributes = Mapping[str, Value | None]
"""Attributes of a span by name. A value of None is omitted."""
Kind = Literal["server", "client", "internal"]


class Span(Protocol):
    """An operation with a beginning and an end."""

    def rename(self, name: str) -> None: ...

    def set(self, attributes: Attributes) -> None: ...

    def fail(self, kind: str) -> None:
        """Mark the span as failed. `kind` is a class of errors, never the text of one."""
        ...

    def carrier(self) -> Mapping[str, str]:
        """Return the headers that continue this trace in another program: `traceparent` and `tracestate`."""
        ...


class Tracer(Protocol):
    """Creates spans. A span opened inside another, in its task or one started there, is its child."""

    def span(
        self, name: str, attributes: Attributes, *, kind: Kind, parent: Mapping[str, str] | None
    ) -> AbstractContextManager[Span]: ...

    def carrier(self) -> Mapping[str, str]:
        """Return the carrier of the current span; empty outside of one."""
        ...

    def close(self) -> None:
        """Export the remaining spans, within a bounded time."""
        ...


class _NoopSpan:
    """A span that records nothing."""

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
tracers: Final[list[Tracer]] = []
"""Changed by `add_tracer` and `remove_tracer`. Busy paths collect attributes only if it is not empty."""


def span(
    name: str, attributes: Attributes, *, kind: Kind = "internal", parent: Mapping[str, str] | None = None
) -> AbstractContextManager[Span]:
    """Open a span for a `with` block. `parent`: headers of a request that may continue a client's trace."""
    if not tracers:
        return NOOP_SPAN
    return tracers[-1].span(name, attributes, kind=kind, parent=parent)


def carrier() -> Mapping[str, str]:
    """Return the carrier of the current span: the `parent` of a span in another process."""
    return tracers[-1].carrier() if tracers else {}


def add_tracer(tracer: Tracer) -> None:
    """Send spans to this tracer until `remove_tracer`."""
    tracers.append(tracer)


def remove_tracer(tracer: Tracer) -> None:
    """Send no more spans to this tracer. Idempotent."""
    if tracer in tracers:
        tracers.remove(tracer)

"""The extras of an installation: whether one is here, and how to get it. Nothing of an extra is imported."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

Extra = Literal["durable", "local", "otel", "postgres"]

_MODULES: dict[Extra, tuple[str, ...]] = {
    "durable": ("dbos",),
    "local": ("xllamacpp",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "postgres": ("asyncpg",),
}


def is_installed(extra: Extra) -> bool:
    """Whether every package of the extra can be imported."""
    try:
        return all(find_spec(module) is not None for module in _MODULES[extra])
    except ModuleNotFoundError:
        # The parent of a dotted name is absent.
        return False


def install_hint(extra: str) -> str:
    """The command that installs the extra."""
    return f"pip install 'holodeck[{extra}]'"

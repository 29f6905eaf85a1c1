"""HoloDeck: the agent engine and gateway that people trust with their MCP tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from holodeck.agent import Agent
    from holodeck.lib.errors import ConfigError, HoloDeckError
    from holodeck.models.events import RunResult
    from holodeck.runtime import load_agent

__all__ = ["Agent", "ConfigError", "HoloDeckError", "RunResult", "__version__", "load_agent"]

_HOMES = {
    "Agent": "holodeck.agent",
    "ConfigError": "holodeck.lib.errors",
    "HoloDeckError": "holodeck.lib.errors",
    "RunResult": "holodeck.models.events",
    "load_agent": "holodeck.runtime",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are first used, so that `import holodeck` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'holodeck' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """What a person at a prompt is offered, though nothing of it is imported yet."""
    return __all__

"""HoloDeck: an agent engine and gateway for MCP tools.

The public names are imported on first use, so that `import holodeck` is fast. Nothing at all is imported here: with
`python -m holodeck` the current folder is still on the import path, and may have a `typing.py` of a stranger.
"""

__version__ = "0.1.0"

# Type checkers know the name; `typing` is not imported for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from holodeck.agent import Agent
    from holodeck.lib.errors import ConfigError, HoloDeckError
    from holodeck.models.events import RunResult
    from holodeck.runtime import load_agent

__all__ = ["Agent", "ConfigError", "HoloDeckError", "RunResult", "__version__", "load_agent"]

_MODULES_OF_NAMES = {
    "Agent": "holodeck.agent",
    "ConfigError": "holodeck.lib.errors",
    "HoloDeckError": "holodeck.lib.errors",
    "RunResult": "holodeck.models.events",
    "load_agent": "holodeck.runtime",
}


def __getattr__(name: str) -> "Any":
    if name not in _MODULES_OF_NAMES:
        raise AttributeError(f"module 'holodeck' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_MODULES_OF_NAMES[name]), name)


def __dir__() -> list[str]:
    # For completion at a prompt, which does not see names that are not imported yet.
    return __all__

"""Public fakes for tests: a scripted model, an MCP server with a chosen fault, an identity provider, stand-ins for npx,
uvx and docker, and cassettes, which replay what was recorded.

The names are imported on first use: pytest imports this package for its plugin, also where no test uses it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holodeck.testing.cassettes import OpenedCassette, cassette
    from holodeck.testing.identity_provider import IdentityProvider
    from holodeck.testing.mcp.commands import Transport, stand_in, stand_in_calls
    from holodeck.testing.mcp.faults import Era, Fault
    from holodeck.testing.mcp.journal import ABANDONED, Journal, Received
    from holodeck.testing.mcp.server import FaultyMCPServer
    from holodeck.testing.mcp.stdio_server import read_pids
    from holodeck.testing.model.prompt_cache import PromptCache
    from holodeck.testing.model.script import call, call_raw, fail, finish, say, spend, think, wait
    from holodeck.testing.model.scripted import ScriptedModel

__all__: list[str] = []
_MODULES: dict[str, str] = {}
"""Where the names are."""


def _find_in(module: str) -> None:
    """Say that the names that were listed last are in this module."""
    _MODULES.update(dict.fromkeys(__all__[len(_MODULES) :], module))


__all__ += ["OpenedCassette", "cassette"]
_find_in("holodeck.testing.cassettes")
__all__ += ["IdentityProvider"]
_find_in("holodeck.testing.identity_provider")
__all__ += ["Transport", "stand_in", "stand_in_calls"]
_find_in("holodeck.testing.mcp.commands")
__all__ += ["Era", "Fault"]
_find_in("holodeck.testing.mcp.faults")
__all__ += ["ABANDONED", "Journal", "Received"]
_find_in("holodeck.testing.mcp.journal")
__all__ += ["read_pids"]
_find_in("holodeck.testing.mcp.stdio_server")
__all__ += ["FaultyMCPServer"]
_find_in("holodeck.testing.mcp.server")
__all__ += ["PromptCache"]
_find_in("holodeck.testing.model.prompt_cache")
__all__ += ["call", "call_raw", "fail", "finish", "say", "spend", "think", "wait"]
_find_in("holodeck.testing.model.script")
__all__ += ["ScriptedModel"]
_find_in("holodeck.testing.model.scripted")


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'holodeck.testing' has no attribute '{name}'")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__

"""HoloDeck: an agent engine and gateway for MCP tools.

The public names are imported on first use, so that `import holodeck` is fast. Nothing at all is imported here: with
`python -m holodeck` the current folder is still on the import path, and may have a `typing.py` of a stranger.
"""

__version__ = "0.1.0"

# Type checkers know the name; `typing` is not imported for it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from holodeck.agents import runs
    from holodeck.agents.agent import Agent, load_agent
    from holodeck.agents.agent_spec import RunOptions
    from holodeck.agents.hooks import (
        AnswerCall,
        AskPerson,
        CallDecision,
        ChangeArguments,
        Elicitation,
        Hooks,
        RefuseCall,
        RequestedCall,
        RunContext,
    )
    from holodeck.agents.sessions import Session, SessionInfo
    from holodeck.agents.tools.agent_tool import AgentTool
    from holodeck.agents.tools.function_tool import Tool, tool
    from holodeck.agents.tools.mcp_server import MCPServer, ServerInfo
    from holodeck.agents.tools.server_options import LogMessage, RemoteOptions, ServerOptions, StdioOptions
    from holodeck.lib.errors import (
        CassetteMismatchError,
        ConfigError,
        ExecutionError,
        HoloDeckError,
        MCPConfigError,
        MCPConnectionError,
        MCPError,
        MCPProtocolError,
        MCPTimeoutError,
        MCPToolError,
        MCPToolNotFoundError,
        MissingTransportFieldError,
        ModelError,
        Problem,
        RunCancelledError,
        RunError,
        RunFailedError,
        RunIncompleteError,
        RunPausedError,
        ServerUnavailableError,
        SessionConflictError,
        StorageError,
        ValidationError,
    )
    from holodeck.models.auth import OAuthAuthorizationCode, OAuthClientCredentials
    from holodeck.models.events import (
        AgentProgressed,
        CallAdded,
        Event,
        Failure,
        ItemFinished,
        MissingServer,
        ReasoningAdded,
        RunFinished,
        RunNoticed,
        RunResult,
        RunStarted,
        StandInAnswered,
        TextAdded,
        ToolFinished,
        ToolProgressed,
        ToolStarted,
        TurnCut,
        TurnFinished,
        TurnStarted,
    )
    from holodeck.models.items import (
        AudioContent,
        BinaryContent,
        Compaction,
        ContentBlock,
        FileData,
        FunctionCall,
        FunctionCallOutput,
        ImageContent,
        ImageLink,
        Item,
        Message,
        Reasoning,
        TextContent,
        Usage,
    )
    from holodeck.models.llm import LLM
    from holodeck.models.model_io import (
        AnswerVoided,
        CallDelta,
        ContextCompacted,
        ModelAnswer,
        ModelEvent,
        ModelRequest,
        ReasoningDelta,
        StandInChosen,
        TextDelta,
        ToolChoice,
        ToolSpec,
    )
    from holodeck.models.price import Price
    from holodeck.models.run_limits import RunLimits
    from holodeck.providers.base import ModelProvider
    from holodeck.tools.executor import ToolResult
    from holodeck.tools.mcp.content import MCPToolResult
    from holodeck.tools.mcp.discovery import MCPToolInfo

__all__ = ["__version__"]
_MODULES: dict[str, str] = {}
"""Where the names are. One that ends with the name is what the name means."""


def _find_in(module: str) -> None:
    """Say that the names that were listed last are in this module."""
    _MODULES.update(dict.fromkeys(__all__[len(_MODULES) + 1 :], module))


__all__ += ["Agent", "load_agent"]
_find_in("holodeck.agents.agent")
__all__ += ["RunContext"]
_find_in("holodeck.agents.hooks")
__all__ += ["Elicitation"]
_find_in("holodeck.agents.hooks")
__all__ += ["AnswerCall", "AskPerson", "CallDecision", "ChangeArguments", "Hooks", "RefuseCall", "RequestedCall"]
_find_in("holodeck.agents.hooks")
__all__ += ["RunOptions"]
_find_in("holodeck.agents.agent_spec")
__all__ += ["runs"]
_find_in("holodeck.agents.runs")
__all__ += ["Session"]
_find_in("holodeck.agents.sessions")
__all__ += ["SessionInfo"]
_find_in("holodeck.agents.sessions")
__all__ += ["AgentTool"]
_find_in("holodeck.agents.tools.agent_tool")
__all__ += ["Tool", "tool"]
_find_in("holodeck.agents.tools.function_tool")
__all__ += ["MCPServer", "ServerInfo"]
_find_in("holodeck.agents.tools.mcp_server")
__all__ += ["LogMessage", "RemoteOptions", "ServerOptions", "StdioOptions"]
_find_in("holodeck.agents.tools.server_options")
__all__ += [
    "CassetteMismatchError",
    "ConfigError",
    "ExecutionError",
    "HoloDeckError",
    "MCPConfigError",
    "MCPConnectionError",
    "MCPError",
    "MCPProtocolError",
    "MCPTimeoutError",
    "MCPToolError",
    "MCPToolNotFoundError",
    "MissingTransportFieldError",
    "ModelError",
    "Problem",
    "RunCancelledError",
    "RunError",
    "RunFailedError",
    "RunIncompleteError",
    "RunPausedError",
    "ServerUnavailableError",
    "SessionConflictError",
    "StorageError",
    "ValidationError",
]
_find_in("holodeck.lib.errors")
__all__ += ["OAuthAuthorizationCode", "OAuthClientCredentials"]
_find_in("holodeck.models.auth")
__all__ += ["AudioContent", "BinaryContent", "ContentBlock", "ImageContent", "TextContent"]
_find_in("holodeck.models.items")
__all__ += [
    "AgentProgressed",
    "CallAdded",
    "Event",
    "Failure",
    "ItemFinished",
    "MissingServer",
    "ReasoningAdded",
    "RunFinished",
    "RunNoticed",
    "RunResult",
    "RunStarted",
    "StandInAnswered",
    "TextAdded",
    "ToolFinished",
    "ToolProgressed",
    "ToolStarted",
    "TurnCut",
    "TurnFinished",
    "TurnStarted",
]
_find_in("holodeck.models.events")
__all__ += [
    "Compaction",
    "FileData",
    "FunctionCall",
    "FunctionCallOutput",
    "ImageLink",
    "Item",
    "Message",
    "Reasoning",
    "Usage",
]
_find_in("holodeck.models.items")
__all__ += ["LLM"]
_find_in("holodeck.models.llm")
__all__ += [
    "AnswerVoided",
    "CallDelta",
    "ContextCompacted",
    "ModelAnswer",
    "ModelEvent",
    "ModelRequest",
    "ReasoningDelta",
    "StandInChosen",
    "TextDelta",
    "ToolChoice",
    "ToolSpec",
]
_find_in("holodeck.models.model_io")
__all__ += ["Price"]
_find_in("holodeck.models.price")
__all__ += ["RunLimits"]
_find_in("holodeck.models.run_limits")
__all__ += ["ModelProvider"]
_find_in("holodeck.providers.base")
__all__ += ["ToolResult"]
_find_in("holodeck.tools.executor")
__all__ += ["MCPToolResult"]
_find_in("holodeck.tools.mcp.content")
__all__ += ["MCPToolInfo"]
_find_in("holodeck.tools.mcp.discovery")

# Not for type checkers: for them every name would exist.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            raise AttributeError(f"module 'holodeck' has no attribute '{name}'")
        import importlib

        module = importlib.import_module(_MODULES[name])
        return module if _MODULES[name].endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    # For completion at a prompt, which does not see names that are not imported yet.
    return __all__

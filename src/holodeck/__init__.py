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
    from holodeck.agents.context import RunContext
    from holodeck.agents.elicitation import Elicitation
    from holodeck.agents.hooks import (
        AnswerCall,
        AskPerson,
        CallDecision,
        ChangeArguments,
        Hooks,
        RefuseCall,
        RequestedCall,
    )
    from holodeck.agents.run_options import RunOptions
    from holodeck.agents.sessions.session import Session
    from holodeck.agents.sessions.session_store import SessionInfo
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
    from holodeck.models.content import AudioContent, BinaryContent, ContentBlock, ImageContent, TextContent
    from holodeck.models.events import (
        CallAdded,
        Event,
        Failure,
        ItemFinished,
        MissingServer,
        ReasoningAdded,
        RunFinished,
        RunResult,
        RunStarted,
        TextAdded,
        ToolFinished,
        ToolProgressed,
        ToolStarted,
        TurnFinished,
        TurnStarted,
    )
    from holodeck.models.items import (
        Compaction,
        FileData,
        FunctionCall,
        FunctionCallOutput,
        ImageLink,
        Item,
        Message,
        Reasoning,
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

__all__ = [
    "LLM",
    "Agent",
    "AnswerCall",
    "AnswerVoided",
    "AskPerson",
    "AudioContent",
    "BinaryContent",
    "CallAdded",
    "CallDecision",
    "CallDelta",
    "CassetteMismatchError",
    "ChangeArguments",
    "Compaction",
    "ConfigError",
    "ContentBlock",
    "ContextCompacted",
    "Elicitation",
    "Event",
    "ExecutionError",
    "Failure",
    "FileData",
    "FunctionCall",
    "FunctionCallOutput",
    "HoloDeckError",
    "Hooks",
    "ImageContent",
    "ImageLink",
    "Item",
    "ItemFinished",
    "LogMessage",
    "MCPConfigError",
    "MCPConnectionError",
    "MCPError",
    "MCPProtocolError",
    "MCPServer",
    "MCPTimeoutError",
    "MCPToolError",
    "MCPToolInfo",
    "MCPToolNotFoundError",
    "MCPToolResult",
    "Message",
    "MissingServer",
    "MissingTransportFieldError",
    "ModelAnswer",
    "ModelError",
    "ModelEvent",
    "ModelProvider",
    "ModelRequest",
    "OAuthAuthorizationCode",
    "OAuthClientCredentials",
    "Price",
    "Problem",
    "Reasoning",
    "ReasoningAdded",
    "ReasoningDelta",
    "RefuseCall",
    "RemoteOptions",
    "RequestedCall",
    "RunCancelledError",
    "RunContext",
    "RunError",
    "RunFailedError",
    "RunFinished",
    "RunIncompleteError",
    "RunLimits",
    "RunOptions",
    "RunPausedError",
    "RunResult",
    "RunStarted",
    "ServerInfo",
    "ServerOptions",
    "ServerUnavailableError",
    "Session",
    "SessionConflictError",
    "SessionInfo",
    "StdioOptions",
    "StorageError",
    "TextAdded",
    "TextContent",
    "TextDelta",
    "Tool",
    "ToolChoice",
    "ToolFinished",
    "ToolProgressed",
    "ToolResult",
    "ToolSpec",
    "ToolStarted",
    "TurnFinished",
    "TurnStarted",
    "Usage",
    "ValidationError",
    "__version__",
    "load_agent",
    "runs",
    "tool",
]

_NAMES_OF_MODULES = {
    "holodeck.agents.agent": (
        "Agent",
        "load_agent",
    ),
    "holodeck.agents.context": ("RunContext",),
    "holodeck.agents.elicitation": ("Elicitation",),
    "holodeck.agents.tools.function_tool": (
        "Tool",
        "tool",
    ),
    "holodeck.agents.hooks": (
        "AnswerCall",
        "AskPerson",
        "CallDecision",
        "ChangeArguments",
        "Hooks",
        "RefuseCall",
        "RequestedCall",
    ),
    "holodeck.agents.tools.mcp_server": (
        "MCPServer",
        "ServerInfo",
    ),
    "holodeck.agents.run_options": ("RunOptions",),
    "holodeck.agents.tools.server_options": (
        "LogMessage",
        "RemoteOptions",
        "ServerOptions",
        "StdioOptions",
    ),
    "holodeck.agents.sessions.session": ("Session",),
    "holodeck.agents.sessions.session_store": ("SessionInfo",),
    "holodeck.lib.errors": (
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
    ),
    "holodeck.models.auth": (
        "OAuthAuthorizationCode",
        "OAuthClientCredentials",
    ),
    "holodeck.models.content": (
        "AudioContent",
        "BinaryContent",
        "ContentBlock",
        "ImageContent",
        "TextContent",
    ),
    "holodeck.models.events": (
        "CallAdded",
        "Event",
        "Failure",
        "ItemFinished",
        "MissingServer",
        "ReasoningAdded",
        "RunFinished",
        "RunResult",
        "RunStarted",
        "TextAdded",
        "ToolFinished",
        "ToolProgressed",
        "ToolStarted",
        "TurnFinished",
        "TurnStarted",
    ),
    "holodeck.models.items": (
        "Compaction",
        "FileData",
        "FunctionCall",
        "FunctionCallOutput",
        "ImageLink",
        "Item",
        "Message",
        "Reasoning",
        "Usage",
    ),
    "holodeck.models.llm": ("LLM",),
    "holodeck.models.model_io": (
        "AnswerVoided",
        "CallDelta",
        "ContextCompacted",
        "ModelAnswer",
        "ModelEvent",
        "ModelRequest",
        "ReasoningDelta",
        "TextDelta",
        "ToolChoice",
        "ToolSpec",
    ),
    "holodeck.models.price": ("Price",),
    "holodeck.models.run_limits": ("RunLimits",),
    "holodeck.providers.base": ("ModelProvider",),
    "holodeck.tools.executor": ("ToolResult",),
    "holodeck.tools.mcp.content": ("MCPToolResult",),
    "holodeck.tools.mcp.discovery": ("MCPToolInfo",),
}
# `runs` is a module.
_MODULES = {"runs": "holodeck.agents.runs"} | {
    name: module for module, names in _NAMES_OF_MODULES.items() for name in names
}

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

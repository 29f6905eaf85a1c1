"""The sections of `reference/python.md`: each public name is in one of them, beside what it is used with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from types import ModuleType

import holodeck
import holodeck.testing


@dataclass(frozen=True, kw_only=True)
class Section:
    """One task: `names` are public names of `module`, in the order of the page."""

    title: str
    about: str
    module: ModuleType = holodeck
    names: tuple[str, ...]


def _split(names: str) -> tuple[str, ...]:
    return tuple(names.split())


SECTIONS = (
    Section(
        title="Agents",
        about="An agent, its model, and agents that it asks.",
        names=_split("Agent load_agent AgentTool LLM Price __version__"),
    ),
    Section(
        title="Running and results",
        about="What a run is given and what comes out of it.",
        names=_split(
            "RunOptions RunLimits RunResult Usage Failure MissingServer Item Message FunctionCall FunctionCallOutput "
            "Reasoning Compaction FileData ImageLink"
        ),
    ),
    Section(
        title="Events",
        about="What `stream` yields.",
        names=_split(
            "Event RunStarted RunNoticed TurnStarted TextAdded ReasoningAdded CallAdded ItemFinished ToolStarted "
            "ToolProgressed ToolFinished AgentProgressed StandInAnswered TurnFinished TurnCut RunFinished"
        ),
    ),
    Section(
        title="Tools and servers",
        about="Functions and MCP servers.",
        names=_split(
            "Tool tool ToolResult ContentBlock TextContent ImageContent AudioContent BinaryContent MCPServer "
            "ServerOptions StdioOptions RemoteOptions OAuthAuthorizationCode OAuthClientCredentials ServerInfo "
            "MCPToolInfo MCPToolResult LogMessage"
        ),
    ),
    Section(
        title="Hooks and approvals",
        about="Code of yours that sees runs and calls, and decides.",
        names=_split(
            "Hooks RunContext RequestedCall CallDecision AnswerCall AskPerson ChangeArguments RefuseCall Elicitation"
        ),
    ),
    Section(title="Sessions", about="Conversations that go on later.", names=_split("Session SessionInfo")),
    Section(title="Durable runs", about="Runs that go on after a crash.", names=("runs",)),
    Section(
        title="The module runs",
        about="`from holodeck import runs`.",
        module=holodeck.runs,
        names=_split("RunRecord RunStatus RunStep list get list_steps stream resume resume_sync cancel"),
    ),
    Section(
        title="Models of your own",
        about="What a `ModelProvider` is asked, and yields.",
        names=_split(
            "ModelProvider ModelRequest ToolSpec ToolChoice ModelEvent TextDelta ReasoningDelta CallDelta "
            "ContextCompacted StandInChosen AnswerVoided ModelAnswer"
        ),
    ),
    Section(
        title="Testing",
        about="`holodeck.testing`: models and servers for tests.",
        module=holodeck.testing,
        names=_split(
            "ScriptedModel say call call_raw think finish fail spend wait PromptCache cassette OpenedCassette "
            "IdentityProvider "
            "FaultyMCPServer Fault Era Transport Journal Received ABANDONED stand_in stand_in_calls read_pids"
        ),
    ),
    Section(
        title="Errors",
        about="All of them are a `HoloDeckError`.",
        names=_split(
            "HoloDeckError ConfigError Problem ValidationError ExecutionError StorageError RunError RunFailedError "
            "RunIncompleteError RunCancelledError RunPausedError SessionConflictError CassetteMismatchError ModelError "
            "MCPError MCPConfigError MissingTransportFieldError MCPConnectionError ServerUnavailableError "
            "MCPTimeoutError MCPProtocolError MCPToolError MCPToolNotFoundError"
        ),
    ),
)


def require_one_section(sections: tuple[Section, ...], module: ModuleType) -> None:
    """Raise `ValueError` unless each public name of the module is in exactly one section."""
    listed = Counter(name for section in sections if section.module is module for name in section.names)
    listed.subtract(module.__all__)
    several = {name: 1 + count for name, count in listed.items() if count}
    if several:
        raise ValueError(f"python_sections.py: each public name of {module.__name__} is in one section, but {several}")

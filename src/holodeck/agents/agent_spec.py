"""`AgentSpec`: all that an agent in code is made of, as one frozen record. A changed agent has a changed copy of it.

`RunOptions` are the options of one run, as type checkers and `Agent.run` know them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pydantic
from typing_extensions import TypedDict, TypeForm

from holodeck.agents.conversation_items import GivenItem
from holodeck.agents.hooks import BuildInstructions, DepsT, Hooks, OnApproval, OnElicitation
from holodeck.agents.models import describe_problems, parse_model
from holodeck.agents.tools.function_tool import Tool
from holodeck.agents.tools.mcp_server import MCPServer
from holodeck.lib.errors import ConfigError
from holodeck.lib.record import record
from holodeck.models.llm import LLM
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.models.run_limits import RunLimits
from holodeck.models.tool import FunctionTool, MCPTool
from holodeck.providers.base import ModelProvider

if TYPE_CHECKING:
    from holodeck.agents.sessions import Session
    from holodeck.config.agent_loader import LoadedAgent

T = TypeVar("T")
ToolSource = Tool[..., Any] | MCPServer | Callable[..., Any]
"""What an agent takes as a tool: a function, one that `@tool` describes, or an MCP server with all of its tools."""


@record
class AgentSpec:
    """The parts of an agent. Its methods return changed copies, and raise `ConfigError`."""

    definition: LoadedAgent
    """The file, or the same made in code. The tools of the program are not in it."""
    model: ModelProvider | None = None
    """Model of the program, in place of the one in the definition."""
    functions: tuple[Tool[..., Any], ...] = ()
    servers: tuple[MCPServer, ...] = ()
    output: OutputType[Any] | None = None
    """What answers are converted to. None: they are texts."""
    build_instructions: BuildInstructions[Any] | None = None
    """Instructions of each run, in place of those in the definition."""
    deps_type: type[Any] = NoneType
    hooks: tuple[Hooks[Any], ...] = ()
    limits: RunLimits = RunLimits()
    on_approval: OnApproval[Any] | None = None
    on_elicitation: OnElicitation[Any] | None = None
    environ: Mapping[str, str] | None = None
    """Variables of a file. None: those of this process."""
    file: Path | None = None

    @property
    def name(self) -> str:
        return self.definition.agent.name

    @property
    def digest(self) -> str:
        """Digest of the parts, by which a resumed run notices that its agent has changed."""
        parts = [self.build_definition().agent.model_dump_json(), *(repr(each.spec) for each in self.functions)]
        return sha256("\0".join(parts).encode()).hexdigest()

    def with_keys(self, **keys: Any) -> AgentSpec:
        """Change keys of the definition."""
        agent = self.definition.agent
        define_agent(**{"name": agent.name, "model": agent.model} | keys)
        return replace(self, definition=replace(self.definition, agent=agent.model_copy(update=keys)))

    def with_instructions(self, instructions: str | BuildInstructions[Any] | None) -> AgentSpec:
        if callable(instructions):
            return replace(self.with_keys(instructions=None), build_instructions=instructions)
        return replace(self.with_keys(instructions=instructions), build_instructions=None)

    def with_model(self, model: str | LLM | ModelProvider) -> AgentSpec:
        llm, provider = parse_model(model)
        return replace(self.with_keys(model=llm), model=provider)

    def with_tools(self, tools: Sequence[ToolSource]) -> AgentSpec:
        """Change the tools of the program."""
        return replace(
            self,
            servers=tuple(each for each in tools if isinstance(each, MCPServer)),
            functions=tuple(_as_tool(each) for each in tools if not isinstance(each, MCPServer)),
        )

    def with_output(self, output_type: TypeForm[Any]) -> AgentSpec:
        return replace(self, output=None if output_type is str else OutputType(output_type))

    def check_limits(self, limits: RunLimits) -> None:
        if limits.cost is not None and self.definition.agent.model.effective_price is None:
            raise ConfigError(
                f"The agent '{self.name}' has a limit of cost, but its model has no price: give it an "
                "LLM(..., price=Price(input=..., output=...)), or 'price' of the model in its file."
            )

    def build_definition(self) -> LoadedAgent:
        """Return the definition with the servers of the program behind its own. Raises `ConfigError` for a name twice.

        The names of tools follow from those of the servers, so servers are not renamed.
        """
        loaded = self.definition
        tools = (*loaded.tools, *(each.definition for each in self.servers))
        names = [each.tool.name for each in tools if isinstance(each.tool, MCPTool)]
        functions = [each.tool.name for each in loaded.tools if isinstance(each.tool, FunctionTool)]
        _refuse_duplicates(names, "MCP servers", "MCPServer.stdio(..., name=...)")
        _refuse_duplicates([*functions, *(each.name for each in self.functions)], "functions", "tool(name=...)")
        agent = loaded.agent.model_copy(update={"tools": [each.tool for each in tools]})
        return replace(loaded, agent=agent, tools=tools)


def define_agent(**keys: Any) -> LoadedAgent:
    """Return the definition of an agent in code. Raises `ConfigError`."""
    from holodeck.config.agent_loader import LoadedAgent
    from holodeck.models.agent import Agent as AgentFile

    try:
        agent = AgentFile.model_validate(keys)
    except pydantic.ValidationError as error:
        raise ConfigError(f"The agent is defined wrongly: {describe_problems(error, keys)}") from None
    return LoadedAgent(agent=agent, path=Path.cwd() / "agent.yaml", tools=(), warnings=())


class OutputType(Generic[T]):
    """A type that the answers of an agent have. Raises `ConfigError` for one that JSON cannot describe."""

    def __init__(self, kind: TypeForm[T]) -> None:
        if inspect.isroutine(kind):
            raise ConfigError(f"'output_type' is the function {kind.__name__!r}: give a type.")
        try:
            self._adapter: pydantic.TypeAdapter[T] = pydantic.TypeAdapter(kind)
            self.schema: Mapping[str, Any] = self._adapter.json_schema()
        except pydantic.errors.PydanticUserError as error:
            raise ConfigError(f"'output_type' cannot be described to a model: {error.message}") from None

    def parse(self, text: str) -> T:
        """Convert an answer. Raises pydantic's `ValidationError`."""
        return self._adapter.validate_json(text)

    def find_problem(self, text: str) -> str | None:
        """Return why an answer cannot be converted, for the model; None if it can."""
        try:
            self.parse(text)
        except pydantic.ValidationError as error:
            return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'it'}: {each['msg']}" for each in error.errors())
        return None


def _refuse_duplicates(names: Sequence[str], kind: str, fix: str) -> None:
    found = [name for number, name in enumerate(names) if name in names[:number]]
    if found:
        raise ConfigError(f"Two {kind} of the agent are called '{found[0]}'. Give one another name: {fix}.")


def _as_tool(source: Tool[..., Any] | Callable[..., Any]) -> Tool[..., Any]:
    if isinstance(source, Tool):
        return source
    if callable(source):
        return Tool(source)
    raise ConfigError(f"{source!r} is no tool: give a function, or an MCPServer.")


class RunOptions(TypedDict, Generic[DepsT], total=False):
    """The options of one run."""

    deps: DepsT
    """The object that tools and hooks find in their context."""
    history: Sequence[GivenItem]
    """The conversation before the question: `history` of an earlier result, or dictionaries of role and content."""
    session: Session
    """The conversation that the run goes on with and is appended to, instead of `history`."""
    durable: bool
    """Whether each step is stored, so that `holodeck.runs.resume` can go on with the run after a crash."""
    functions: Sequence[ToolSpec]
    """Tools that the program runs itself: a call of one ends the run, which has it in `pending`."""
    tool_choice: ToolChoice
    """Whether the model may, must or must not call a tool."""
    parallel_tool_calls: bool
    """Whether the calls of one turn run at the same time."""
    run_id: str
    """Id of the run. Absent: a new one."""
    hooks: Sequence[Hooks[DepsT]]
    """Hooks of this run, after those of the agent."""
    limits: RunLimits
    """Limits of this run: each that is not None replaces that of the agent."""
    on_approval: OnApproval[DepsT]
    """Asks a person whether a call may run, in place of that of the agent."""
    on_elicitation: OnElicitation[DepsT]
    """Asks a person the question of a server, in place of that of the agent."""

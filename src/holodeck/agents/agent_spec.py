"""`AgentSpec`: all that an agent in code is made of, as one frozen record. A changed agent has a changed copy of it.

`RunOptions` are the options of one run, as type checkers and `Agent.run` know them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import pydantic
from typing_extensions import TypedDict, TypeForm

from holodeck.agents.conversation_items import GivenItem
from holodeck.agents.hooks import BuildInstructions, DepsT, Hooks, OnApproval, OnElicitation
from holodeck.agents.models import describe_problems, parse_model
from holodeck.agents.tools.agent_tool import AgentTool
from holodeck.agents.tools.function_tool import Tool
from holodeck.agents.tools.mcp_server import MCPServer
from holodeck.lib.errors import ConfigError
from holodeck.lib.limits import MAX_AGENT_DEPTH
from holodeck.lib.record import record
from holodeck.models.llm import LLM
from holodeck.models.model_io import ToolChoice, ToolSpec
from holodeck.models.run_limits import RunLimits
from holodeck.models.tool import FunctionTool, MCPTool
from holodeck.providers.base import ModelProvider

if TYPE_CHECKING:
    from holodeck.agents.agent import Agent
    from holodeck.agents.sessions import Session
    from holodeck.config.agent_loader import LoadedAgent

T = TypeVar("T")
ToolSource: TypeAlias = "Tool[..., Any] | MCPServer | Agent[Any, Any] | AgentTool | Callable[..., Any]"
"""What an agent takes as a tool: a function, one that `@tool` describes, an MCP server with all of its tools, or an
agent."""


@record
class AgentSpec:
    """The parts of an agent. Its methods return changed copies, and raise `ConfigError`."""

    definition: LoadedAgent
    """The file, or the same made in code. The tools of the program are not in it."""
    model: ModelProvider | None = None
    """Model of the program, in place of the one in the definition."""
    functions: tuple[Tool[..., Any], ...] = ()
    servers: tuple[MCPServer, ...] = ()
    agents: tuple[AgentTool, ...] = ()
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
        parts += [each.agent._spec.digest for each in self.agents]
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
        from holodeck.agents.agent import Agent

        if isinstance(tools, str | bytes | Mapping) or not isinstance(tools, Iterable):
            raise ConfigError(f"'tools' is {_describe(tools)}: give a list, as in tools=[...].")
        sources = [each.as_tool() if isinstance(each, Agent) else each for each in tools]
        agents = tuple(each for each in sources if isinstance(each, AgentTool))
        if max((each.agent._spec.depth for each in agents), default=0) >= MAX_AGENT_DEPTH:
            raise ConfigError(
                f"The agent '{self.name}' asks agents that ask agents, more than {MAX_AGENT_DEPTH} deep. "
                "Give an agent the tools that it needs, or fewer levels."
            )
        return replace(
            self,
            servers=tuple(each for each in sources if isinstance(each, MCPServer)),
            agents=agents,
            functions=tuple(_as_tool(each) for each in sources if not isinstance(each, MCPServer | AgentTool)),
        )

    @property
    def depth(self) -> int:
        """How many agents wait for each other at most: 1 for an agent that asks none."""
        return 1 + max((each.agent._spec.depth for each in self.agents), default=0)

    def with_output(self, output_type: TypeForm[Any]) -> AgentSpec:
        return replace(self, output=None if output_type is str else OutputType(output_type))

    def check_limits(self, limits: RunLimits) -> None:
        if not isinstance(limits, RunLimits):
            raise ConfigError(f"'limits' is {_describe(limits)}: give RunLimits(...), as in RunLimits(turns=3).")
        if limits.cost is None:
            return
        if self.definition.agent.model.effective_price is None:
            raise ConfigError(
                f"The agent '{self.name}' has a limit of cost, but its model has no price: give it an "
                "LLM(..., price=Price(input=..., output=...)), or 'price' of the model in its file."
            )
        for each in self.agents:
            # What it asks is paid from the same limit.
            each.agent._spec.check_limits(limits)

    def check_agents(self) -> None:
        for each in self.agents:
            if each.agent._spec.deps_type is not NoneType and self.deps_type is NoneType:
                raise ConfigError(
                    f"The agent '{each.agent.name}' needs deps, which it gets from the agent that asks it, and "
                    f"'{self.name}' has none: give '{self.name}' a deps_type, too."
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
        agents = [each.name for each in self.agents]
        _refuse_duplicates(agents, "agents among the tools", "Agent(name=...), or agent.as_tool(name=...)")
        functions += [each.name for each in self.functions]
        _refuse_duplicates([*functions, *agents], "tools", "agent.as_tool(name=...)")
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
        _require_type(kind)
        try:
            self._adapter: pydantic.TypeAdapter[T] = pydantic.TypeAdapter(kind)
            self.schema: Mapping[str, Any] = self._adapter.json_schema()
        except pydantic.errors.PydanticUserError as error:
            # Further sentences of pydantic are about its own settings.
            reason = error.message.split("\n")[0].split(". ")[0].rstrip(".")
            raise ConfigError(
                f"'output_type' cannot be described to a model: {reason}. "
                "Give a pydantic model, a dataclass, or a type of their like, such as list[int]."
            ) from None

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


def as_hooks(hooks: Sequence[Hooks[Any]]) -> tuple[Hooks[Any], ...]:
    """Return the hooks of a program. Raises `ConfigError` for what is no list of hooks."""
    if not isinstance(hooks, Iterable):
        raise ConfigError(f"'hooks' is {_describe(hooks)}: give a list, as in hooks=[...].")
    found = tuple(hooks)
    for each in found:
        if not isinstance(each, Hooks):
            raise ConfigError(f"{_describe(each)} is no hook: give an object of a subclass of Hooks.")
    return found


def check_callbacks(**callbacks: object) -> None:
    """Raise `ConfigError` for a callback that is no function."""
    for name, each in callbacks.items():
        if each is not None and not callable(each):
            raise ConfigError(f"'{name}' is {_describe(each)}: give a function.")


def _require_type(kind: object) -> None:
    if inspect.isroutine(kind):
        raise ConfigError(f"'output_type' is the function {kind.__name__!r}: give a type.")
    if isinstance(kind, list | tuple):
        union = " | ".join(each.__name__ if isinstance(each, type) else str(each) for each in kind)
        raise ConfigError(f"'output_type' is {_describe(kind)}: give a type. Did you mean {union}?")
    if isinstance(kind, Mapping | str | int | float):
        raise ConfigError(f"'output_type' is {_describe(kind)}: give a type, such as a pydantic model or list[int].")


def _describe(value: object) -> str:
    """Return what a value of the wrong type is, for an error: never its content, which may be secret."""
    if isinstance(value, type):
        return f"the class {value.__name__!r}"
    if inspect.isroutine(value):
        return f"the function {value.__name__!r}"
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"


def _refuse_duplicates(names: Sequence[str], kind: str, fix: str) -> None:
    found = [name for number, name in enumerate(names) if name in names[:number]]
    if found:
        raise ConfigError(f"Two {kind} of the agent are called '{found[0]}'. Give one another name: {fix}.")


def _as_tool(source: Tool[..., Any] | Callable[..., Any]) -> Tool[..., Any]:
    if isinstance(source, Tool):
        return source
    if callable(source):
        return Tool(source)
    raise ConfigError(f"{source!r} is no tool: give a function, an MCPServer or an Agent.")


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

"""`Agent`: a model with instructions and tools, made in code or from a file.

    agent = Agent("openai:gpt-5-mini", instructions="Answer in one sentence.", tools=[price, MCPServer.http(...)])
    result = await agent.run("What do three pens cost?")

An agent is a definition: making one starts nothing. A run opens the model and the servers that it needs and closes
them at its end. Inside `async with agent` (or `with agent`, for `run_sync`) they stay open from run to run. Runs of one
event loop share them; each event loop has its own.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Generic, Self, TypeVar, cast, overload

import pydantic
from typing_extensions import TypedDict, Unpack

from holodeck.agent_runner import AgentRunner
from holodeck.agents.context import DepsT, RunContext
from holodeck.agents.durable import RunQuestion, stream_durably
from holodeck.agents.event_loops.background_loop import run_in_background
from holodeck.agents.event_loops.shared_instance import SharedInstance
from holodeck.agents.hooked_run import HookedRun
from holodeck.agents.hooks import Hooks, OnApproval, OnElicitation
from holodeck.agents.models import BorrowedModel, parse_model
from holodeck.agents.output import OutputType
from holodeck.agents.run_options import RunOptions
from holodeck.agents.sessions.session import Session, stream_in_session
from holodeck.agents.sessions.session_store import Answerer
from holodeck.agents.tools.function_tool import Tool
from holodeck.agents.tools.mcp_server import MCPServer
from holodeck.agents.validation_text import describe_problems
from holodeck.cassettes.active import make_id
from holodeck.config.agent_loader import LoadedAgent
from holodeck.engine.steps import Steps
from holodeck.lib.errors import ConfigError, SessionConflictError
from holodeck.lib.escape import replace_surrogates
from holodeck.models.agent import Agent as AgentFile
from holodeck.models.events import Event, OutputT, RunFinished, RunResult
from holodeck.models.items import Item, text_message
from holodeck.models.llm import LLM
from holodeck.models.run_limits import RunLimits
from holodeck.models.tool import FunctionTool, MCPTool
from holodeck.providers.base import ModelProvider
from holodeck.runtime import build_runner, read_agent
from holodeck.tools.mcp.protocol.server_requests import Callbacks
from holodeck.tools.mcp.server_tools import ServerTools

T = TypeVar("T")
ToolSource = Tool[..., Any] | MCPServer | Callable[..., Any]
"""What an agent takes as a tool: a function, one that `@tool` describes, or an MCP server with all of its tools."""


class AgentChanges(TypedDict, total=False):
    """What `Agent.with_` can change, beside the `output_type`."""

    model: str | LLM | ModelProvider
    name: str
    instructions: str | None
    description: str | None
    tools: Sequence[ToolSource]
    hooks: Sequence[Hooks[Any]]
    limits: RunLimits
    on_approval: OnApproval[Any] | None
    on_elicitation: OnElicitation[Any] | None


class Agent(Generic[DepsT, OutputT]):
    """A model with instructions and tools. See `holodeck.agents.agent` for when its servers run."""

    def __init__(
        self,
        model: str | LLM | ModelProvider,
        *,
        name: str = "agent",
        instructions: str | None = None,
        description: str | None = None,
        tools: Sequence[ToolSource] = (),
        output_type: type[OutputT] = str,  # type: ignore[assignment] # the default of `OutputT`
        deps_type: type[DepsT] = NoneType,  # type: ignore[assignment] # the default of `DepsT`
        hooks: Sequence[Hooks[DepsT]] = (),
        limits: RunLimits | None = None,
        on_approval: OnApproval[DepsT] | None = None,
        on_elicitation: OnElicitation[DepsT] | None = None,
    ) -> None:
        """Raises `ConfigError` for a model, tool or type that cannot be used. Starts nothing.

        - `model`: `provider:name` such as `openai:gpt-5-mini`, an `LLM` with settings, or any `ModelProvider`, which
          the agent uses and does not close.
        - `tools`: functions, `Tool`s and `MCPServer`s.
        - `output_type`: what answers are converted to: a pydantic model, a dataclass, or another type that JSON has.
        - `deps_type`: the type of `deps`, which each run must then be given.
        - `hooks`: called before and after each run, turn and tool call.
        - `limits`: of each run.
        - `on_approval`, `on_elicitation`: ask a person whether a call may run, or the question of a server. Without
          them, the answer is no.
        """
        llm, self._model = parse_model(model)
        self._servers = tuple(each for each in tools if isinstance(each, MCPServer))
        self._tools = tuple(_as_tool(each) for each in tools if not isinstance(each, MCPServer))
        self._output = None if output_type is str else OutputType(output_type)
        self._deps_type = deps_type
        self._hooks = tuple(hooks)
        self._limits = limits or RunLimits()
        self._on_approval = on_approval
        self._on_elicitation = on_elicitation
        self._environ: Mapping[str, str] | None = None
        self._file: Path | None = None
        self._loaded = LoadedAgent(
            agent=_define(name=name, model=llm, instructions=instructions, description=description),
            path=Path.cwd() / "agent.yaml",
            tools=(),
            warnings=(),
        )
        self._check_limits(self._limits)
        self._add_servers()
        self._share_runners()

    def _add_servers(self) -> None:
        """Put the servers of the program behind those of the file. Raises `ConfigError` for a name that occurs twice.

        The names of tools follow from those of the servers, so servers are not renamed.
        """
        loaded = self._loaded
        tools = (*loaded.tools, *(each.definition for each in self._servers))
        names = [each.tool.name for each in tools if isinstance(each.tool, MCPTool)]
        functions = [each.tool.name for each in loaded.tools if isinstance(each.tool, FunctionTool)]
        _refuse_duplicates(names, "MCP servers", "MCPServer.stdio(..., name=...)")
        _refuse_duplicates([*functions, *(each.name for each in self._tools)], "functions", "tool(name=...)")
        agent = loaded.agent.model_copy(update={"tools": [each.tool for each in tools]})
        self._loaded = replace(loaded, agent=agent, tools=tools)

    def _share_runners(self) -> None:
        self._lent: dict[AgentRunner, list[tuple[MCPServer, Callbacks]]] = {}
        self._runners: SharedInstance[AgentRunner] = SharedInstance(self._close_runner)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str | LLM | ModelProvider | None = None,
        tools: Sequence[ToolSource] = (),
        output_type: type[OutputT] = str,  # type: ignore[assignment] # the default of `OutputT`
        deps_type: type[DepsT] = NoneType,  # type: ignore[assignment] # the default of `DepsT`
        hooks: Sequence[Hooks[DepsT]] = (),
        limits: RunLimits | None = None,
        on_approval: OnApproval[DepsT] | None = None,
        on_elicitation: OnElicitation[DepsT] | None = None,
        environ: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> Agent[DepsT, OutputT]:
        """Make an agent from its file. Raises `ConfigError` with every problem of the file.

        `model` replaces the one in the file, `output_type` the `response_format`; `tools` are added to those of the
        file. `hooks`, `limits`, `on_approval`, `on_elicitation`: see the constructor. `environ`: variables instead of
        those of this process. `home`: folder of the user's shared settings.
        """
        loaded = read_agent(path, environ=environ, home=home, has_model=model is not None)
        agent = Agent(
            loaded.agent.model if model is None else model,
            tools=tools,
            name=loaded.agent.name,
            output_type=output_type,
            deps_type=deps_type,
            hooks=hooks,
            limits=limits,
            on_approval=on_approval,
            on_elicitation=on_elicitation,
        )
        agent._environ = environ
        agent._file = loaded.path.absolute()
        changed = loaded.agent.model_copy(update={"model": agent._loaded.agent.model})
        agent._loaded = replace(loaded, agent=changed)
        agent._add_servers()
        return agent

    @overload
    def with_(self, **changes: Unpack[AgentChanges]) -> Self: ...
    @overload
    def with_(self, *, output_type: type[T], **changes: Unpack[AgentChanges]) -> Agent[DepsT, T]: ...
    def with_(self, *, output_type: type[Any] | None = None, **changes: Unpack[AgentChanges]) -> Agent[Any, Any]:
        """A copy of the agent with these changes. `tools` replaces those of `tools`; those of a file stay."""
        unknown = changes.keys() - AgentChanges.__annotations__.keys()
        if unknown:
            raise TypeError(f"An agent has no '{min(unknown)}' to change.")
        changed = copy.copy(self)
        changed._share_runners()
        agent = self._loaded.agent
        if "model" in changes:
            llm, changed._model = parse_model(changes["model"])
            agent = agent.model_copy(update={"model": llm})
        texts: dict[str, Any] = {**changes}
        texts = {key: value for key, value in texts.items() if key in ("name", "instructions", "description")}
        _define(**{"name": self.name, "model": agent.model} | texts)
        changed._loaded = replace(self._loaded, agent=agent.model_copy(update=texts))
        changed._hooks = tuple(changes.get("hooks", self._hooks))
        changed._limits = changes.get("limits", self._limits)
        changed._on_approval = changes.get("on_approval", self._on_approval)
        changed._on_elicitation = changes.get("on_elicitation", self._on_elicitation)
        changed._check_limits(changed._limits)
        if output_type is not None:
            changed._output = None if output_type is str else OutputType(output_type)
        if "tools" in changes:
            tools, own = changes["tools"], {id(each.definition) for each in self._servers}
            changed._servers = tuple(each for each in tools if isinstance(each, MCPServer))
            changed._tools = tuple(_as_tool(each) for each in tools if not isinstance(each, MCPServer))
            of_file = tuple(each for each in self._loaded.tools if id(each) not in own)
            changed._loaded = replace(changed._loaded, tools=of_file)
            changed._add_servers()
        return changed

    def to_yaml(self) -> str:
        """The agent as an agent file for the current folder, which `from_file` reads to an equal agent.

        Keys, tokens, headers and variables are references such as `${API_KEY}`, whose names are in its first line. An
        `output_type` becomes the `response_format`. Raises `ConfigError` with everything that a file cannot say.
        """
        from holodeck.agents.agent_yaml import AgentWriter

        writer = AgentWriter(Path.cwd())
        if self._model is not None:
            writer.problems.append(f"the model {self._model.name!r}, which is an object of the program.")
        if self._deps_type is not NoneType:
            writer.problems.append("the 'deps_type'.")
        if self._hooks:
            writer.problems.append("the hooks, which are code of the program.")
        if replace(self._limits, turns=None) != RunLimits():
            writer.problems.append("limits other than that of turns.")
        loaded = self._loaded
        if self._limits.turns is not None:
            loaded = replace(loaded, agent=loaded.agent.model_copy(update={"max_turns": self._limits.turns}))
        return writer.write(
            loaded,
            response_format=None if self._output is None else self._output.schema,
            servers=self._servers,
            functions=self._tools,
        )

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self._loaded.agent.name

    @property
    def tools(self) -> tuple[Tool[..., Any] | MCPServer, ...]:
        """The functions and MCP servers that the program gave; those of a file are not among them."""
        return (*self._tools, *self._servers)

    async def run(self, question: str | Sequence[Item], **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutputT]:
        """Run to the end and return the result: `result.output` is the answer."""
        async with aclosing(self.stream(question, **options)) as events:
            async for event in events:
                if isinstance(event, RunFinished):
                    return event.result
        raise RuntimeError("a run always finishes")

    def run_sync(self, question: str | Sequence[Item], **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutputT]:
        """Do as `run` does, and wait for the result, also where an event loop runs already, as in a notebook."""
        return run_in_background(self.run(question, **options))

    async def stream(
        self, question: str | Sequence[Item], **options: Unpack[RunOptions[DepsT]]
    ) -> AsyncGenerator[Event[OutputT], None]:
        """Run and yield the events as they happen, `RunFinished` last. Closing the iterator cancels the run."""
        self._check_options(options)
        asked = (
            (text_message("user", replace_surrogates(question)),)
            if isinstance(question, str)
            else _check_items("question", question)
        )
        run = RunQuestion(id=options.get("run_id") or make_id("run"), question=asked)
        session, history = options.get("session"), options.get("history", ())
        if session is None:
            stream = self._start_run(replace(run, history=_check_items("history", history)), options)
        elif history:
            raise ConfigError("A run has a 'session' or a 'history', not both: a session is the history of its runs.")
        else:
            stream = self._stream_in_session(session, run, options)
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    def _stream_in_session(
        self, session: Session, run: RunQuestion, options: RunOptions[DepsT]
    ) -> AsyncGenerator[Event[OutputT], None]:
        by = Answerer(agent=self.name, file="" if self._file is None else str(self._file))

        def start_run(items: Sequence[Item]) -> AsyncGenerator[Event[OutputT], None]:
            if run.is_resumed and run.history != tuple(items):
                raise SessionConflictError(
                    f"The session '{session.id}' is not as it was when {run.id} started. Go on with the run without "
                    "the session: its result has the conversation in 'history'."
                )
            return self._start_run(replace(run, history=tuple(items)), options)

        return stream_in_session(session, run.question, start_run, by=by)

    async def _start_run(self, run: RunQuestion, options: RunOptions[DepsT]) -> AsyncGenerator[Event[OutputT], None]:
        """Open the runner, run, and yield the events."""
        runner = self._acquire_runner()
        open_stream = partial(self._open_stream, runner, run, options)
        is_durable = options.get("durable", False) or run.is_resumed
        try:
            stream = stream_durably(self.name, self._digest, run, open_stream) if is_durable else open_stream()
            with _trace_run():
                async with aclosing(stream) as events:
                    async for event in events:
                        yield cast("Event[OutputT]", event)
        finally:
            await self._release_runner()

    async def _resume_run(self, run: RunQuestion, options: RunOptions[DepsT]) -> AsyncGenerator[Event[OutputT], None]:
        """Go on with a durable run, and yield its events from the start. `holodeck.runs` does so."""
        self._check_options(options)
        session = options.get("session")
        stream = self._start_run(run, options) if session is None else self._stream_in_session(session, run, options)
        async with aclosing(stream) as events:
            async for event in events:
                yield event

    @property
    def _digest(self) -> str:
        """Digest of what the agent is made of, by which a resumed run notices that it has changed."""
        parts = [self._loaded.agent.model_dump_json(), *(repr(each.spec) for each in self._tools)]
        return sha256("\0".join(parts).encode()).hexdigest()

    def _open_stream(
        self, runner: AgentRunner, run: RunQuestion, options: RunOptions[DepsT], steps: Steps | None = None
    ) -> AsyncGenerator[Event, None]:
        """The events of a run with these options. `steps`: carries out the turns and calls of a durable run."""
        hooked = self._build_run(run.id, options)
        stream = runner.stream(
            run.question,
            history=run.history,
            functions=options.get("functions", ()),
            tool_choice=options.get("tool_choice"),
            parallel_tool_calls=options.get("parallel_tool_calls", True),
            run_id=run.id,
            limits=self._limits.override(options.get("limits", RunLimits())),
            steps=steps,
            interceptor=hooked,
        )
        return cast("AsyncGenerator[Event, None]", hooked.follow(stream, self._with_output))

    def _build_run(self, run_id: str, options: RunOptions[DepsT]) -> HookedRun:
        return HookedRun(
            RunContext(deps=options.get("deps"), run_id=run_id, agent=self.name),
            tools=self._tools,
            functions=options.get("functions", ()),
            hooks=(*self._hooks, *options.get("hooks", ())),
            on_approval=options.get("on_approval", self._on_approval),
            on_elicitation=options.get("on_elicitation", self._on_elicitation),
        )

    def _check_options(self, options: RunOptions[DepsT]) -> None:
        """Raise `TypeError` for an option that does not exist, and `ConfigError` for one that is missing."""
        unknown = sorted(options.keys() - RunOptions.__optional_keys__)
        if unknown:
            known = ", ".join(sorted(RunOptions.__optional_keys__))
            raise TypeError(f"A run has no option '{unknown[0]}'. Options: {known}.")
        if self._deps_type is not NoneType and "deps" not in options:
            kind = getattr(self._deps_type, "__name__", self._deps_type)
            raise ConfigError(
                f"The agent '{self.name}' has the deps_type {kind}: give the run such an object, "
                "as in run(question, deps=...)."
            )
        self._check_limits(options.get("limits", RunLimits()))

    def _check_limits(self, limits: RunLimits) -> None:
        if limits.cost is not None and self._loaded.agent.model.price is None:
            raise ConfigError(
                f"The agent '{self.name}' has a limit of cost, but its model has no price: give it an "
                "LLM(..., price=Price(input=..., output=...)), or 'price' of the model in its file."
            )

    def _with_output(self, event: Event) -> Event[OutputT]:
        """The event; the result of the last one with its output converted."""
        if self._output is None or not isinstance(event, RunFinished) or event.result.status != "completed":
            return cast("Event[OutputT]", event)
        parsed = self._output.parse(event.result.text)
        result = replace(cast("RunResult[OutputT]", event.result), parsed_output=parsed, is_parsed=True)
        return RunFinished(result=result)

    def _acquire_runner(self) -> AgentRunner:
        """The runner of this event loop. `_release_runner` must follow."""
        return self._runners.acquire(self._build_runner)

    async def _release_runner(self) -> None:
        await self._runners.release()

    def _build_runner(self) -> AgentRunner:
        loaded = self._loaded
        if self._output is not None:
            agent = loaded.agent.model_copy(update={"response_format": dict(self._output.schema)})
            loaded = replace(loaded, agent=agent)
        runner = build_runner(
            loaded,
            model=None if self._model is None else BorrowedModel(self._model),
            environ=self._environ,
            # A run may bring a callback for questions when its servers run already.
            callbacks=Callbacks(has_peers=True),
            find_output_problem=None if self._output is None else self._output.find_problem,
        )
        # The connections of the program's servers are those of its `MCPServer` objects, which others may use as well.
        built = runner.mcp.servers
        self._lent[runner] = [(server, built[server.name].callbacks) for server in self._servers]
        plugins = {server.name: server._lend(callbacks) for server, callbacks in self._lent[runner]}
        runner.mcp.use_servers({name: ServerTools(each, is_borrowed=True) for name, each in plugins.items()})
        return runner

    async def _close_runner(self, runner: AgentRunner) -> None:
        """Close the runner, then give back the connections of the program's servers."""
        try:
            await runner.close()
        finally:
            lent = self._lent.pop(runner)
            for server, callbacks in lent:
                await server._take_back(callbacks)

    async def __aenter__(self) -> Self:
        """Keep the model and the servers open until the end of the block. They start when they are first needed."""
        self._acquire_runner()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._release_runner()

    def __enter__(self) -> Self:
        """The same for `run_sync`."""
        return run_in_background(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        run_in_background(self.__aexit__(kind, error, traceback))


def _trace_run() -> AbstractContextManager[None]:
    """Trace a run with the OpenTelemetry of the application, if it uses that: it is not imported here."""
    if "opentelemetry.trace" not in sys.modules:
        return nullcontext()
    from holodeck.telemetry import trace_to_application

    return trace_to_application()


def _define(**keys: Any) -> AgentFile:
    """The definition of an agent. Raises `ConfigError`."""
    try:
        return AgentFile.model_validate(keys)
    except pydantic.ValidationError as error:
        raise ConfigError(f"The agent is defined wrongly: {describe_problems(error, keys)}") from None


def _build_question(question: str | Sequence[Item]) -> tuple[Item, ...]:
    if isinstance(question, str):
        return (text_message("user", replace_surrogates(question)),)
    return _check_items("question", question)


def _check_items(name: str, items: Sequence[Item]) -> tuple[Item, ...]:
    """Return the items as a tuple. Raises `ConfigError` for what is none: providers would leave it out."""
    for index, item in enumerate(items):
        if not isinstance(item, Item):
            raise ConfigError(
                f"{name}[{index}] is a {type(item).__name__}, which is no item of a conversation. "
                "Did you mean history=result.history, of the run before?"
            )
    return tuple(items)


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


load_agent = Agent.from_file

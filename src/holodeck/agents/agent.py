"""`Agent`: a model with instructions and tools, made in code or from a file.

    agent = Agent("openai:gpt-5-mini", instructions="Answer in one sentence.", tools=[price, MCPServer.http(...)])
    result = await agent.run("What do three pens cost?")

An agent is a definition: making one starts nothing. A run opens the model and the servers that it needs and closes
them at its end. Inside `async with agent` (or `with agent`, for `run_sync`) they stay open from run to run. Runs of one
event loop share them; each event loop has its own. What only a run needs is imported by the first one.
"""

from __future__ import annotations

import copy
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import NoneType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, cast, overload

from typing_extensions import TypedDict, TypeForm, TypeVar, Unpack

from holodeck.agents.agent_spec import AgentSpec, RunOptions, ToolSource, as_hooks, check_callbacks, define_agent
from holodeck.agents.conversation_items import GivenItem, read_items, read_question
from holodeck.agents.event_loops import SharedInstance, close_in_background, iterate_in_background, run_in_background
from holodeck.agents.hooks import BuildInstructions, DepsT, Hooks, OnApproval, OnElicitation, RunContext
from holodeck.agents.models import BorrowedModel, parse_model
from holodeck.agents.tools.agent_tool import AgentTool
from holodeck.agents.tools.function_tool import Tool
from holodeck.agents.tools.mcp_server import MCPServer
from holodeck.cassettes.active import make_id
from holodeck.lib.errors import ConfigError, SessionConflictError
from holodeck.models.events import Event, OutputT, RunFinished, RunResult, TextAdded
from holodeck.models.items import Item
from holodeck.models.llm import LLM
from holodeck.models.run_limits import RunLimits
from holodeck.providers.base import ModelProvider

if TYPE_CHECKING:
    from holodeck.agent_runner import AgentRunner
    from holodeck.agents.durable import RunQuestion
    from holodeck.agents.hooked_run import HookedRun
    from holodeck.agents.sessions import Session
    from holodeck.engine.steps import Steps
    from holodeck.tools.executor import ToolCall
    from holodeck.tools.mcp.protocol.server_requests import Callbacks

T = TypeVar("T")
# Of `from_file`: type checkers take those of a class that is named without them for their defaults.
FileDepsT = TypeVar("FileDepsT", default=None)
FileOutputT = TypeVar("FileOutputT", default=str)


class AgentChanges(TypedDict, total=False):
    """The parts that `Agent.with_` can change, beside the `output_type`."""

    model: str | LLM | ModelProvider
    name: str
    instructions: str | BuildInstructions[Any] | None
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
        instructions: str | BuildInstructions[DepsT] | None = None,
        description: str | None = None,
        tools: Sequence[ToolSource] = (),
        output_type: TypeForm[OutputT] = str,  # type: ignore[assignment] # the default of `OutputT`
        deps_type: type[DepsT] = NoneType,  # type: ignore[assignment] # the default of `DepsT`
        hooks: Sequence[Hooks[DepsT]] = (),
        limits: RunLimits | None = None,
        on_approval: OnApproval[DepsT] | None = None,
        on_elicitation: OnElicitation[DepsT] | None = None,
    ) -> None:
        """Define the agent; nothing is started. Raises `ConfigError` for a model, tool or type that cannot be used.

        - `model`: `provider:name` such as `openai:gpt-5-mini`, an `LLM` with settings, or any `ModelProvider`, which
          the agent uses and does not close.
        - `instructions`: a text, or a function that returns it for the `RunContext` of each run.
        - `tools`: functions, `Tool`s, `MCPServer`s, and other agents, which the model then asks.
        - `output_type`: what answers are converted to: a pydantic model, a dataclass, `list[City]`, `int`, an enum,
          `City | None`: every type that JSON has.
        - `deps_type`: the type of `deps`, which each run must then be given.
        - `hooks`: called before and after each run, turn and tool call.
        - `limits`: of each run.
        - `on_approval`, `on_elicitation`: ask a person whether a call may run, or the question of a server. Without
          them, the answer is no.
        """
        llm, provider = parse_model(model)
        spec = AgentSpec(
            definition=define_agent(name=name, model=llm, description=description),
            model=provider,
            deps_type=deps_type,
            hooks=as_hooks(hooks),
            limits=limits or RunLimits(),
            on_approval=on_approval,
            on_elicitation=on_elicitation,
        )
        self._use(spec.with_instructions(instructions).with_tools(tools).with_output(output_type))

    def _use(self, spec: AgentSpec) -> None:
        """Be the agent of this spec, with runners of its own. Raises `ConfigError` if the spec cannot be used."""
        spec.check_limits(spec.limits)
        spec.check_agents()
        check_callbacks(on_approval=spec.on_approval, on_elicitation=spec.on_elicitation)
        self._spec = spec
        self._loaded = spec.build_definition()
        self._lent: dict[AgentRunner, list[tuple[MCPServer, Callbacks]]] = {}
        self._runners: SharedInstance[AgentRunner] = SharedInstance(self._close_runner)

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        model: str | LLM | ModelProvider | None = None,
        tools: Sequence[ToolSource] = (),
        output_type: TypeForm[FileOutputT] = str,  # type: ignore[assignment] # the default of `FileOutputT`
        deps_type: type[FileDepsT] = NoneType,  # type: ignore[assignment] # the default of `FileDepsT`
        hooks: Sequence[Hooks[FileDepsT]] = (),
        limits: RunLimits | None = None,
        on_approval: OnApproval[FileDepsT] | None = None,
        on_elicitation: OnElicitation[FileDepsT] | None = None,
        environ: Mapping[str, str] | None = None,
        home: Path | None = None,
    ) -> Agent[FileDepsT, FileOutputT]:
        """Make an agent from its file. Raises `ConfigError` with every problem of the file.

        `model` replaces the one in the file, `output_type` the `response_format`; `tools` are added to those of the
        file. `hooks`, `limits`, `on_approval`, `on_elicitation`: see the constructor. `environ`: variables instead of
        those of this process. `home`: folder of the user's shared settings.
        """
        from holodeck.runtime import read_agent

        loaded = read_agent(path, environ=environ, home=home, has_model=model is not None)
        spec = AgentSpec(
            definition=loaded,
            deps_type=deps_type,
            hooks=as_hooks(hooks),
            limits=limits or RunLimits(),
            on_approval=on_approval,
            on_elicitation=on_elicitation,
            environ=environ,
            file=loaded.path.absolute(),
        )
        spec = spec if model is None else spec.with_model(model)
        agent: Agent[FileDepsT, FileOutputT] = Agent.__new__(Agent)
        agent._use(spec.with_tools(tools).with_output(output_type))
        return agent

    @overload
    def with_(self, **changes: Unpack[AgentChanges]) -> Self: ...
    @overload
    def with_(self, *, output_type: TypeForm[T], **changes: Unpack[AgentChanges]) -> Agent[DepsT, T]: ...
    def with_(self, *, output_type: TypeForm[Any] | None = None, **changes: Unpack[AgentChanges]) -> Agent[Any, Any]:
        """Return a copy of the agent with these changes. `tools` replaces those of `tools`; those of a file stay."""
        unknown = changes.keys() - AgentChanges.__annotations__.keys()
        if unknown:
            raise TypeError(f"An agent has no '{min(unknown)}' to change.")
        spec = self._spec if "model" not in changes else self._spec.with_model(changes["model"])
        rest: dict[str, Any] = {**changes}
        keys = {key: rest.pop(key) for key in ("name", "description") if key in rest}
        spec = spec.with_keys(**keys) if keys else spec
        spec = spec.with_instructions(rest.pop("instructions")) if "instructions" in rest else spec
        spec = spec if output_type is None else spec.with_output(output_type)
        spec = spec.with_tools(rest.pop("tools")) if "tools" in rest else spec
        rest.pop("model", None)
        if "hooks" in rest:
            rest["hooks"] = as_hooks(rest["hooks"])
        changed = copy.copy(self)
        changed._use(replace(spec, **rest))
        return changed

    def to_yaml(self) -> str:
        """Return the agent as an agent file for the current folder, which `from_file` reads to an equal agent.

        Keys, tokens, headers and variables are references such as `${API_KEY}`, whose names are in its first line. An
        `output_type` becomes the `response_format`. Raises `ConfigError` with everything that a file cannot say.
        """
        from holodeck.agents.agent_yaml import write_agent

        return write_agent(self._spec, self._loaded)

    @property
    def name(self) -> str:
        """Name of the agent."""
        return self._spec.name

    @property
    def description(self) -> str | None:
        """Purpose of the agent, for people, and for the models of agents that may ask it."""
        return self._spec.definition.agent.description

    @property
    def tools(self) -> tuple[Tool[..., Any] | MCPServer | AgentTool, ...]:
        """The functions, MCP servers and agents that the program gave; those of a file are not among them."""
        return (*self._spec.functions, *self._spec.servers, *self._spec.agents)

    def as_tool(self, *, name: str | None = None, description: str | None = None) -> AgentTool:
        """Return the agent as a tool of another one, with this name and description instead of its own.

        `tools=[agent]` is the same as `tools=[agent.as_tool()]`.
        """
        return AgentTool(self, name=name, description=description)

    def __repr__(self) -> str:
        llm = self._spec.definition.agent.model
        named = f"{llm.provider}:{llm.name}" if llm.name else str(llm.provider)
        shown = named if self._spec.model is None else self._spec.model.name
        return f"Agent({shown!r}, name={self.name!r})"

    async def run(
        self, question: str | Sequence[GivenItem], **options: Unpack[RunOptions[DepsT]]
    ) -> RunResult[OutputT]:
        """Run to the end and return the result: `result.output` is the answer.

        `question`: a text, or items: messages, or dictionaries of role and content.
        """
        async with aclosing(self._stream(question, options, is_streamed=False)) as events:
            async for event in events:
                if isinstance(event, RunFinished):
                    return event.result
        raise RuntimeError("a run always finishes")

    def run_sync(self, question: str | Sequence[GivenItem], **options: Unpack[RunOptions[DepsT]]) -> RunResult[OutputT]:
        """Do as `run` does, and wait for the result, also where an event loop runs already, as in a notebook."""
        return run_in_background(self.run(question, **options))

    async def stream(
        self, question: str | Sequence[GivenItem], **options: Unpack[RunOptions[DepsT]]
    ) -> AsyncGenerator[Event[OutputT], None]:
        """Run and yield the events as they happen, `RunFinished` last. Closing the iterator cancels the run."""
        async with aclosing(self._stream(question, options, is_streamed=True)) as events:
            async for event in events:
                yield event

    def stream_sync(
        self, question: str | Sequence[GivenItem], **options: Unpack[RunOptions[DepsT]]
    ) -> Generator[Event[OutputT], None, None]:
        """Do as `stream` does, for code without an event loop. Closing the generator cancels the run."""
        return iterate_in_background(self.stream(question, **options))

    async def stream_text(
        self, question: str | Sequence[GivenItem], **options: Unpack[RunOptions[DepsT]]
    ) -> AsyncGenerator[str, None]:
        """Run and yield the text of the model as it comes. Closing the iterator cancels the run.

        At the end, raises a `RunError` with the result, unless the run is completed.
        """
        async with aclosing(self._stream(question, options, is_streamed=True)) as events:
            async for event in events:
                if isinstance(event, TextAdded):
                    yield event.text
                elif isinstance(event, RunFinished):
                    event.result.raise_for_status()

    def stream_text_sync(
        self, question: str | Sequence[GivenItem], **options: Unpack[RunOptions[DepsT]]
    ) -> Generator[str, None, None]:
        """Do as `stream_text` does, for code without an event loop. Closing the generator cancels the run."""
        return iterate_in_background(self.stream_text(question, **options))

    async def _stream(
        self, question: str | Sequence[GivenItem], options: RunOptions[DepsT], *, is_streamed: bool
    ) -> AsyncGenerator[Event[OutputT], None]:
        from holodeck.agents.durable import RunQuestion
        from holodeck.agents.sessions import require_session

        self._check_options(options)
        asked = read_question(question)
        session, history = options.get("session"), options.get("history", ())
        if session is not None:
            require_session(session)
        if session is not None and history:
            raise ConfigError("A run has a 'session' or a 'history', not both: a session is the history of its runs.")
        if not asked and not history and session is None:
            raise ConfigError("'question' is empty, and there is no history to go on with.")
        run = RunQuestion(
            id=options.get("run_id") or make_id("run"), question=asked, history=read_items("history", history)
        )
        async with self._open_run(run, options, is_streamed=is_streamed) as events:
            async for event in events:
                yield event

    async def _answer_call(
        self, caller: HookedRun, question: str, call: ToolCall
    ) -> AsyncGenerator[Event[OutputT], None]:
        """Run for a call of another agent, with the deps and callbacks of its run, and yield the events."""
        runner = self._acquire_runner()
        try:
            hooked = self._build_run(make_id("run"), {"deps": caller.deps}, caller)
            built = runner.build_run(
                question,
                run_id=hooked.id,
                limits=self._spec.limits,
                interceptor=hooked,
                is_streamed=call.run is None or call.run.is_streamed,
                caller=call.run,
            )
            async with aclosing(hooked.follow(built.stream(), self._with_output)) as events:
                async for event in events:
                    yield event
        finally:
            await self._release_runner()

    async def _resume_run(self, run: RunQuestion, options: RunOptions[DepsT]) -> AsyncGenerator[Event[OutputT], None]:
        """Go on with a durable run, and yield its events from the start. `holodeck.runs` does so."""
        self._check_options(options)
        async with self._open_run(run, options) as events:
            async for event in events:
                yield event

    @asynccontextmanager
    async def _open_run(
        self, run: RunQuestion, options: RunOptions[DepsT], *, is_streamed: bool = True
    ) -> AsyncIterator[AsyncGenerator[Event[OutputT], None]]:
        """Open the runner and a run with these options, which starts when its first event is asked for."""
        from holodeck.agents.sessions import Answerer, stream_in_session

        runner, session = self._acquire_runner(), options.get("session")
        open_stream = partial(self._open_stream, runner, options, is_streamed=is_streamed)
        try:
            if session is None:
                stream = open_stream(run)
            else:
                by = Answerer(agent=self.name, file=str(self._spec.file or ""))
                stream = stream_in_session(
                    session, run.question, lambda items: open_stream(_go_on_with(session, items, run)), by=by
                )
            with _trace_run():
                async with aclosing(stream) as events:
                    yield events
        finally:
            await self._release_runner()

    def _open_stream(
        self, runner: AgentRunner, options: RunOptions[DepsT], run: RunQuestion, *, is_streamed: bool
    ) -> AsyncGenerator[Event[OutputT], None]:
        """Return the events of a run, each step of which is stored if it is durable."""
        from holodeck.agents.durable import stream_durably

        def start_run(steps: Steps | None = None) -> AsyncGenerator[Event, None]:
            hooked = self._build_run(run.id, options)
            built = runner.build_run(
                run.question,
                history=run.history,
                functions=options.get("functions", ()),
                tool_choice=options.get("tool_choice"),
                parallel_tool_calls=options.get("parallel_tool_calls", True),
                run_id=run.id,
                limits=self._spec.limits.override(options.get("limits", RunLimits())),
                steps=steps,
                interceptor=hooked,
                is_streamed=is_streamed,
            )
            return cast("AsyncGenerator[Event, None]", hooked.follow(built.stream(), self._with_output))

        is_durable = options.get("durable", False) or run.is_resumed
        stream = stream_durably(self.name, self._spec.digest, run, start_run) if is_durable else start_run()
        return cast("AsyncGenerator[Event[OutputT], None]", stream)

    def _build_run(self, run_id: str, options: RunOptions[DepsT], caller: HookedRun | None = None) -> HookedRun:
        from holodeck.agents.hooked_run import HookedRun

        return HookedRun(
            RunContext(deps=options.get("deps"), run_id=run_id, agent=self.name),
            tools=self._spec.functions,
            functions=options.get("functions", ()),
            instructions=self._spec.build_instructions,
            hooks=(*self._spec.hooks, *options.get("hooks", ())),
            on_approval=options.get("on_approval", self._spec.on_approval),
            on_elicitation=options.get("on_elicitation", self._spec.on_elicitation),
            agents=self._spec.agents,
            caller=caller,
        )

    def _check_options(self, options: RunOptions[DepsT]) -> None:
        """Raise `TypeError` for an option that does not exist, and `ConfigError` for one that is missing."""
        unknown = sorted(options.keys() - RunOptions.__optional_keys__)
        if unknown:
            known = ", ".join(sorted(RunOptions.__optional_keys__))
            raise TypeError(f"A run has no option '{unknown[0]}'. Options: {known}.")
        deps_type = self._spec.deps_type
        if deps_type is not NoneType and "deps" not in options:
            kind = getattr(deps_type, "__name__", deps_type)
            raise ConfigError(
                f"The agent '{self.name}' has the deps_type {kind}: give the run such an object, "
                "as in run(question, deps=...)."
            )
        self._spec.check_limits(options.get("limits", RunLimits()))
        as_hooks(options.get("hooks", ()))
        check_callbacks(on_approval=options.get("on_approval"), on_elicitation=options.get("on_elicitation"))

    def _with_output(self, event: Event) -> Event[OutputT]:
        """Return the event; the result of the last one with its output converted."""
        output = self._spec.output
        if output is None or not isinstance(event, RunFinished) or event.result.status != "completed":
            return cast("Event[OutputT]", event)
        parsed = output.parse(event.result.text)
        result = replace(cast("RunResult[OutputT]", event.result), parsed_output=parsed, is_parsed=True)
        return RunFinished(result=result)

    def _acquire_runner(self) -> AgentRunner:
        """Return the runner of this event loop. `_release_runner` must follow."""
        return self._runners.acquire(self._build_runner)

    async def _release_runner(self) -> None:
        await self._runners.release()

    def _build_runner(self) -> AgentRunner:
        from holodeck.runtime import build_runner
        from holodeck.tools.mcp.protocol.server_requests import Callbacks
        from holodeck.tools.mcp.server_tools import ServerTools

        spec, loaded = self._spec, self._loaded
        if spec.output is not None:
            agent = loaded.agent.model_copy(update={"response_format": dict(spec.output.schema)})
            loaded = replace(loaded, agent=agent)
        runner = build_runner(
            loaded,
            model=None if spec.model is None else BorrowedModel(spec.model),
            environ=spec.environ,
            # A run may bring a callback for questions when its servers run already.
            callbacks=Callbacks(has_peers=True),
            find_output_problem=None if spec.output is None else spec.output.find_problem,
        )
        # The connections of the program's servers are those of its `MCPServer` objects, which others may use as well.
        built = runner.mcp.servers
        self._lent[runner] = [(server, built[server.name].callbacks) for server in spec.servers]
        plugins = {server.name: server._lend(callbacks) for server, callbacks in self._lent[runner]}
        runner.mcp.use_servers({name: ServerTools(each, is_borrowed=True) for name, each in plugins.items()})
        for asked in spec.agents:
            asked.agent._acquire_runner()
        return runner

    async def _close_runner(self, runner: AgentRunner) -> None:
        """Close the runner, then give back the connections of the program's servers, and the agents that it asks."""
        async with AsyncExitStack() as rest:
            for asked in self._spec.agents:
                rest.push_async_callback(asked.agent._release_runner)
            for server, callbacks in self._lent.pop(runner):
                rest.push_async_callback(server._take_back, callbacks)
            await runner.close()

    async def __aenter__(self) -> Self:
        """Keep the model and the servers open until the end of the block. They start when they are first needed."""
        self._acquire_runner()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._release_runner()

    def __enter__(self) -> Self:
        """Do the same for `run_sync`."""
        return run_in_background(self.__aenter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        close_in_background(self.__aexit__(kind, error, traceback))


def _trace_run() -> AbstractContextManager[None]:
    """Trace a run with the OpenTelemetry of the application, if it uses that: it is not imported here."""
    if "opentelemetry.trace" not in sys.modules:
        return nullcontext()
    from holodeck.telemetry import trace_to_application

    return trace_to_application()


def _go_on_with(session: Session, items: Sequence[Item], run: RunQuestion) -> RunQuestion:
    """Return the run with its session's items as its history. Raises `SessionConflictError` if it had others before."""
    if run.is_resumed and run.history != tuple(items):
        raise SessionConflictError(
            f"The session '{session.id}' is not as it was when {run.id} started. Go on with the run without "
            "the session: its result has the conversation in 'history'."
        )
    return replace(run, history=tuple(items))


load_agent = Agent.from_file

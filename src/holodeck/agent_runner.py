"""An agent that runs: its model with its tools, wired by `runtime`.

An `AgentRunner` owns its model provider, its MCP servers and its argument checker, and closes them in `close`. Servers
start when they are first needed. Each call of `run`, `stream` or `build_run` is a run of its own with its own toolbox.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from holodeck.engine.event_log import EventLog
from holodeck.engine.loop import Run, RunProgress, RunRequest
from holodeck.engine.steps import Steps
from holodeck.lib.ids import MakeId, new_id
from holodeck.models.agent import Agent as AgentFile
from holodeck.models.events import Event, RunResult
from holodeck.models.items import Item, text_message
from holodeck.models.llm import LLM
from holodeck.models.model_io import ModelRequest, ToolChoice, ToolSpec
from holodeck.models.run_limits import RunLimits
from holodeck.models.tool import AgentTool, FunctionTool
from holodeck.providers.base import ModelProvider
from holodeck.tools.agents import AskedAgent, NestedAgents, build_agent_spec
from holodeck.tools.calls import Approver, ArgumentChecker
from holodeck.tools.executor import CallingRun, ToolCall, ToolExecutor
from holodeck.tools.mcp.executor import MCPExecutor, ToolRoute
from holodeck.tools.resource_reader import ResourceReader
from holodeck.tools.result_reader import ResultReader
from holodeck.tools.toolbox import Toolbox


class RunInterceptor(Approver):
    """Stands between one run and the model and tools that it uses. The wrappers own nothing: they are not closed."""

    @abstractmethod
    async def start(self, items: Sequence[Item], progress: RunProgress) -> None:
        """Prepare the first turn: given the question, and what the run has done, which is kept current."""
        ...

    @abstractmethod
    def wrap_model(self, model: ModelProvider) -> ModelProvider: ...

    @abstractmethod
    def wrap_executors(self, executors: Sequence[ToolExecutor]) -> Sequence[ToolExecutor]: ...


class AgentRunner:
    """The model and the tools of one agent. Nothing starts before it is needed; leaving `async with` closes all."""

    def __init__(
        self,
        config: AgentFile,
        *,
        model: ModelProvider,
        functions: ToolExecutor,
        mcp: MCPExecutor,
        folder: Path,
        asked: Sequence[tuple[AgentTool, AgentRunner]] = (),
        approver: Approver | None = None,
        make_id: MakeId = new_id,
        is_offline: bool = False,
    ) -> None:
        """`asked`: agents that it may ask, and owns. `approver`: asks a person for approvals; None: they are refused.

        `make_id`: makes the ids of runs and items. `is_offline`: no process is started, also for checks.
        """
        self.config = config
        self.folder = folder
        self.model = model
        self.mcp = mcp
        self.functions = functions
        self.asked = tuple(asked)
        self._agents = NestedAgents([runner.build_asked(tool) for tool, runner in asked])
        self._approver = approver
        self._reader = ResultReader()
        self._resources = ResourceReader(self.mcp)
        self.is_offline = is_offline
        self._checker = ArgumentChecker(in_process=is_offline)
        self.make_id = make_id

    @property
    def name(self) -> str:
        """Name of the agent, from its file."""
        return self.config.name

    async def run(self, question: str | Sequence[Item], **options: Any) -> RunResult:
        """Run to the end and return the result. `options` are those of `build_run`."""
        return await self.build_run(question, is_streamed=False, **options).execute(EventLog())

    def stream(self, question: str | Sequence[Item], **options: Any) -> AsyncGenerator[Event, None]:
        """Start a run and yield its events, `RunFinished` last. `options` are those of `build_run`.

        Closing the iterator cancels the run and waits for it.
        """
        return self.build_run(question, **options).stream()

    def build_run(
        self,
        question: str | Sequence[Item],
        *,
        history: Sequence[Item] = (),
        functions: Sequence[ToolSpec] = (),
        tool_choice: ToolChoice | None = None,
        limits: RunLimits | None = None,
        parallel_tool_calls: bool = True,
        run_id: str | None = None,
        steps: Steps | None = None,
        interceptor: RunInterceptor | None = None,
        is_streamed: bool = True,
        caller: CallingRun | None = None,
    ) -> Run:
        """Build a run, which starts nothing.

        `history`: items before the question. `functions`: tools that the caller runs itself; a call of one ends the
        run. `limits`: without turns, those of the agent file. `steps`: carries out the steps of a durable run.
        `is_streamed`: False if nothing reads the deltas. Those of a run that is durable, or that may be stopped by the
        time, are its result so far. `caller`: the run that waits for this one; without an interceptor, its rules hold.
        """
        items = (text_message("user", question),) if isinstance(question, str) else tuple(question)
        limits = limits or RunLimits()
        is_streamed = is_streamed or steps is not None or limits.seconds is not None
        run_id = run_id or self.make_id("run")
        choice = tool_choice or ToolChoice()
        first = self._build_first_request((*history, *items), choice, parallel_tool_calls, run_id)
        request = RunRequest(
            run_id=run_id,
            agent=self.name,
            provider=str(self.config.model.provider),
            model=first if is_streamed else replace(first, is_streamed=False),
            max_turns=self.config.max_turns if limits.turns is None else limits.turns,
            max_tool_calls=limits.tool_calls,
            max_tokens=limits.tokens,
            max_cost=limits.cost,
            max_seconds=limits.seconds,
            prices=self.config.model.prices,
            make_id=self.make_id,
            on_start=None if interceptor is None else partial(interceptor.start, items),
            caller=caller,
        )
        model: ModelProvider = self.model
        executors: Sequence[ToolExecutor] = [self.functions, *([self._agents] if self.asked else []), self.mcp]
        if interceptor is not None:
            model, executors = interceptor.wrap_model(model), interceptor.wrap_executors(executors)
        toolbox = Toolbox(
            executors,
            checker=self._checker,
            client_functions=functions,
            reader=self._reader,
            resources=self._resources,
            approver=self._approver if interceptor is None else interceptor,
            pipeline=caller.pipeline if caller is not None and interceptor is None else None,
        )
        return Run(request, model, toolbox, steps)

    def build_asked(self, tool: AgentTool) -> AskedAgent:
        """Build the agent as a tool of another one, which is open while that is."""
        spec = build_agent_spec(self.name, self.config.description, name=tool.name, description=tool.description)
        return AskedAgent(agent=self.name, spec=spec, open_stream=self._answer_call)

    def _answer_call(self, question: str, call: ToolCall) -> AsyncGenerator[Event, None]:
        return self.stream(question, is_streamed=call.run is None or call.run.is_streamed, caller=call.run)

    def _build_first_request(
        self, items: tuple[Item, ...], choice: ToolChoice, is_parallel: bool, run_id: str
    ) -> ModelRequest:
        config = self.config
        request = ModelRequest(
            items=items,
            instructions=config.instructions if isinstance(config.instructions, str) else None,
            tool_choice=choice,
            parallel_tool_calls=is_parallel,
            response_format=config.response_format if isinstance(config.response_format, dict) else None,
            run_id=run_id,
        )
        return config.model.complete_request(request)

    async def use_model(self, settings: LLM, model: ModelProvider) -> None:
        """Ask this model from the next run on. The one before is closed: no run may be going on."""
        before, self.model = self.model, model
        self.config = self.config.model_copy(update={"model": settings})
        await before.close()

    def find_route(self, name: str) -> ToolRoute | None:
        """Return the target of a call of this name; None for a function of the project, which takes precedence."""
        is_function = any(
            isinstance(tool, FunctionTool | AgentTool) and tool.name == name for tool in self.config.tools
        )
        return None if is_function else self.mcp.find_route(name)

    def forget(self) -> None:
        """Start a new conversation: long results and linked resources of earlier ones can no longer be read."""
        self._reader = ResultReader()
        self._resources = ResourceReader(self.mcp)

    async def close(self) -> None:
        """Close every server and connection, in bounded time. May be called twice."""
        async with AsyncExitStack() as rest:
            for _, runner in self.asked:
                rest.push_async_callback(runner.close)
            rest.push_async_callback(self.model.close)
            rest.push_async_callback(self._checker.close)
            await self.mcp.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

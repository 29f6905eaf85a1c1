"""Runs an agent: its model with its tools, wired by `runtime`.

An `AgentRunner` owns its model provider, its MCP servers and its argument checker, and closes them in `close`. Servers
start when they are first needed. Each call of `run` or `stream` is a run of its own with its own event log and toolbox.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from holodeck.engine.event_log import EventLog
from holodeck.engine.loop import RunProgress, RunRequest, run
from holodeck.engine.steps import Steps
from holodeck.lib.ids import MakeId, new_id
from holodeck.models.agent import Agent as AgentFile
from holodeck.models.events import Event, RunFinished, RunResult
from holodeck.models.items import Item, text_message
from holodeck.models.model_io import ModelRequest, ToolChoice, ToolSpec
from holodeck.models.run_limits import RunLimits
from holodeck.models.tool import FunctionTool
from holodeck.providers.base import ModelProvider
from holodeck.tools.arguments import ArgumentChecker
from holodeck.tools.executor import ToolExecutor
from holodeck.tools.mcp.executor import MCPExecutor, ToolRoute
from holodeck.tools.resource_reader import ResourceReader
from holodeck.tools.result_reader import ResultReader
from holodeck.tools.toolbox import CallInterceptor, Toolbox


class RunInterceptor(CallInterceptor, Protocol):
    """Stands between one run and the model and tools that it uses. The wrappers own nothing: they are not closed."""

    async def start(self, items: Sequence[Item], progress: RunProgress) -> None:
        """Awaited before the first turn with the question, and what the run has done, which is kept current."""
        ...

    def wrap_model(self, model: ModelProvider) -> ModelProvider: ...

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
        make_id: MakeId = new_id,
        is_offline: bool = False,
    ) -> None:
        """`make_id`: makes the ids of runs and items. `is_offline`: no process is started, also for checks."""
        self.config = config
        self.folder = folder
        self.model = model
        self.mcp = mcp
        self.functions = functions
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
        """Run to the end and return the result. `options` are those of `stream`."""
        async with aclosing(self.stream(question, **options)) as events:
            async for event in events:
                if isinstance(event, RunFinished):
                    return event.result
        raise RuntimeError("a run always finishes")

    async def stream(
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
    ) -> AsyncGenerator[Event, None]:
        """Start a run and yield its events, `RunFinished` last. Closing the iterator cancels the run and waits for it.

        `history`: items before the question. `functions`: tools that the caller runs itself; a call of one ends the
        run. `limits`: without turns, those of the agent file. `steps`: carries out the steps of a durable run.
        """
        items = (text_message("user", question),) if isinstance(question, str) else tuple(question)
        limits = limits or RunLimits()
        request = RunRequest(
            run_id=run_id or self.make_id("run"),
            agent=self.name,
            provider=str(self.config.model.provider),
            model=self._build_first_request((*history, *items), tool_choice or ToolChoice(), parallel_tool_calls),
            max_turns=self.config.max_turns if limits.turns is None else limits.turns,
            max_tool_calls=limits.tool_calls,
            max_tokens=limits.tokens,
            max_cost=limits.cost,
            max_seconds=limits.seconds,
            price=self.config.model.price,
            make_id=self.make_id,
            on_start=None if interceptor is None else partial(interceptor.start, items),
        )
        model: ModelProvider = self.model
        executors: Sequence[ToolExecutor] = [self.functions, self.mcp]
        if interceptor is not None:
            model, executors = interceptor.wrap_model(model), interceptor.wrap_executors(executors)
        toolbox = Toolbox(
            executors,
            checker=self._checker,
            client_functions=functions,
            reader=self._reader,
            resources=self._resources,
            interceptor=interceptor,
        )
        log = EventLog()
        # Owned by this generator, which cancels and awaits it before it ends.
        task = asyncio.create_task(run(request, model, toolbox, log, steps), name=request.run_id)
        try:
            async for _, event in log.read():
                yield event
            await task
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    def _build_first_request(self, items: tuple[Item, ...], choice: ToolChoice, is_parallel: bool) -> ModelRequest:
        config = self.config
        request = ModelRequest(
            items=items,
            instructions=config.instructions if isinstance(config.instructions, str) else None,
            tool_choice=choice,
            parallel_tool_calls=is_parallel,
            response_format=config.response_format if isinstance(config.response_format, dict) else None,
        )
        return config.model.complete_request(request)

    def find_route(self, name: str) -> ToolRoute | None:
        """Return the target of a call of this name; None for a function of the project, which takes precedence."""
        is_function = any(isinstance(tool, FunctionTool) and tool.name == name for tool in self.config.tools)
        return None if is_function else self.mcp.find_route(name)

    def forget(self) -> None:
        """Start a new conversation: long results and linked resources of earlier ones can no longer be read."""
        self._reader = ResultReader()
        self._resources = ResourceReader(self.mcp)

    async def close(self) -> None:
        """Close every server and connection, in bounded time. May be called twice."""
        try:
            await self.mcp.close()
        finally:
            await self._checker.close()
            await self.model.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

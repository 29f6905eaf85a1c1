"""`HookedRun`: one run of an agent in code, with its function tools, hooks and callbacks.

A call goes through it after its arguments were checked, and before it is approved: hooks decide first, then the person
is asked about the call as the hooks have left it, and that call is executed.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.agent_runner import RunInterceptor
from holodeck.agents.hooks import (
    AnswerCall,
    AnyContext,
    AskPerson,
    BuildInstructions,
    ChangeArguments,
    Elicitation,
    Hooks,
    OnApproval,
    OnElicitation,
    RefuseCall,
    RequestedCall,
)
from holodeck.agents.models import BorrowedModel
from holodeck.agents.tools.agent_tool import AgentTool
from holodeck.agents.tools.function_tool import FunctionToolExecutor, Tool
from holodeck.engine.loop import RunProgress
from holodeck.engine.transcript import RunTranscript
from holodeck.lib import log
from holodeck.lib.call_errors import NOT_APPROVED
from holodeck.lib.errors import HOOK_FAILED, HookError
from holodeck.models.events import Event, Failure, OutputT, RunFinished, RunResult
from holodeck.models.items import FunctionCall, FunctionCallOutput, Item, TextContent
from holodeck.models.model_io import ModelAnswer, ModelRequest, ToolSpec
from holodeck.providers.base import Batches, ModelProvider, stream_in_batches
from holodeck.tools.agents import AskedAgent, NestedAgents
from holodeck.tools.calls import BadArgumentsError, CallPipeline, refuse_unasked
from holodeck.tools.executor import (
    REFUSED,
    REFUSED_BY_HOOK,
    CallRules,
    QuestionHandler,
    ToolCall,
    ToolExecutor,
    ToolResult,
)
from holodeck.tools.function import call_function
from holodeck.tools.project_code import PROJECT_ERRORS


class HookedRun(RunInterceptor):
    """The hooks and callbacks of one run, which decide about all of its calls."""

    sees_every_call = True

    def __init__(
        self,
        context: AnyContext,
        *,
        tools: Sequence[Tool[..., Any]] = (),
        functions: Sequence[ToolSpec] = (),
        instructions: BuildInstructions[Any] | None = None,
        hooks: Sequence[Hooks[Any]] = (),
        on_approval: OnApproval[Any] | None = None,
        on_elicitation: OnElicitation[Any] | None = None,
        agents: Sequence[AgentTool] = (),
        caller: HookedRun | None = None,
    ) -> None:
        """`functions`: tools that the program runs itself, after the run. `instructions`: builds those of the run.

        `caller`: the run that waits for this one. Its hooks decide about the calls of this one as well, after its own.
        """
        self.id = context.run_id
        self._context = context
        self._client_functions = frozenset(each.name for each in functions)
        self._progress: RunProgress | None = None
        self._functions = FunctionToolExecutor(tools, self.build_context)
        self._build_instructions = instructions
        self._instructions: str | None = None
        self._hooks = tuple(hooks)
        self._call_hooks: tuple[Hooks[Any], ...] = self._hooks
        self._agents = tuple(agents)
        self._on_approval: OnApproval[Any] | None = on_approval
        self._on_elicitation: OnElicitation[Any] | None = on_elicitation
        if caller is not None:
            self._call_hooks = (*self._hooks, *caller._call_hooks)
            self._on_approval = on_approval or caller._on_approval
            self._on_elicitation = on_elicitation or caller._on_elicitation
        # One object for all calls: servers take calls with the same one for calls of one client.
        self.on_question: QuestionHandler | None = None if self._on_elicitation is None else self._answer_question

    @property
    def deps(self) -> Any:
        """The object that the program gave to the run."""
        return self._context.deps

    def build_context(self, call_id: str = "") -> AnyContext:
        """Return the context of the run at this moment."""
        progress = self._progress
        if progress is None:
            return self._context
        return replace(
            self._context, turn=progress.turns, usage=progress.usage, items=tuple(progress.items), call_id=call_id
        )

    async def start(self, items: Sequence[Item], progress: RunProgress) -> None:
        self._progress = progress
        if self._build_instructions is not None:
            text = await self._call("instructions", self._build_instructions, self.build_context())
            if not isinstance(text, str):
                raise HookError("instructions", f"it returned a {type(text).__name__}. Return a text.")
            self._instructions = text
        for hook in self._hooks:
            await self._call(_name_of(hook, "before_run"), hook.before_run, self.build_context(), items)

    async def follow(
        self, stream: AsyncGenerator[Event, None], convert: Callable[[Event], Event[OutputT]]
    ) -> AsyncGenerator[Event[OutputT], None]:
        """Yield the events of the run, converted. Hooks see its end before the program does."""
        transcript = RunTranscript()
        async with aclosing(stream) as events:
            async for event in events:
                transcript.add(event)
                if not isinstance(event, RunFinished):
                    yield convert(event)
                    continue
                result = _add_client_calls(event.result, self._client_functions)
                if result.status in ("incomplete", "failed"):
                    # A model refuses a conversation with calls that have no outputs.
                    before = result.history[: len(result.history) - len(result.items)]
                    result = replace(result, history=(*before, *transcript.build_history()))
                yield await self._finish(convert(RunFinished(result=result)))

    async def _finish(self, event: Event[OutputT]) -> Event[OutputT]:
        """Call the hooks at the end of the run. One that fails makes the run a failed one."""
        assert isinstance(event, RunFinished)  # noqa: S101 - the conversion of one
        try:
            for hook in self._hooks:
                await self._call(_name_of(hook, "after_run"), hook.after_run, self.build_context(), event.result)
        except HookError as error:
            failure = Failure(code=HOOK_FAILED, message=str(error), is_retryable=False)
            return RunFinished(result=replace(event.result, status="failed", error=failure))
        return event

    def wrap_model(self, model: ModelProvider) -> ModelProvider:
        return _HookedModel(model, self) if self._hooks or self._build_instructions else model

    def wrap_executors(self, executors: Sequence[ToolExecutor]) -> Sequence[ToolExecutor]:
        if not self._agents:
            return [self._functions, *executors]
        asked = [
            AskedAgent(agent=each.agent.name, spec=each.spec, open_stream=partial(each.agent._answer_call, self))
            for each in self._agents
        ]
        return [self._functions, NestedAgents(asked), *executors]

    async def change_request(self, request: ModelRequest) -> ModelRequest:
        """Return the request of a turn with the instructions of this run, as the hooks have left it."""
        if self._instructions is not None:
            request = replace(request, instructions=self._instructions)
        for hook in self._hooks:
            changed = await self._call(_name_of(hook, "before_turn"), hook.before_turn, self.build_context(), request)
            request = request if changed is None else _require(changed, ModelRequest, hook, "before_turn")
        return request

    async def report_answer(self, answer: ModelAnswer) -> None:
        """Call the hooks with the answer of a turn."""
        for hook in self._hooks:
            await self._call(_name_of(hook, "after_turn"), hook.after_turn, self.build_context(), answer)

    async def approve(self, call: ToolCall, rules: CallRules, pipeline: CallPipeline) -> ToolCall | ToolResult:
        # A refusal is a result, which the hooks see as well.
        questions: list[str] = []
        for hook in self._call_hooks:
            decision = await self._call(
                _name_of(hook, "before_call"),
                hook.before_call,
                self.build_context(call.call_id),
                _describe(call, rules),
            )
            match decision:
                case None:
                    pass
                case ChangeArguments():
                    call = await _change_arguments(call, decision.arguments, hook, pipeline)
                case AnswerCall():
                    text = (TextContent(text=decision.text),) if decision.text or not decision.content else ()
                    return ToolResult(
                        call_id=call.call_id, content=(*text, *decision.content), is_error=decision.is_error
                    )
                case RefuseCall():
                    return _refuse(call, decision.reason)
                case AskPerson():
                    questions.append(decision.question)
                case _:
                    _require(decision, (ChangeArguments, AnswerCall, RefuseCall, AskPerson), hook, "before_call")
        if not questions and not rules.needs_approval:
            return call
        if not questions and self._on_approval is None:
            return refuse_unasked(rules.target).to_result(call.call_id, rules.target)
        refusal = await self._ask_approval(_describe(call, rules, question=" ".join(filter(None, questions))))
        return replace(call, is_approved=True) if refusal is None else _refuse(call, refusal.reason)

    async def _ask_approval(self, call: RequestedCall) -> RefuseCall | None:
        if self._on_approval is None:
            return RefuseCall(reason=f"The tool '{call.name}' needs a person's approval, and there is no one to ask.")
        answer = await self._call("on_approval", self._on_approval, self.build_context(call.call_id), call)
        match answer:
            case True:
                return None
            case False:
                return RefuseCall(reason=NOT_APPROVED)
            case RefuseCall():
                return answer
        raise HookError("on_approval", f"it returned {answer!r}. Return True, False or a RefuseCall.")

    async def _answer_question(self, server: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        assert self._on_elicitation is not None  # noqa: S101 - this is the handler only if it is there
        question = Elicitation.from_params(server, params)
        answer = await self._call("on_elicitation", self._on_elicitation, self.build_context(), question)
        return question.build_result(answer)

    async def change_result(self, call: ToolCall, rules: CallRules, result: ToolResult) -> ToolResult:
        for hook in self._call_hooks:
            changed = await self._call(
                _name_of(hook, "after_call"),
                hook.after_call,
                self.build_context(call.call_id),
                _describe(call, rules),
                result,
            )
            if changed is not None:
                result = replace(_require(changed, ToolResult, hook, "after_call"), call_id=call.call_id)
        return result

    async def _call(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the program. Raises `HookError` for what it raises."""
        try:
            answer = await call_function(function, *args)
            return await answer if inspect.isawaitable(answer) else answer
        except PROJECT_ERRORS as error:
            log.warning("run.hook_failed", hook=name, error=type(error).__name__)
            raise HookError(name, f"{type(error).__name__}: {error}{_place_of(error)}") from error


class _HookedModel(BorrowedModel):
    """A model whose requests and answers the hooks of a run see."""

    def __init__(self, inner: ModelProvider, run: HookedRun) -> None:
        super().__init__(inner)
        self._run = run

    async def stream_batches(self, request: ModelRequest) -> Batches:
        changed = await self._run.change_request(request)
        async with aclosing(stream_in_batches(self._inner, changed)) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, ModelAnswer):
                        await self._run.report_answer(event)
                yield batch


def _add_client_calls(result: RunResult, names: frozenset[str]) -> RunResult:
    """Return the result with the calls that the program runs itself among its pending calls."""
    if result.status not in ("completed", "requires_action"):
        return result
    outputs = {item.call_id for item in result.items if isinstance(item, FunctionCallOutput)}
    calls = [item for item in result.items if isinstance(item, FunctionCall) and item.call_id not in outputs]
    added = tuple(call for call in calls if call.name in names and call not in result.pending)
    if not added:
        return result
    return replace(result, status="requires_action", pending=(*result.pending, *added))


def _describe(call: ToolCall, rules: CallRules, question: str = "") -> RequestedCall:
    return RequestedCall(
        call_id=call.call_id,
        name=call.name,
        arguments=call.arguments,
        server=rules.target.server,
        tool=rules.target.tool,
        question=question,
        agent="" if call.run is None else call.run.agent,
    )


async def _change_arguments(
    call: ToolCall, arguments: Mapping[str, Any], hook: Hooks[Any], pipeline: CallPipeline
) -> ToolCall:
    changed = replace(call, arguments=dict(arguments))
    try:
        await pipeline.check_arguments(changed)
    except BadArgumentsError as error:
        raise HookError(_name_of(hook, "before_call"), f"it changed the arguments of '{call.name}'. {error}") from None
    return changed


def _refuse(call: ToolCall, reason: str) -> ToolResult:
    return ToolResult.failure(call.call_id, reason, **{REFUSED: REFUSED_BY_HOOK})


def _require(value: Any, kind: Any, hook: Hooks[Any], method: str) -> Any:
    """Return the value if it is of the kind. Raises `HookError`."""
    if isinstance(value, kind):
        return value
    kinds = kind if isinstance(kind, tuple) else (kind,)
    names = ", ".join(each.__name__ for each in kinds)
    raise HookError(_name_of(hook, method), f"it returned a {type(value).__name__}. Return None or one of: {names}.")


def _name_of(hook: Hooks[Any], method: str) -> str:
    return f"{type(hook).__name__}.{method}"


def _place_of(error: BaseException) -> str:
    """Return where an exception was raised, for the author of the hook."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""

"""The pipeline that every call passes, for what no door lets through to it: a door that forgets a rule."""

from __future__ import annotations

import pytest
from async_tests import async_test

from holodeck.gateway.auth.scope import CallerScope
from holodeck.mcp_server.view import View
from holodeck.models.callers import Scope
from holodeck.tools.calls import ArgumentChecker, CallPipeline
from holodeck.tools.executor import (
    APPROVAL_NEEDED,
    OUT_OF_SCOPE,
    READ_RESOURCE,
    CallRules,
    CallTarget,
    Refusal,
    TargetKind,
    ToolCall,
    ToolResult,
)

SCOPE = CallerScope.of(
    [Scope(tools=["docs.echo", "!*.read_resource"], prompts=["docs.review"], agents=["clerk"])],
)
TARGETS = {
    CallTarget(server="docs", tool="echo"): True,
    CallTarget(server="docs", tool="add"): False,
    CallTarget(server="other", tool="echo"): False,
    CallTarget(server="docs", tool=READ_RESOURCE, kind=TargetKind.RESOURCE): False,
    CallTarget(server="docs", tool=READ_RESOURCE, kind=TargetKind.LINK): False,
    CallTarget(server="docs", tool="review", kind=TargetKind.PROMPT): True,
    CallTarget(server="docs", tool="greet", kind=TargetKind.PROMPT): False,
    CallTarget(server="", tool="clerk", kind=TargetKind.AGENT): True,
    CallTarget(server="", tool="boss", kind=TargetKind.AGENT): False,
}


@pytest.mark.proves("D-39")
@async_test
async def test_what_is_out_of_scope_is_not_called_even_if_a_door_finds_it() -> None:
    checker, sent = ArgumentChecker(), list[CallTarget]()
    for scope in (SCOPE, View(caller_id="key:ada", scope=SCOPE)):
        pipeline = CallPipeline(checker, scope=scope)
        for target, is_allowed in TARGETS.items():

            async def send(call: ToolCall, target: CallTarget = target) -> ToolResult:
                sent.append(target)
                return ToolResult(call_id=call.call_id, content=())

            call = ToolCall(call_id="c", name=target.tool, arguments={})
            outcome = await pipeline.run(call, CallRules(target=target), send, lambda _, result: result)
            refused = outcome.code if isinstance(outcome, Refusal) else ""
            assert refused == ("" if is_allowed else OUT_OF_SCOPE), target
    assert sent == [target for target, is_allowed in TARGETS.items() if is_allowed] * 2
    await checker.close()


@pytest.mark.proves("D-35")
@async_test
async def test_a_call_that_needs_an_approval_is_not_made_where_a_door_has_no_person_to_ask() -> None:
    checker, sent = ArgumentChecker(), list[bool]()
    target, call = CallTarget(server="docs", tool="echo"), ToolCall(call_id="c", name="echo", arguments={})

    async def send(call: ToolCall) -> ToolResult:
        sent.append(call.is_approved)
        return ToolResult(call_id=call.call_id, content=())

    pipeline = CallPipeline(checker)
    refused = await pipeline.run(call, CallRules(target=target, needs_approval=True), send, lambda _, result: result)
    assert isinstance(refused, Refusal)
    assert (refused.code, sent) == (APPROVAL_NEEDED, [])
    approved = CallRules(target=target, needs_approval=True, is_approved=True)
    made = await pipeline.run(call, approved, send, lambda _, result: result)
    assert not isinstance(made, Refusal)
    assert sent == [True]
    await checker.close()

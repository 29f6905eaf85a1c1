"""What servers answer is counted in one byte budget while it is in memory, and all of it is released in the end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from tools.mcp.misbehaving_server import TRANSPORT_VARIANTS, TransportVariant, open_misbehaving

from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.limits import MIB
from holodeck.testing import Fault


@pytest.mark.proves("D-17")
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test(60)
async def test_an_answer_that_does_not_fit_the_budget_is_an_error_and_the_next_that_fits_is_taken(
    tmp_path: Path, over: TransportVariant
) -> None:
    budget = ByteBudget(MIB)
    async with open_misbehaving(Fault.NORMAL, over, tmp_path) as subject:
        subject.plugin.use_budget(budget)
        await subject.check_works()
        assert budget.used == 0
        result = await subject.plugin.call_tool("big", bytes=2 * MIB)
        assert not result.success
        assert "too many bytes of requests and answers are in memory at once" in str(result.error)
        assert len(subject.calls("big")) == 1, "a call that was answered is not repeated"
        await subject.check_works()
    assert budget.used == 0


@pytest.mark.proves("D-17")
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@async_test(60)
async def test_an_answer_is_refused_while_another_component_holds_the_whole_budget(
    tmp_path: Path, over: TransportVariant
) -> None:
    budget = ByteBudget(MIB)
    async with open_misbehaving(Fault.NORMAL, over, tmp_path) as subject:
        subject.plugin.use_budget(budget)
        await subject.check_works()
        budget.acquire(budget.available)
        assert not (await subject.echo()).success
        budget.release(MIB)
        await subject.check_works()
    assert budget.used == 0


@pytest.mark.proves("D-17")
@pytest.mark.parametrize("over", TRANSPORT_VARIANTS)
@pytest.mark.parametrize("fault", [Fault.UNFINISHED, Fault.DIES_MID_CALL, Fault.WRONG_ID, Fault.BATCH, Fault.FLOOD])
@async_test(60)
async def test_a_call_that_is_cut_answered_wrongly_or_cancelled_holds_nothing_of_the_budget(
    tmp_path: Path, over: TransportVariant, fault: Fault
) -> None:
    budget = ByteBudget()
    async with open_misbehaving(fault, over, tmp_path, fields={"request_timeout": 1}) as subject:
        subject.plugin.use_budget(budget)
        await asyncio.gather(*(subject.echo("x" * 10_000) for _ in range(2)))
        calls = len(subject.calls("echo"))
        waiting = asyncio.create_task(subject.echo("x" * 10_000))
        sent = asyncio.create_task(subject.wait_received("tools/call", calls + 1))
        # On a busy machine the server may not be listed again in time, and the call fails before it is sent.
        await asyncio.wait({waiting, sent}, return_when=asyncio.FIRST_COMPLETED)
        for task in (waiting, sent):
            task.cancel()
        await asyncio.wait({waiting, sent})
    assert budget.used == 0

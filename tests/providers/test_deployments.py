"""Deployments of one model: how requests are spread between them."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

import pytest
from providers.model_exchange import collect_events, model_request, run_with_timeout

from holodeck.lib.errors import ModelError
from holodeck.models.llm import LLM, Deployment
from holodeck.providers.wrappers.deployments import DeploymentMember, Deployments
from holodeck.testing.model.script import Turn, fail, say, spend, wait
from holodeck.testing.model.scripted import ScriptedModel

AWAY = ModelError("away", is_retryable=True, status=503)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def _answer(turn: Turn, _: object) -> Turn:
    return turn


def deployed(*settings: dict[str, Any], turn: Turn | None = None) -> tuple[Deployments, list[ScriptedModel], Clock]:
    """A model with these deployments, each of which says its number."""
    models = [ScriptedModel(partial(_answer, turn or say(str(number)))) for number in range(len(settings))]
    clock = Clock()
    members = [
        DeploymentMember(model, LLM(), Deployment(**entry)) for model, entry in zip(models, settings, strict=True)
    ]
    return Deployments(members, clock=clock), models, clock


def test_requests_go_to_the_deployment_with_the_fewest_in_flight_for_its_weight() -> None:
    async def exchange() -> None:
        gate = asyncio.Event()
        model, scripted, _ = deployed({"weight": 3}, {}, turn=[wait(gate), say("well")])
        asking = [asyncio.create_task(collect_events(model, model_request())) for _ in range(40)]
        while sum(len(each.requests) for each in scripted) < 40:  # noqa: ASYNC110 - forty tasks begin
            await asyncio.sleep(0)
        assert [len(each.requests) for each in scripted] == [30, 10]
        gate.set()
        await asyncio.gather(*asking)

    run_with_timeout(exchange())


def test_a_run_and_its_conversation_stay_with_their_deployment() -> None:
    async def exchange() -> None:
        model, scripted, _ = deployed({}, {}, {})
        for number in range(12):
            previous = ""
            for turn in range(4):
                run = f"resp_{number}_{turn}"
                for _ in range(2):
                    await collect_events(model, model_request(run_id=run, thread=previous))
                previous = run
        asked = {name: n for n, each in enumerate(scripted) for name in (r.run_id for r in each.requests)}
        places = Counter(name.rsplit("_", 1)[0] for name in asked)
        assert set(places.values()) == {4}
        assert all(len({asked[f"resp_{n}_{turn}"] for turn in range(4)}) == 1 for n in range(12))
        keyed = [await collect_events(model, model_request(prompt_cache_key="k")) for _ in range(5)]
        assert len({str(events) for events in keyed}) == 1

    run_with_timeout(exchange())


def test_a_deployment_that_fails_is_taken_out_and_its_conversation_goes_elsewhere() -> None:
    async def exchange() -> None:
        is_away = True
        first = ScriptedModel(lambda _: fail(AWAY) if is_away else say("first"))
        second = ScriptedModel(lambda _: say("second"))
        clock = Clock()
        model = Deployments([DeploymentMember(each, LLM(), Deployment()) for each in (first, second)], clock=clock)
        for run in "1234":
            await collect_events(model, model_request(run_id=run))
        assert len(first.requests) == 2, "it rests after two runs"
        assert len(second.requests) == 4
        is_away, clock.now = False, clock.now + 31
        await collect_events(model, model_request(run_id="5"))
        assert len(first.requests) == 3

    run_with_timeout(exchange())


@pytest.mark.parametrize(
    ("limits", "turn"),
    [({"requests_per_minute": 3}, say("x")), ({"tokens_per_minute": 300}, [say("x"), spend(90, 10)])],
)
def test_limits_of_a_minute_are_kept_for_each_deployment(limits: dict[str, Any], turn: Any) -> None:
    async def exchange() -> None:
        model, scripted, clock = deployed(limits, limits, turn=turn)
        for _ in range(6):
            await collect_events(model, model_request())
            clock.now += 1
        assert [len(each.requests) for each in scripted] == [3, 3]
        with pytest.raises(ModelError) as found:
            await collect_events(model, model_request())
        assert found.value.code == "rate_limit_exceeded"
        assert 53 < (found.value.retry_after or 0) < 56
        clock.now += 56
        await collect_events(model, model_request())

    run_with_timeout(exchange())

# pyright: strict
"""Mistakes in programs. Each marked line is an error for every type checker, with these words; no other line is one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import holodeck
from holodeck import (
    LLM,
    Agent,
    Hooks,
    ModelProvider,
    RequestedCall,
    RunContext,
    RunFinished,
    RunLimits,
    TextAdded,
    tool,
)


@dataclass
class Shop:
    name: str


@dataclass
class Invoice:
    total: float


@tool
def price(product: str) -> float:
    """Price of a product."""
    return 3.5


async def use_wrong_options(model: ModelProvider, agent: Agent[Shop, Invoice]) -> None:
    await agent.run("Hello", deps=Shop("tea"), max_turnz=3)  # wrong: max_turnz
    await agent.run("Hello", deps="tea")  # wrong: Shop
    agent.run_sync("Hello", deps=7)  # wrong: Shop
    await agent.run(3, deps=Shop("tea"))  # wrong: str | Sequence[
    await agent.run("Hello", deps=Shop("tea"), limits={"turns": 3})  # wrong: RunLimits
    await agent.run("Hello", deps=Shop("tea"), hooks=[price])  # wrong: Hooks[Shop]
    Agent(model, limit=RunLimits(turns=3))  # wrong: limit
    Agent(model, tools=[3])  # wrong: MCPServer


async def use_wrong_output(agent: Agent[None, Invoice]) -> None:
    result = await agent.run("Hello")
    print(result.output.totl)  # wrong: totl
    text: str = result.output  # wrong: Invoice
    print(text)
    async for event in agent.stream("Hello"):
        if isinstance(event, TextAdded):
            print(event.result)  # wrong: result
        if isinstance(event, RunFinished):
            print(event.result.output.totl)  # wrong: totl
        if event.type == "text.addde":  # wrong: text.addde
            print(event)


def use_wrong_names() -> None:
    holodeck.Agnet("openai:gpt-5-mini")  # wrong: Agnet


def use_wrong_models() -> None:
    LLM(provider="opnai")  # wrong: provider
    LLM(nam="gpt-5-mini")  # wrong: nam
    LLM(api_key=3)  # wrong: api_key


def use_wrong_limits() -> None:
    RunLimits(turns="three")  # wrong: turns
    RunLimits(max_turns=3)  # wrong: max_turns
    RunLimits(3)  # wrong: positional


def use_wrong_arguments(ctx: RunContext[Shop]) -> None:
    price(3)  # wrong: str
    price()  # wrong: product
    price(produkt="tea")  # wrong: produkt
    cost: str = price("tea")  # wrong: float
    print(cost, ctx.deps.nam)  # wrong: nam


class Guard(Hooks[Shop]):
    async def before_call(self, ctx: RunContext[Shop], call: RequestedCall) -> bool:  # wrong: before_call
        return True


class Late(Hooks[Shop]):
    def after_turn(self, ctx: RunContext[Shop], answer: Any) -> None:  # wrong: after_turn
        print(ctx.deps)


class NeedsShop(Hooks[Shop]):
    pass


async def approve_with_text(ctx: RunContext[Shop], call: RequestedCall) -> str:
    return "yes"


def use_wrong_callbacks(model: ModelProvider) -> None:
    Agent(model, deps_type=str, hooks=[NeedsShop()])  # wrong: DepsT
    Agent(model, deps_type=Shop, on_approval=approve_with_text)  # wrong: on_approval
    Agent(model, deps_type=Shop, on_elicitation=lambda ctx: None)  # wrong: on_elicitation

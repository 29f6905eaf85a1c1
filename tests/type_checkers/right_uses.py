# pyright: strict
"""Programs as users write them. Type checkers find nothing here, and the types are those that `assert_type` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never, assert_type

from holodeck import (
    LLM,
    Agent,
    AgentProgressed,
    AnswerCall,
    AskPerson,
    CallAdded,
    ChangeArguments,
    Elicitation,
    Event,
    Failure,
    FunctionCall,
    Hooks,
    Item,
    ItemFinished,
    MCPServer,
    Message,
    ModelAnswer,
    ModelError,
    ModelProvider,
    ModelRequest,
    OAuthAuthorizationCode,
    OAuthClientCredentials,
    Price,
    ReasoningAdded,
    RefuseCall,
    RequestedCall,
    RunContext,
    RunError,
    RunFinished,
    RunLimits,
    RunNoticed,
    RunOptions,
    RunResult,
    RunStarted,
    StandInAnswered,
    TextAdded,
    TextContent,
    Tool,
    ToolChoice,
    ToolFinished,
    ToolProgressed,
    ToolResult,
    ToolSpec,
    ToolStarted,
    TurnCut,
    TurnFinished,
    TurnStarted,
    Usage,
    load_agent,
    tool,
)


@dataclass
class Shop:
    name: str


@dataclass
class Invoice:
    total: float


@tool
def price(product: str, count: int = 1) -> float:
    """Price of products."""
    return 3.5 * count


@tool(name="find", timeout=5)
async def find_customer(ctx: RunContext[Shop], name: str) -> str:
    """Find a customer."""
    return f"{name} of {ctx.deps.name} in turn {ctx.turn}, call {ctx.call_id}"


async def check_tools(ctx: RunContext[Shop]) -> None:
    assert_type(price("tea", count=2), float)
    assert_type(await find_customer(ctx, "Ada"), str)
    assert_type(price.name, str)
    described: Tool[..., Any] = price
    print(described, ctx.usage.total_tokens, ctx.items)


async def check_output(model: ModelProvider) -> None:
    plain = Agent(model, instructions="Answer.", tools=[price, len, MCPServer.http("http://localhost/mcp")])
    assert_type(plain, Agent[None, str])
    result = await plain.run("Hello")
    assert_type(result, RunResult[str])
    assert_type(result.output, str)
    typed = Agent("openai:gpt-5-mini", output_type=Invoice)
    assert_type((await typed.run("Hello")).output, Invoice)
    assert_type(typed.run_sync("Hello").output.total, float)
    numbers = Agent(LLM(price=Price(input=1, output=2)), output_type=list[int])
    assert_type((await numbers.run("Count")).output, list[int])
    assert_type(Agent(model, output_type=Invoice | None), Agent[None, Invoice | None])
    assert_type(Agent.from_file("agent.yaml", output_type=int | list[Shop]).run_sync("Hi").output, int | list[Shop])
    perhaps = plain.with_(output_type=Invoice | None)
    async for event in perhaps.stream("Hello"):
        if isinstance(event, RunFinished):
            assert_type(event.result.output, Invoice | None)
    again = await plain.run([Message(role="user", content=(TextContent(text="Hi"),))], history=result.history)
    assert_type(again.usage, Usage)
    messages = [{"role": "user", "content": "I am Ada."}, {"role": "assistant", "content": "Hello, Ada."}]
    await plain.run([{"role": "user", "content": "Hi"}], history=messages)
    assert_type(again.error, Failure | None)


def check_credentials() -> None:
    model = LLM(provider="openai", name="gpt-5-mini", api_key="sk-secret", headers={"X-Team": "shop"}, temperature=0)
    machine = OAuthClientCredentials(client_id="shop", client_secret="secret", token_url="https://id.example/token")
    person = OAuthAuthorizationCode(client_id="shop", client_secret="secret", issuer="https://id.example")
    servers = [MCPServer.http("https://shop.example/mcp", name=each.type, auth=each) for each in (machine, person)]
    Agent(model, tools=[*servers, MCPServer.in_memory(Shop("books"), name="own", request_timeout=5)])


async def check_deps_and_options(model: ModelProvider) -> None:
    agent = Agent(model, deps_type=Shop, output_type=Invoice, tools=[find_customer])
    assert_type(agent, Agent[Shop, Invoice])
    Agent(model, deps_type=Shop, instructions=lambda ctx: f"You work for {ctx.deps.name}.")
    limits = RunLimits(turns=3, tool_calls=5, tokens=1000, seconds=2.5, cost=0.1)
    await agent.run("Hello", deps=Shop("tea"), limits=limits, parallel_tool_calls=False, run_id="run_1")
    await agent.run("Hello", deps=Shop("tea"), functions=[ToolSpec(name="f")], tool_choice=ToolChoice(mode="none"))
    await agent.run("Hello", deps=Shop("tea"), hooks=[Guard()], on_approval=approve, on_elicitation=answer)
    options: RunOptions[Shop] = {"deps": Shop("tea"), "limits": limits}
    await agent.run("Hello", **options)
    async with agent as opened:
        assert_type(opened, Agent[Shop, Invoice])
    with agent as opened:
        opened.run_sync("Hello", deps=Shop("tea"))


class Guard(Hooks[Shop]):
    async def before_run(self, ctx: RunContext[Shop], items: Sequence[Item]) -> None:
        assert_type(ctx.deps, Shop)

    async def before_turn(self, ctx: RunContext[Shop], request: ModelRequest) -> ModelRequest | None:
        return replace(request, temperature=0.0) if ctx.turn > 1 else None

    async def after_turn(self, ctx: RunContext[Shop], answer: ModelAnswer) -> None:
        assert_type(answer.usage, Usage)

    async def before_call(
        self, ctx: RunContext[Shop], call: RequestedCall
    ) -> ChangeArguments | AnswerCall | RefuseCall | AskPerson | None:
        match call.tool:
            case "delete":
                return RefuseCall(reason="Never.")
            case "pay":
                return AskPerson(question="May it pay?")
            case "time":
                return AnswerCall(text="12:00")
            case "search":
                return ChangeArguments(arguments={**call.arguments, "limit": 3})
            case _:
                return None

    async def after_call(self, ctx: RunContext[Shop], call: RequestedCall, result: ToolResult) -> ToolResult | None:
        return replace(result, content=(TextContent(text=result.text.upper()),))

    async def after_run(self, ctx: RunContext[Shop], result: RunResult[Any]) -> None:
        assert_type(result.cost, float | None)


class AnyGuard(Hooks[Any]):
    """For agents of all kinds of deps. A narrower return type is allowed."""

    async def before_call(self, ctx: RunContext[Any], call: RequestedCall) -> RefuseCall:
        return RefuseCall(reason="Never.")


async def approve(ctx: RunContext[Shop], call: RequestedCall) -> bool | RefuseCall:
    return True if call.server == "files" else RefuseCall(reason=f"{ctx.deps.name} says no.")


def answer(ctx: RunContext[Shop], question: Elicitation) -> Mapping[str, Any] | None:
    return {"name": ctx.deps.name} if question.server == "forms" else None


async def check_callbacks(model: ModelProvider) -> None:
    Agent(model, deps_type=Shop, hooks=[Guard(), AnyGuard()], on_approval=approve, on_elicitation=answer)
    Agent(model, on_approval=lambda ctx, call: call.tool == "add", hooks=[AnyGuard()])
    from_file: Agent = load_agent("agent.yaml", limits=RunLimits(seconds=60), on_approval=lambda ctx, call: False)
    assert_type((await from_file.run("Hello")).output, str)


async def check_events_by_class(agent: Agent[None, Invoice]) -> None:
    async for event in agent.stream("Hello"):
        match event:
            case RunStarted():
                assert_type(event.run_id, str)
            case TurnStarted() | TurnFinished() | TurnCut():
                assert_type(event.turn, int)
            case StandInAnswered():
                assert_type(event.name, str)
            case TextAdded() | ReasoningAdded() | RunNoticed():
                assert_type(event.text, str)
            case CallAdded() | ToolProgressed():
                assert_type(event.call_id, str)
            case AgentProgressed():
                assert_type(event.agent, str)
            case ItemFinished():
                assert_type(event.item, Item)
            case ToolStarted():
                assert_type(event.arguments, Mapping[str, Any])
            case ToolFinished():
                assert_type(event.seconds, float)
            case RunFinished():
                assert_type(event.result.output, Invoice)
            case _:
                assert_never(event)


async def check_events_by_type(agent: Agent[None, Invoice]) -> None:
    async for event in agent.stream("Hello"):
        if event.type == "text.added":
            assert_type(event.text, str)
        elif event.type == "run.finished":
            assert_type(event.result.output.total, float)


def check_names(event: Event, item: Item) -> str:
    if isinstance(item, FunctionCall):
        return item.arguments
    return event.type


def check_errors(result: RunResult[Invoice]) -> None:
    try:
        result.raise_for_status()
    except RunError as error:
        assert_type(error.result, RunResult[Any])
    except ModelError as error:
        assert_type(error.retry_after, float | None)

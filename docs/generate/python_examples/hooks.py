"""Examples of hooks, approvals and limits."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 50

EXAMPLES = (
    Example(
        title="Watch and change tool calls",
        about=(
            "Hooks see each run, turn and call; see [the guide](../guides/hooks-and-limits.md). `before_call` may "
            "change a call, answer it, refuse it, or have a person asked. `after_call` sees the result."
        ),
        names=(
            "AnswerCall",
            "CallDecision",
            "ChangeArguments",
            "Hooks",
            "RefuseCall",
            "RequestedCall",
            "ToolResult",
        ),
        code="""\
from holodeck import (
    Agent,
    AnswerCall,
    CallDecision,
    ChangeArguments,
    Hooks,
    RefuseCall,
    RequestedCall,
    RunContext,
    ToolResult,
)
from holodeck.testing import ScriptedModel, call, say


def price(product: str, count: int) -> float:
    return 3.5 * count


class Guard(Hooks):
    async def before_call(self, ctx: RunContext[None], call: RequestedCall) -> CallDecision | None:
        if call.arguments["product"] == "water":
            return AnswerCall(text="free")
        if call.arguments["product"] == "wine":
            return RefuseCall(reason="We have no wine.")
        if call.arguments["count"] > 9:
            return ChangeArguments(arguments={**call.arguments, "count": 9})
        return None

    async def after_call(self, ctx: RunContext[None], call: RequestedCall, result: ToolResult) -> None:
        print(ctx.turn, call.name, call.arguments["product"], result.text)


calls = [call("price", product=each, count=12) for each in ("tea", "water", "wine")]
agent = Agent(ScriptedModel(*calls, say("Done.")), tools=[price], hooks=[Guard()])
print(agent.run_sync("What do they cost?").output)""",
        output="""\
1 price tea 31.5
2 price water free
3 price wine We have no wine.
Done.""",
    ),
    Example(
        title="Ask a person",
        about=(
            "`on_approval` is asked about calls that need an approval, by a rule of their server or by `AskPerson` of "
            "a hook. `on_elicitation` is asked the questions of servers."
        ),
        names=("AskPerson", "Elicitation"),
        code="""\
import asyncio

from holodeck import Agent, AskPerson, Elicitation, Hooks, MCPServer, RequestedCall, RunContext
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say


class AskAlways(Hooks):
    async def before_call(self, ctx: RunContext[None], call: RequestedCall) -> AskPerson:
        return AskPerson(question="May it run?")


def approve(ctx: RunContext[None], call: RequestedCall) -> bool:
    print(call.question, call.server, call.tool)
    return True


def answer(ctx: RunContext[None], question: Elicitation) -> dict[str, str] | None:
    print(question.server, "asks:", question.message)
    return {"name": "Ada"}


async def main() -> None:
    async with FaultyMCPServer() as server:
        model = ScriptedModel(call("ask_elicitation"), say("Hello Ada."))
        agent = Agent(model, tools=[MCPServer.http(server.url, name="forms")], hooks=[AskAlways()])
        result = await agent.run("Ask me.", on_approval=approve, on_elicitation=answer)
        print(result.output)


asyncio.run(main())""",
        output="""\
May it run? forms ask_elicitation
forms asks: What is your name?
Hello Ada.""",
    ),
    Example(
        title="Limit a run",
        about="A run that reaches a limit is `incomplete`, and `cause` of its result names the limit.",
        names=("RunLimits",),
        code="""\
from holodeck import Agent, RunLimits
from holodeck.testing import ScriptedModel, call, spend


def look_up(word: str) -> str:
    return "a drink"


model = ScriptedModel([call("look_up", word="tea"), spend(900, 200)])
result = Agent(model, tools=[look_up], limits=RunLimits(turns=8, seconds=30)).run_sync(
    "What is tea?", limits=RunLimits(tokens=1000)
)
print(result.status, result.cause, result.reason)""",
        output="incomplete max_tokens The limit of 1000 tokens is reached; 1 more tool call was not run.",
    ),
)

"""Examples of agents."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 10

EXAMPLES = (
    Example(
        title="Make an agent",
        about=(
            "A model, instructions and tools: functions, and [MCP servers](#use-an-mcp-server). `output_type` makes "
            "the answer an object of yours. A function that asks for a `RunContext` finds the `deps` of the run in it."
        ),
        names=("Agent", "RunContext", "RunOptions", "RunResult"),
        code='''\
from dataclasses import dataclass

from holodeck import Agent, RunContext, RunOptions, RunResult
from holodeck.testing import ScriptedModel, call, say


@dataclass
class Offer:
    product: str
    euros: float


def price(context: RunContext[dict[str, float]], product: str) -> float:
    """Price of a product in euros."""
    return context.deps[product]


agent = Agent(
    ScriptedModel(call("price", product="tea"), say('{"product": "tea", "euros": 3.5}')),
    instructions="Answer with an offer.",
    tools=[price],
    output_type=Offer,
    deps_type=dict[str, float],
)
options: RunOptions[dict[str, float]] = {"deps": {"tea": 3.5}}
result: RunResult[Offer] = agent.run_sync("What does tea cost?", **options)
print(result.output.euros, result.tool_calls)''',
        output="3.5 1",
    ),
    Example(
        title="Let an agent ask another one",
        about=(
            "An agent among the tools of another one is asked by calls. What it spends counts in the result of its "
            "caller, and its events are inside `AgentProgressed`. See [Agents that ask agents]"
            "(../guides/agents-that-ask-agents.md)."
        ),
        names=("AgentTool", "AgentProgressed"),
        code="""\
import asyncio

from holodeck import Agent, AgentProgressed, AgentTool, TextAdded
from holodeck.testing import ScriptedModel, call, say

librarian = Agent(ScriptedModel(say("Emma, by Jane Austen.")), name="librarian", description="Knows all novels.")
novels: AgentTool = librarian.as_tool(name="find_novel")
agent = Agent(ScriptedModel(call("find_novel", question="A novel about a matchmaker?"), say("Emma.")), tools=[novels])


async def main() -> None:
    async for event in agent.stream("Which novel?"):
        match event:
            case AgentProgressed(agent=name, event=TextAdded(text=text)):
                print(f"{name}: {text}")
            case TextAdded(text=text):
                print(text)


asyncio.run(main())""",
        output="""\
librarian: Emma, by Jane Austen.
Emma.""",
    ),
    Example(
        title="Run an agent of a file",
        about=(
            "Inside `async with`, the agent's servers and connections stay open from run to run. "
            "`load_agent` is `Agent.from_file`."
        ),
        names=("__version__", "load_agent"),
        code="""\
import asyncio

import holodeck


async def main() -> None:
    async with holodeck.load_agent("agent.yaml") as agent:
        result = await agent.run('Call price with {"product": "tea"}')
        print(agent.name, result.status, result.turns, result.tool_calls)
        print(result.text)


asyncio.run(main())
print("HoloDeck", holodeck.__version__)""",
        output="""\
shop completed 2 1
[rehearsal] `price` answered: 3.50
HoloDeck ...""",
    ),
)

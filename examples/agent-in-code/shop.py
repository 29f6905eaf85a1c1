"""An agent made in code: a function and an MCP server as tools, and an object as the answer."""

import sys
from dataclasses import dataclass

from holodeck import Agent, MCPServer, RunContext


@dataclass
class Shop:
    prices: dict[str, float]


@dataclass
class Offer:
    product: str
    euros: float


def price(context: RunContext[Shop], product: str) -> float:
    """Price of a product.

    Args:
        product: Its name, such as "tea".
    """
    return context.deps.prices[product]


clock = MCPServer.stdio("uvx", "mcp-server-time", name="clock")
seller = Agent(
    "rehearsal",  # needs no key; "openai:gpt-5-mini" is another
    name="seller",
    instructions="You sell things. Answer in one sentence.",
    tools=[price, clock],
    deps_type=Shop,
)
clerk = seller.with_(name="clerk", instructions="Answer with an offer.", output_type=Offer)

if __name__ == "__main__":
    print(seller.run_sync(" ".join(sys.argv[1:]), deps=Shop(prices={"tea": 3.5})).output)

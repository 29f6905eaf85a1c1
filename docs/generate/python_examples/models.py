"""Examples of models."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 40

EXAMPLES = (
    Example(
        title="Choose a model",
        about="A text such as `openai:gpt-5-mini` names a model. An `LLM` has its settings, too, and a price.",
        names=("LLM", "Price"),
        code="""\
from holodeck import LLM, Agent, Price

cheap = Agent("rehearsal")
priced = Agent(LLM(provider="rehearsal", temperature=0.2, price=Price(input=0.25, output=2)))
print(cheap.run_sync("Hello").cost)
print(priced.run_sync("Hello").cost > 0)""",
        output="""\
None
True""",
    ),
)

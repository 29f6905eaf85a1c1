"""The programs on `reference/python.md`. The tests of the pages run them and compare what they print."""

from __future__ import annotations

from dataclasses import dataclass

INTRO = '''\
You can run an agent from your own program, and test it without a model that costs money. These names are public;
other modules may change at any time.

The examples use this tool and its agent:

```python
# tools/prices.py
def price(product: str) -> str:
    """Price of a product in euros."""
    return {"tea": "3.50"}.get(product, "unknown")
```

```yaml
# agent.yaml
name: shop
model:
  provider: rehearsal
instructions: Answer in one sentence.
tools:
  - name: price
    type: function
    file: tools/prices.py
    function: price
```'''


@dataclass(frozen=True, kw_only=True)
class Example:
    """One program: `names` are the public names that it shows."""

    title: str
    about: str
    code: str
    output: str
    names: tuple[str, ...]


EXAMPLES = {
    "holodeck": (
        Example(
            title="Run an agent",
            about="Leaving `async with` closes the agent's servers and connections.",
            names=("Agent", "RunResult", "__version__", "load_agent"),
            code="""\
import asyncio

import holodeck


async def main() -> None:
    async with holodeck.load_agent("agent.yaml") as agent:
        result: holodeck.RunResult = await agent.run('Call price with {"product": "tea"}')
        print(agent.name, result.status, result.turns, result.tool_calls)
        print(result.text)


asyncio.run(main())
print("HoloDeck", holodeck.__version__)""",
            output="""\
shop completed 2 1
[rehearsal] `price` answered: 3.50
HoloDeck ...""",
        ),
        Example(
            title="Handle errors",
            about=(
                "`ConfigError` carries every problem of a file at once. `HoloDeckError` is the base of all errors that "
                "are not bugs. A run that fails raises nothing: its result has the status `failed` and the `error`."
            ),
            names=("ConfigError", "HoloDeckError"),
            code="""\
from pathlib import Path

from holodeck import ConfigError, HoloDeckError, load_agent

Path("broken.yaml").write_text("name: broken\\nmax_turns: 0\\nmodle: {provider: rehearsal}\\n")
try:
    load_agent("broken.yaml")
except ConfigError as error:
    for problem in error.problems:
        print(problem.where, problem.message, problem.fix)
    print(isinstance(error, HoloDeckError))""",
            output="""\
broken.yaml:2:1 'max_turns' must be at least 1
broken.yaml:3:1 unknown key 'modle' Did you mean 'model'?
True""",
        ),
    ),
    "holodeck.testing": (
        Example(
            title="Script a model",
            about=(
                "A scripted model answers each request with the next turn of its script: a step, or a list of steps. "
                "The agent, its tools and the loop are the real ones."
            ),
            names=("ScriptedModel", "call", "call_raw", "fail", "finish", "say", "spend", "think", "wait"),
            code="""\
import asyncio

from holodeck import load_agent
from holodeck.testing import ScriptedModel, call, call_raw, fail, finish, say, spend, think, wait


async def main() -> None:
    tea_is_ready = asyncio.Event()
    model = ScriptedModel(
        [think("I need the price."), call("price", product="tea"), spend(20, 5)],
        say("Tea costs 3.50 euros."),
        call_raw("price", "{no JSON"),
        [say("A long ans"), finish("length")],
        fail("the model is overloaded"),
        [wait(tea_is_ready), say("Here is your tea.")],
    )
    async with load_agent("agent.yaml", model=model) as agent:
        result = await agent.run("What does tea cost?")
        print(result.text, result.tool_calls, result.usage.input_tokens)
        result = await agent.run("And coffee?")
        print(result.status, result.text, result.reason)
        result = await agent.run("And milk?")
        print(result.status, result.error.message)
        tea_is_ready.set()
        print((await agent.run("A tea, please")).text)


asyncio.run(main())""",
            output="""\
Tea costs 3.50 euros. 1 20
incomplete A long ans The answer was cut at the limit of tokens.
failed the model is overloaded
Here is your tea.""",
        ),
        Example(
            title="A server that fails",
            about=(
                "`FaultyMCPServer` is an MCP server with real tools (`add` is one) and one fault that you choose. Here "
                "the first call is answered with HTTP 503, and the model gets that as the result of its call."
            ),
            names=("ABANDONED", "Era", "Fault", "FaultyMCPServer", "Received", "Transport"),
            code="""\
import asyncio
from pathlib import Path

from holodeck import load_agent
from holodeck.testing import ABANDONED, Era, Fault, FaultyMCPServer, Received, ScriptedModel, Transport, call, say

AGENT = "name: sums\\ntools: [{{name: sums, type: mcp, transport: http, url: '{url}'}}]\\n"


async def main() -> None:
    era: Era = "modern"
    transport: Transport = "http"
    async with FaultyMCPServer(Fault.HTTP_503, on="tools/call", times=1, era=era, transport=transport) as server:
        Path("sums.yaml").write_text(AGENT.format(url=server.url))
        model = ScriptedModel(call("add", a=1, b=2), call("add", a=1, b=2), say("It is 3."))
        async with load_agent("sums.yaml", model=model) as agent:
            result = await agent.run("What is 1 + 2?")
        calls: list[Received] = await server.received("tools/call", count=2)
        print(result.text, [(each.name, each.params["arguments"]) for each in calls])
        print(result.items[1].is_error, result.items[3].is_error)
        print(ABANDONED in {each.method for each in calls})


asyncio.run(main())""",
            output="""\
...
It is 3. [('add', {'a': 1, 'b': 2}), ('add', {'a': 1, 'b': 2})]
True False
False""",
        ),
        Example(
            title="A server that is a process",
            about=(
                "`stand_in` writes a program named `npx` that starts the faulty server instead of a package. The "
                "server writes a journal of what it received."
            ),
            names=("Journal", "read_pids", "stand_in", "stand_in_calls"),
            code="""\
import asyncio
import os
from pathlib import Path

from holodeck import load_agent
from holodeck.testing import FaultyMCPServer, Journal, ScriptedModel, call, read_pids, say, stand_in, stand_in_calls

folder = Path("bin").absolute()
journal, pid_file = folder / "journal", folder / "pids"
os.environ.update(stand_in(folder, FaultyMCPServer.command("normal", journal=journal, pid_file=pid_file)))
Path("process.yaml").write_text("name: sums\\ntools: [{name: sums, type: mcp, command: npx, server: sums}]\\n")


async def main() -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("It is 3."))
    async with load_agent("process.yaml", model=model) as agent:
        print((await agent.run("What is 1 + 2?")).text)


asyncio.run(main())
print(stand_in_calls(folder))
print(Journal(journal).requests[-1].method, len(read_pids(pid_file)))""",
            output="""\
It is 3.
[['-y', 'sums']]
tools/call 1""",
        ),
    ),
}
NAMES_IN_EXAMPLES = {
    (module, name): example.title
    for module, examples in EXAMPLES.items()
    for example in examples
    for name in example.names
}
"""The title of the example that shows a name, by the module and the name."""
OTHER_MEANINGS = {
    "__version__": "The version of HoloDeck, such as `0.1.0`.",
    "ABANDONED": "The method that is recorded when a client closes a response stream before its answer.",
    "Era": "The generation of the protocol. `legacy`: handshake and sessions, up to 2025-11-25. `modern`: stateless, "
    "2026-07-28.",
    "Transport": "How a `FaultyMCPServer` is reached.",
}
"""What names are that have no docstring: constants and types."""

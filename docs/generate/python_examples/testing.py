"""Examples of `holodeck.testing`."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck.testing"
PLACE = 100

EXAMPLES = (
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
        title="See what a prompt cache saves",
        about=(
            "A scripted model that is served in the dialect `anthropic` can have a `PromptCache`. It counts the tokens "
            "of requests as Anthropic's does, and refuses marks that the API refuses."
        ),
        names=("PromptCache",),
        code="""\
import asyncio

from holodeck import LLM, Agent, Session
from holodeck.testing import PromptCache, ScriptedModel, say


async def main() -> None:
    cache = PromptCache(minimum=512)
    async with ScriptedModel(say("Hi."), say("Still here.")).serve("anthropic", prompt_cache=cache) as server:
        model = LLM(provider="anthropic", name="claude-sonnet-4-5", endpoint=server.url, api_key="key")
        async with Agent(model, instructions="Be brief. " * 400) as agent:
            session = Session()
            await agent.run("Hello", session=session)
            await agent.run("Are you there?", session=session)
    for usage in cache.billed:
        print(usage.input_tokens, "sent,", usage.cache_write_tokens, "stored,", usage.cached_tokens, "read")


asyncio.run(main())
""",
        output="1021 sent, 1021 stored, 0 read\n1048 sent, 27 stored, 1021 read\n",
    ),
    Example(
        title="An identity provider",
        about=(
            "`IdentityProvider` is an OpenID Connect provider on this machine, for tests of programs that persons log "
            'in to. With `like="entra"` it behaves as Microsoft\'s. `person` has the claims of the person at its login '
            "page, and `sign` makes a token with any claims."
        ),
        names=("IdentityProvider",),
        code="""\
import asyncio

import jwt
from holodeck.testing import IdentityProvider


async def main() -> None:
    async with IdentityProvider("entra", client_id="my-program") as provider:
        provider.person = {"sub": "anna", "groups": ["research"]}
        token = provider.sign({"sub": "anna", "groups": ["research"]})
        print(provider.issuer.removeprefix(provider.url))
        print(jwt.decode(token, options={"verify_signature": False})["groups"])


asyncio.run(main())
""",
        output="/tenant/v2.0\n['research']\n",
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
    Example(
        title="A recorded run",
        about=(
            "A cassette has what the model and the MCP servers of an agent said. While it is open, agents are "
            "recorded, or replayed from it. The page [Cassettes](../guides/cassettes.md) has more."
        ),
        names=("OpenedCassette", "cassette"),
        code="""\
from holodeck import Agent, CassetteMismatchError
from holodeck.testing import OpenedCassette, ScriptedModel, cassette, say

with cassette("greeting.yaml", record="always"):
    Agent(ScriptedModel(say("Good day."))).run_sync("Hello?")

silent = Agent(ScriptedModel())
opened: OpenedCassette = cassette("greeting.yaml", record="never")
with opened:
    print(silent.run_sync("Hello?").text, opened.unused)

try:
    with cassette("greeting.yaml", record="never"):
        silent.run_sync("Goodbye?")
except CassetteMismatchError as error:
    print(error.entry, error.diff.splitlines()[-1])""",
        output="""\
Good day. []
1 +  - user: Goodbye?""",
    ),
)

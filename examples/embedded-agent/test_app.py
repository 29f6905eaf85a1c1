"""The agent without a model of its own: the script says what the model does, the tools are real."""

import asyncio

import holodeck
from holodeck.testing import ScriptedModel, call, say


def test_the_agent_reads_the_notes() -> None:
    async def ask() -> holodeck.RunResult:
        model = ScriptedModel(call("read_text_file", path="notes.md"), say("On Friday."))
        async with holodeck.Agent.from_file("agent.yaml", model=model) as agent:
            return await agent.run("When is the launch?")

    result = asyncio.run(ask())
    assert (result.text, result.tool_calls) == ("On Friday.", 1)

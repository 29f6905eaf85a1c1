"""The agent as it was recorded: no model is asked, no server is started, and its answers are the same every time."""

import asyncio

import holodeck


def test_the_agent_reads_the_price_list(cassette) -> None:
    """The fixture finds the recording in cassettes/test_agent/test_the_agent_reads_the_price_list.yaml."""
    result = asyncio.run(holodeck.Agent.from_file("agent.yaml").run("Read the file prices.md"))
    assert "A pen costs 3 euros." in result.text
    assert [item.name for item in result.items if item.type == "function_call"] == ["read_text_file"]

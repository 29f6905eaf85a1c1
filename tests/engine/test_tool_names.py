"""The names under which the tools of several servers are offered: a function of the configuration."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from async_tests import async_test
from engine.scripted_agent import offered_tools, open_agent, server_entry, tool_outputs
from gateway.changing_server import ChangingServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.runtime import People
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.tools.mcp.names import assign_names, model_names


@pytest.mark.proves("D-18", "D-37")
@async_test
async def test_a_server_does_not_get_the_names_of_an_earlier_one_that_is_down(tmp_path: Path) -> None:
    approvals: list[tuple[str, str]] = []

    async def approve(server_name: str, tool: str, arguments: object) -> bool:
        approvals.append((server_name, tool))
        return True

    model = ScriptedModel(*[call("add", a=1, b=2), say("No.")] * 3)
    async with FaultyMCPServer(down=True) as bank, FaultyMCPServer() as hostile:
        tools = [server_entry("bank", bank.url, approval={"always": ["add"]}), server_entry("hostile", hostile.url)]
        async with open_agent(tmp_path, model, tools, people=People(approve=approve)) as agent:
            await agent.run("one")
            assert "hostile__add" in offered_tools(model.requests[0])
            assert tool_outputs(model.requests[1])["call_1"][1], "nothing else has the name while its owner is down"
            assert hostile.calls() == []
            await bank.come_up()
            while "bank" in agent.mcp.failures:
                await agent.mcp.specs()
            await agent.run("two")
            assert approvals == [("bank", "add")]
            assert (len(bank.calls("add")), hostile.calls()) == (1, [])
            await bank.go_down()
            await agent.run("three")
            assert tool_outputs(model.requests[5])["call_3"][1]
            assert hostile.calls() == []


@pytest.mark.proves("D-18", "D-37")
@async_test
async def test_a_name_that_changes_its_meaning_during_a_run_is_neither_offered_nor_executed(tmp_path: Path) -> None:
    has_moved = asyncio.Event()
    thinking = wait(has_moved)
    model = ScriptedModel(
        [thinking, call("grown_1")],
        call("grown_1"),
        say("Neither."),
        [call("grown_1"), call("late__grown_1")],
        say("Both."),
    )
    async with FaultyMCPServer() as early, ChangingServer("grown_1").serve() as late:
        tools = [server_entry("early", early.url), server_entry("late", late.url)]
        async with open_agent(tmp_path, model, tools) as agent:
            run = asyncio.create_task(agent.run("one"))
            await thinking.reached.wait()
            assert agent.mcp.target_of("grown_1") == ("late", "grown_1")
            await early.listening()
            await early.grow()
            while agent.mcp.target_of("grown_1") != ("early", "grown_1"):
                # Lets the notification arrive: a list that is at hand is returned without a pause.
                await asyncio.sleep(0)
                await agent.mcp.specs()
            has_moved.set()
            await run
            text, is_error = tool_outputs(model.requests[1])["call_1"]
            assert (is_error, "not run" in text) == (True, True)
            assert "grown_1" not in offered_tools(model.requests[1])
            assert "late__grown_1" in offered_tools(model.requests[1])
            assert tool_outputs(model.requests[2])["call_2"][1]
            assert (early.calls("grown_1"), late.calls) == ([], [])
            await agent.run("two")
            assert (len(early.calls("grown_1")), late.calls) == (1, ["grown_1"])


@pytest.mark.parametrize(
    ("servers", "expected"),
    [
        pytest.param({"a": ["t"], "b": ["u"]}, ["t", "u"], id="no clash"),
        pytest.param({"a": ["t"], "b": ["t"], "c": ["t"]}, ["t", "b__t", "c__t"], id="the first has it"),
        pytest.param({"a": None, "b": ["t"]}, ["b__t"], id="the first may have it"),
        pytest.param({"a": ["t"], "b": None, "c": ["u"]}, ["t", "c__u"], id="one in the middle may have it"),
        pytest.param({"x": ["bank__pay"], "bank": ["pay"]}, ["x__bank__pay", "pay"], id="the name of another's tool"),
        pytest.param({"bank": ["pay"], "x": ["bank__pay"]}, ["pay", "x__bank__pay"], id="likewise of an earlier one"),
        pytest.param({"x": ["bank__pay"], "bank": None}, ["x__bank__pay"], id="which is not even there"),
        pytest.param({"a": ["a__t"], "b": ["u"]}, ["a__t", "u"], id="one's own prefix"),
        pytest.param({"z": ["t", "u"], "a": ["t", "a__t"]}, ["t", "u", "a__t", "a__t-d56aaac1"], id="it has both"),
        pytest.param({"z": ["b__c", "c"], "a": ["b__c"], "a__b": ["c"]}, None, id="one server begins as another"),
    ],
)
def test_names_of_several_servers(servers: dict[str, list[str] | None], expected: list[str] | None) -> None:
    names = assign_names([(name, None if own is None else model_names(own)) for name, own in servers.items()])
    assert len(set(names.values())) == len(names)
    if expected is not None:
        assert list(names.values()) == expected


_NAMES = st.sampled_from(["t", "a.t", "a-t", "a__t", "b__t", "a__b__t", "b__a__t", "x" * 70])
_SERVERS = st.dictionaries(
    st.sampled_from(["a", "b", "a__b", "c" * 64]), st.none() | st.lists(_NAMES, unique=True), max_size=4
)


@pytest.mark.proves("D-18", "D-37")
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(_SERVERS)
def test_no_server_has_a_name_that_an_earlier_one_has_or_may_have(servers: dict[str, list[str] | None]) -> None:
    listed = [(name, None if own is None else model_names(own)) for name, own in servers.items()]
    names = assign_names(listed)
    assert len(set(names.values())) == len(names) == sum(len(own or ()) for own in servers.values())
    assert all(len(name) <= MAX_TOOL_NAME_CHARS for name in names.values())
    for (owner, tool), name in names.items():
        before = listed[: list(servers).index(owner)]
        is_bare = name == model_names(servers[owner] or ())[tool]
        assert not is_bare or all(own is not None and name not in own.values() for _, own in before)
        assert not is_bare or not any(name.startswith(f"{other}__") for other in servers if other != owner)
        for late in servers:  # what a later server lists, or whether it has, changes nothing for an earlier one
            if list(servers).index(late) > list(servers).index(owner):
                without = assign_names([(name, None if name == late else own) for name, own in listed])
                assert without[owner, tool] == name

"""Agents among the tools of an agent file: their files are read, checked, trusted, and may not ask in a circle."""

from __future__ import annotations

from pathlib import Path

import pytest
from agent_folder import AgentFolder

from holodeck.config.actions import list_actions
from holodeck.lib.errors import ConfigError
from holodeck.runtime import read_gateway

ASKS = "name: boss\ntools: [{type: agent, name: ask, file: %s}]\n"


def test_the_file_of_an_agent_that_is_asked_is_relative_to_the_one_that_names_it(folder: AgentFolder) -> None:
    folder.write("team/helper.yaml", "name: helper\ntools: [{type: agent, name: deeper, file: ../other/last.yaml}]\n")
    folder.write("other/last.yaml", "name: last\n")
    loaded = folder.load(ASKS % "team/helper.yaml")
    helper = loaded.agents["ask"]
    assert (helper.agent.name, helper.agents["deeper"].agent.name) == ("helper", "last")


@pytest.mark.parametrize(
    ("tool", "key", "message"),
    [
        ("{type: agent, name: a}", "tools[0].file", "'file' or 'agent' is required"),
        ("{type: agent, name: a, file: b.yaml, agent: b}", "tools[0].agent", "give 'file' or 'agent', not both"),
        ("{type: agent, name: a, file: no.yaml}", "tools[0].file", "cannot read 'no.yaml': there is no such file"),
        (
            "{type: agent, name: a, agent: b}",
            "tools[0].agent",
            "'b' names an agent of a gateway, and no gateway serves this file here",
        ),
        (
            "{type: agent, name: a, file: agent.yaml}",
            "tools[0].file",
            "the agents ask each other in a circle: agent.yaml -> agent.yaml",
        ),
    ],
)
def test_an_agent_that_cannot_be_asked_is_an_error(folder: AgentFolder, tool: str, key: str, message: str) -> None:
    folder.write("b.yaml", "name: b\n")
    (problem,) = folder.load_errors(f"name: boss\ntools: [{tool}]\n")
    assert (problem.key, problem.message) == (key, message)


def test_a_circle_and_a_mistake_are_told_with_the_file_that_has_them(folder: AgentFolder) -> None:
    folder.write("b.yaml", "name: b\nauthr: x\ntools: [{type: agent, name: back, file: agent.yaml}]\n")
    unknown, circle = folder.load_errors(ASKS % "b.yaml")
    assert unknown.file.endswith("b.yaml")
    assert unknown.message == "unknown key 'authr'"
    assert circle.message == "the agents ask each other in a circle: agent.yaml -> b.yaml -> agent.yaml"


def test_agents_of_files_ask_at_most_eight_deep(folder: AgentFolder) -> None:
    for number in range(1, 9):
        folder.write(f"a{number}.yaml", ASKS % f"a{number + 1}.yaml")
    folder.write("a9.yaml", "name: last\n")
    (problem,) = folder.load_errors(ASKS % "a1.yaml")
    assert problem.message == "agents ask agents more than 8 deep"
    assert folder.load(ASKS % "a3.yaml").agent.name == "boss"


def test_what_an_agent_that_is_asked_would_do_is_in_the_trust_digest(folder: AgentFolder) -> None:
    digests = []
    for host in ("one", "two", "two"):
        url = f"https://{host}.example.com"
        folder.write(
            "b.yaml", f"name: b\ntools: [{{type: mcp, name: s, description: d, transport: http, url: '{url}'}}]\n"
        )
        actions = list_actions(folder.load(ASKS % "b.yaml"))
        assert [(each.kind, each.name) for each in actions.actions] == [("connection", "ask/s")]
        digests.append(actions.digest)
    assert digests[0] != digests[1] == digests[2]


def _read_gateway(folder: AgentFolder, **agents: str) -> None:
    for name, tools in agents.items():
        folder.write(f"{name}.yaml", f"name: {name}\ntools: [{tools}]\n")
    entries = ", ".join(f"{{file: {name}.yaml}}" for name in agents)
    folder.write("gateway.yaml", f"agents: [{entries}]\n")
    read_gateway(folder.path / "gateway.yaml", environ={}, home=folder.home)


def _ask(agent: str) -> str:
    return f"{{type: agent, name: ask_{agent}, agent: {agent}}}"


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        ({"boss": _ask("helpr"), "helper": ""}, "the gateway has no agent 'helpr'"),
        (
            {"boss": _ask("helper"), "helper": _ask("boss")},
            "the agents ask each other in a circle: boss -> helper -> boss",
        ),
        (
            {"boss": "{type: agent, name: a, file: loose/last.yaml}"},
            "this agent starts processes, and the gateway's file does not say 'allow_stdio: true'",
        ),
    ],
    ids=["unknown", "circle", "process"],
)
def test_agents_of_a_gateway_that_cannot_be_asked_are_an_error(
    folder: AgentFolder, agents: dict[str, str], message: str
) -> None:
    server = "{type: mcp, name: s, description: d, command: npx, server: s}"
    folder.write("loose/last.yaml", f"name: last\ntools: [{server}]\n")
    with pytest.raises(ConfigError) as caught:
        _read_gateway(folder, **agents)
    assert [each.message for each in caught.value.problems if each.severity == "error"] == [message]


def test_an_agent_of_a_gateway_may_ask_one_that_is_listed_after_it(folder: AgentFolder) -> None:
    _read_gateway(folder, boss=_ask("helper"), helper="")


def test_an_agent_is_no_server(folder: AgentFolder, tmp_path: Path) -> None:
    folder.write("config.yaml", "mcp_servers: [{type: agent, name: a, file: b.yaml}]\n")
    assert "an agent is no MCP server" in [each.message for each in folder.load_errors("name: demo\n")]

"""What an MCP tool would start, and what is refused before anything starts."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.mcp.launch_tricks import DOCKER_TRICKS, LAUNCHER_VARIABLES, NPX_TRICKS, UVX_TRICKS, VARIABLES
from tools.mcp.readme_servers import NEEDS_THE_OPT_IN, READY

from holodeck.lib.errors import MCPConfigError
from holodeck.lib.secret import Secret
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.launch.plan import describe_launch, find_refusals, plan_launch
from holodeck.tools.mcp.launch.refusal import Refusal

OPT_IN = "allow_unsafe_args: true"

OWN_MEMORY = "--cap-drop=ALL --security-opt=no-new-privileges --pids-limit=512"
FLAGS = f"{OWN_MEMORY} --memory=2g"


def a_tool(command: str, args: Sequence[str] | None = None, **more: Any) -> MCPTool:
    fields: dict[str, Any] = {"name": "it", "description": "A server.", "command": command, **more}
    return MCPTool.model_validate(fields if args is None else {**fields, "args": list(args)})


def of_line(line: str, variables: str = "", **more: Any) -> MCPTool:
    command, *args = shlex.split(line)
    return a_tool(command, args, env=dict.fromkeys(variables.split(), "value"), **more)


def keys(found: Sequence[Refusal]) -> list[tuple[str | int, ...]]:
    return [refusal.key for refusal in found]


class TestPlan:
    @pytest.mark.proves("D-8")
    @pytest.mark.parametrize(
        ("command", "argv"),
        [
            ("npx", ("npx", "-y", "@scope/server")),
            ("uvx", ("uvx", "@scope/server")),
            ("docker", ("docker", "run", "--init", *FLAGS.split(), "--rm", "-i", "@scope/server")),
        ],
    )
    def test_a_server_without_arguments_is_started_by_its_name(self, command: str, argv: tuple[str, ...]) -> None:
        assert plan_launch(a_tool(command, server=" @scope/server ")).argv == argv
        assert plan_launch(a_tool(command, [], server="@scope/server")).argv == argv

    def test_arguments_variables_and_folder_reach_the_process_as_written(self) -> None:
        launch = plan_launch(a_tool("npx", ["-y", "pkg", "a b"], env={"KEY": "secret"}, cwd="work"))
        assert (launch.argv, launch.cwd, launch.container) == (("npx", "-y", "pkg", "a b"), "work", None)
        assert launch.env == {"KEY": Secret("secret")}
        assert "secret" not in repr(launch)

    def test_config_reaches_the_server_as_json_even_where_yaml_has_more_types(self) -> None:
        config = {
            "since": date(2024, 1, 2),
            "n": [1, None, True, float("inf")],
            "deep": {"ключ": "значение", 3: "three"},
        }
        launch = plan_launch(a_tool("uvx", ["server"], config=config))
        assert json.loads(launch.env["MCP_CONFIG"].reveal()) == {
            "since": "2024-01-02",
            "n": [1, None, True, None],
            "deep": {"ключ": "значение", "3": "three"},
        }
        assert plan_launch(a_tool("uvx", ["server"], config=config, env={"MCP_CONFIG": "mine"})).env == {
            "MCP_CONFIG": Secret("mine")
        }
        assert plan_launch(a_tool("uvx", ["server"])).env == {}

    def test_docker_gets_each_variable_by_name_and_never_by_value(self) -> None:
        tool = a_tool(
            "docker",
            ["run", "-i", "-e", "GIVEN", "-eGLUED", "--env=LITERAL=1", "--rm", "image", "-e", "OF_THE_SERVER"],
            env=dict.fromkeys(["NEW", "GIVEN", "GLUED", "LITERAL", "OF_THE_SERVER"], "hidden"),
            config={"a": 1},
        )
        argv = plan_launch(tool).argv
        added = tuple(flag for flag in argv if flag not in FLAGS.split())
        assert added[:9] == ("docker", "run", "--init", "-e", "NEW", "-e", "OF_THE_SERVER", "-e", "MCP_CONFIG")
        assert added[9:] == tuple(tool.args or ())[1:]
        assert "hidden" not in " ".join(argv)

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("docker run image", f"docker run --rm -i --init {FLAGS} image"),
            (
                "docker run -it --rm=true --init=false image",
                f"docker run {FLAGS} -it --rm=true --init=false image",
            ),
            (
                "docker -D container run --interactive image",
                f"docker -D container run --rm --init {FLAGS} --interactive image",
            ),
            (
                "docker run --memory 1g image --rm",
                f"docker run --rm -i --init {OWN_MEMORY} --memory 1g image --rm",
            ),
        ],
    )
    def test_docker_ends_with_the_tool_whatever_its_arguments_leave_out(self, line: str, expected: str) -> None:
        assert describe_launch(plan_launch(of_line(line))) == expected

    def test_a_container_has_a_name_to_be_removed_by(self) -> None:
        launch = plan_launch(of_line("docker run --rm -i --init image"), container="holodeck-it-1")
        assert describe_launch(launch) == f"docker run {FLAGS} --name holodeck-it-1 --rm -i --init image"
        assert launch.container == "holodeck-it-1"
        own = plan_launch(of_line("docker run --rm -i --init --name=mine image"), container="holodeck-it-1")
        assert describe_launch(own) == f"docker run {FLAGS} --rm -i --init --name=mine image"
        assert own.container == "mine"
        assert plan_launch(of_line("npx -y pkg"), container="holodeck-it-1").container is None

    def test_another_docker_command_is_not_changed(self) -> None:
        line = "docker exec -i box server"
        launch = plan_launch(of_line(line, "KEY", allow_unsafe_args=True), container="holodeck-it-1")
        assert (describe_launch(launch), launch.container) == (line, None)

    def test_the_shown_line_is_one_a_shell_would_read_and_has_no_variable(self) -> None:
        launch = plan_launch(a_tool("npx", ["-y", "pkg", "it's $HOME"], env={"B_KEY": "hidden", "A_KEY": "hidden"}))
        assert describe_launch(launch) == """npx -y pkg 'it'"'"'s $HOME'"""
        assert sorted(launch.env) == ["A_KEY", "B_KEY"]

    @pytest.mark.parametrize(
        "fields", [{"transport": "http", "url": "https://example.com"}, {"enabled": False, "transport": "stdio"}]
    )
    def test_a_server_without_a_command_has_no_launch_plan(self, fields: dict[str, Any]) -> None:
        tool = MCPTool.model_validate({"name": "it", "server": "x", **fields})
        with pytest.raises(MCPConfigError, match="'command' is required"):
            plan_launch(tool)
        assert find_refusals(tool) == []


@pytest.mark.parametrize(("line", "variables"), READY)
def test_a_common_server_starts_as_its_readme_says(line: str, variables: str) -> None:
    assert find_refusals(of_line(line, variables)) == []


@pytest.mark.parametrize(("line", "variables"), NEEDS_THE_OPT_IN)
def test_a_server_that_needs_more_is_refused_until_the_user_allows_it(line: str, variables: str) -> None:
    found = find_refusals(of_line(line, variables))
    assert found
    assert all(OPT_IN in refusal.fix for refusal in found)
    assert find_refusals(of_line(line, variables, allow_unsafe_args=True)) == []


@pytest.mark.proves("D-9")
@pytest.mark.parametrize(("line", "index", "named"), NPX_TRICKS + UVX_TRICKS + DOCKER_TRICKS)
def test_an_argument_that_can_run_other_code_is_refused_by_name(line: str, index: int, named: str) -> None:
    first = find_refusals(of_line(line))[0]
    assert first.key == ("args", index)
    assert named in first.message
    assert OPT_IN in first.fix
    assert "evil" not in first.message
    assert find_refusals(of_line(line, allow_unsafe_args=True)) == []


@pytest.mark.parametrize("line", ["npx -y", "npx --", "uvx -q", "docker run -i --rm", "docker -D"])
def test_a_command_that_names_no_server_is_refused(line: str) -> None:
    assert keys(find_refusals(of_line(line))) == [("args",)]


@pytest.mark.parametrize(
    ("command", "server"),
    [("npx", "--call=evil"), ("npx", "./dir"), ("uvx", "python"), ("uvx", "--from=./dir"), ("docker", "--privileged")],
)
def test_a_server_without_arguments_is_judged_by_its_name(command: str, server: str) -> None:
    found = find_refusals(a_tool(command, server=server))
    assert set(keys(found)) == {("server",)}


def test_a_folder_of_the_container_is_judged_from_where_docker_starts() -> None:
    args = ["run", "-v", ".:/host", "image"]
    assert find_refusals(a_tool("docker", args, cwd="/srv/project")) == []
    assert keys(find_refusals(a_tool("docker", args, cwd="/"))) == [("args", 1)]
    assert keys(find_refusals(a_tool("docker", args, cwd=".."))) == [("args", 1)]
    assert keys(find_refusals(a_tool("docker", args, cwd="/home/u"))) == [("args", 1)]


def test_every_mistake_is_reported_at_once() -> None:
    tool = of_line("docker -H x run --privileged -v /:/h --cap-add ALL image --privileged", "LD_PRELOAD KEY PATH")
    places = [("args", 0), ("args", 3), ("args", 4), ("args", 6), ("env", "LD_PRELOAD"), ("env", "PATH")]
    assert keys(find_refusals(tool)) == places


def test_arguments_after_the_server_are_not_judged() -> None:
    for line in (
        "npx -y pkg -c x --call=x --script-shell y -v /:/h",
        "npx -p pkg -- pkg --package ./x",
        "uvx server --from ./x --python ./y",
        "uvx --from server -- server --with-editable .",
        "docker run image --privileged -v /:/host",
        "docker run -- image --privileged",
    ):
        assert find_refusals(of_line(line)) == []


@pytest.mark.proves("D-9")
@pytest.mark.parametrize(
    ("command", "name"),
    [(command, name) for name in VARIABLES for command in ("npx", "uvx", "docker")] + LAUNCHER_VARIABLES,
)
def test_a_variable_that_can_load_other_code_is_refused_by_name(command: str, name: str) -> None:
    tool = a_tool(command, server="server", env={name: "evil"})
    (refusal,) = find_refusals(tool)
    assert refusal.key == ("env", name)
    assert name in refusal.message
    assert OPT_IN in refusal.fix
    assert "evil" not in refusal.message + refusal.fix
    assert find_refusals(tool.model_copy(update={"allow_unsafe_args": True})) == []


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("npx", "npm_config_loglevel"),
        ("npx", "NPM_CONFIG_UPDATE_NOTIFIER"),
        ("npx", "NODE_ENV"),
        ("npx", "DOCKER_HOST"),
        ("npx", "UV_INDEX"),
        ("uvx", "UV_HTTP_TIMEOUT"),
        ("uvx", "PYTHONUNBUFFERED"),
        ("uvx", "PREFIX"),
        ("docker", "DOCKER_DEFAULT_PLATFORM"),
        ("docker", "API_KEY"),
    ],
)
def test_a_variable_that_only_reaches_the_server_is_fine(command: str, name: str) -> None:
    assert find_refusals(a_tool(command, server="server", env={name: "x"})) == []


@pytest.mark.parametrize("version", ["3", "3.12", "3.13t", ">=3.11,<3.14", "python3.12", "cpython@3.12", "pypy"])
def test_uvx_accepts_a_python_by_its_version(version: str) -> None:
    assert find_refusals(a_tool("uvx", ["--python", version, "server"])) == []


def test_arguments_that_no_process_can_receive_are_refused() -> None:
    tool = a_tool("npx", ["pkg", "a\0b"], env={"A=B": "x", "": "y"})
    assert keys(find_refusals(tool)) == [("args", 1), ("env", "A=B"), ("env", "")]


SECRET = "hunter2secret"  # no flag, package or path: only ever a value


@pytest.mark.parametrize(
    "args",
    [
        ["--from", SECRET + "/x", "y"],
        ["--" + SECRET],
        ["-" + SECRET],
        ["--new=" + SECRET],
        ["./" + SECRET],
        ["-p", SECRET + "/", "y"],
        ["run", "-v", f"/etc/{SECRET}:/x", "i"],
        ["run", "--entrypoint=" + SECRET, "i"],
        ["run", "-v/etc/" + SECRET + ":/x", "i"],
        ["-H" + SECRET, "run", "i"],
        [SECRET, "run"],
    ],
)
@pytest.mark.parametrize("command", ["npx", "uvx", "docker"])
def test_no_value_is_shown_because_it_may_have_come_out_of_a_variable(command: str, args: list[str]) -> None:
    text = "".join(refusal.message + refusal.fix for refusal in find_refusals(a_tool(command, args)))
    assert SECRET not in text


COMMANDS = st.sampled_from(["npx", "uvx", "docker"])
FRAGMENTS = st.sampled_from(
    [
        "\x00",
        ",",
        "-",
        "--",
        "---",
        "--call=",
        "--from",
        "--mount",
        "--name",
        "--network",
        "--package",
        "--python",
        "--rm=false",
        "--with=",
        "--yes=",
        "-H",
        "-c",
        "-e",
        "-iv",
        "-p",
        "-v",
        "-y",
        ".",
        "..",
        "/",
        "/etc",
        ":",
        "=",
        "@",
        "C:\\",
        "[",
        "\\",
        "]",
        "container",
        "host",
        "image",
        "mcp",
        "pkg@1",
        "python",
        "run",
        "sh",
        "type=bind,src=",
        "~",
        "é",
    ]
)
ARGS = st.lists(st.text(max_size=12) | st.lists(FRAGMENTS, max_size=3).map("".join), max_size=8)
NAMES = st.lists(st.text(max_size=8) | st.sampled_from(["PATH", "LD_", "npm_config_x", "UV_", "DOCKER_"]), max_size=4)


@given(command=COMMANDS, args=ARGS, names=NAMES, cwd=st.none() | st.sampled_from(["/", "..", "a/../..", "~", "C:\\"]))
def test_any_arguments_are_judged_and_planned_without_a_fault(
    command: str, args: list[str], names: list[str], cwd: str | None
) -> None:
    tool = a_tool(command, args, server="server", env=dict.fromkeys(names, "x"), cwd=cwd)
    for refusal in find_refusals(tool):
        assert points_inside(tool, refusal.key)
        assert refusal.message
        assert OPT_IN in refusal.fix
    assert find_refusals(tool.model_copy(update={"allow_unsafe_args": True})) == []
    launch = plan_launch(tool, container="box")
    assert launch.argv[0] == command
    assert set(launch.env) == set(names)
    if command != "docker" and args:
        assert list(launch.argv[1:]) == args
    assert shlex.split(describe_launch(launch)) == list(launch.argv)


def points_inside(tool: MCPTool, key: tuple[str | int, ...]) -> bool:
    value: Any = tool.model_dump()
    for step in key:
        value = value[step]
    return True


@given(command=COMMANDS, args=ARGS)
def test_a_planned_docker_run_keeps_every_argument_in_its_order(command: str, args: list[str]) -> None:
    argv = list(plan_launch(a_tool(command, args, server="server")).argv)
    rest = iter(argv)
    assert all(arg in rest for arg in args)

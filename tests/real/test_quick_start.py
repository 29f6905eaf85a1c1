"""What the documentation promises about time: its steps lead to a working server in minutes, and calls take moments.

A machine types the steps, so the limits here are the promised ones, which it needs a small part of.
"""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

import pytest
from async_tests import async_test
from holodeck_command import run_holodeck
from real.project import ROOT, START_SECONDS, RealProject, search_path
from real.test_filesystem_server import EXAMPLE_1
from real.test_python_servers import TIME

FIVE_MINUTES = 300
TYPICAL_SECONDS = 10
PACKAGED = ("files", "memory", "everything")
"""Those that come as npm packages at the versions of the tests; the others would be fetched anew each time."""


def _steps() -> list[list[str]]:
    """The commands under 'Five minutes', word by word."""
    section = (ROOT / "README.md").read_text().partition("## Five minutes")[2].partition("\n## ")[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    return [shlex.split(line, comments=True) for block in blocks for line in block.splitlines()]


@pytest.mark.proves("000:SC-001")
def test_the_steps_of_the_readme_lead_to_a_server_within_five_minutes(tmp_path: Path) -> None:
    began, said = time.monotonic(), ""
    folder = tmp_path / "work"
    folder.mkdir()
    install, *steps = _steps()
    assert install == ["pip", "install", "."]  # the tests of the wheel do it
    for program, *words in steps:
        if program == "cd":
            folder = folder / words[0]
            continue
        assert program == "holodeck"
        done = run_holodeck(*words, cwd=folder, env={"PATH": search_path()})
        assert done.returncode == 0, f"{words}: {done.stderr}"
        said += done.stdout if words[0] == "run" else ""
    assert said.count((folder / "data" / "welcome.md").read_text().splitlines()[0]) == 1, said
    assert time.monotonic() - began < FIVE_MINUTES


@pytest.mark.proves("000:SC-001")
def test_a_standard_package_is_one_flag_away(tmp_path: Path) -> None:
    flags = [word for name in PACKAGED for word in ("--mcp", name)]
    env = {"PATH": search_path()}
    assert run_holodeck("init", "mine", *flags, "--non-interactive", cwd=tmp_path, env=env).returncode == 0
    listed = run_holodeck("mcp", "list", "--json", cwd=tmp_path / "mine", env=env)
    servers = {each["name"]: each for each in json.loads(listed.stdout)["servers"]}
    assert [(servers[name]["state"], servers[name]["tools"] > 0) for name in PACKAGED] == [("up", True)] * len(PACKAGED)


@pytest.mark.proves("000:SC-002")
@async_test(START_SECONDS)
async def test_typical_calls_are_done_within_ten_seconds(project: RealProject) -> None:
    project.write("data/hello.txt", "Hello from a file.")
    project.write("output/.keep", "")
    data = project.path / "data"
    async with project.open_server(EXAMPLE_1) as files, project.open_server(TIME) as clock:
        await files.connect()  # starting is not calling
        await clock.connect()
        calls = [
            (files, "read_text_file", {"path": str(data / "hello.txt")}),
            (files, "write_file", {"path": str(data / "new.txt"), "content": "x" * 100_000}),
            (files, "list_directory", {"path": str(data)}),
            (files, "search_files", {"path": str(data), "pattern": "*.txt"}),
            (clock, "get_current_time", {"timezone": "Europe/Berlin"}),
        ]
        for server, name, arguments in calls:
            result = await server.call(name, arguments, timeout=TYPICAL_SECONDS)
            assert result.success, result.error
            assert not result.is_error, result.text

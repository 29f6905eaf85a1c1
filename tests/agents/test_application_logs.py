"""Log events of agents in a program: none on standard error, unless the program has set up logging."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
from holodeck import Agent
from holodeck.testing import ScriptedModel, say

print(Agent(ScriptedModel(say("seven"), say("7")), output_type=int).run_sync("A number?").output)
"""


@pytest.mark.parametrize(("setup", "logged"), [("", ""), ("import logging\nlogging.basicConfig()\n", "does_not_fit")])
def test_an_agent_logs_only_where_the_program_has_a_handler(setup: str, logged: str) -> None:
    command = [sys.executable, "-c", setup + PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "7\n", done.stderr
    assert logged in done.stderr
    assert bool(done.stderr) == bool(logged)

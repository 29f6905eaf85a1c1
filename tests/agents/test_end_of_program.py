"""Programs that end while an agent of theirs is open."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit
from contextlib import ExitStack

from holodeck import Agent, MCPServer
from holodeck.testing import FaultyMCPServer

agent = Agent("rehearsal", tools=[MCPServer.stdio(*FaultyMCPServer.command("normal"), name="sums")])
stack = ExitStack()
stack.enter_context(agent)
if {closes}:
    atexit.register(stack.close)
print(agent.run_sync('Call add with {{"a": 1, "b": 2}}').output)
"""


def test_a_program_that_ends_with_an_open_agent_says_nothing_of_its_servers() -> None:
    for closes in (True, False):
        argv = [sys.executable, "-c", PROGRAM.format(closes=closes)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "[rehearsal] `add` answered: 3\n", "")


ENDED = """
import atexit
from contextlib import ExitStack

from holodeck import Agent

agent, stack = Agent("rehearsal"), ExitStack()


def close() -> None:
    stack.close()
    try:
        agent.run_sync("Hello")
    except RuntimeError as error:
        print(error)


# Called after what the agent has opened is closed: that is registered when it is first used.
atexit.register(close)
stack.enter_context(agent)
agent.run_sync("Hello")
"""


def test_an_agent_that_is_closed_or_asked_after_the_end_of_its_program_does_not_wait() -> None:
    forked = f"import os\n{ENDED}\nif os.fork():\n    os.wait()\nelse:\n    agent.run_sync('Hello')"
    for program, times in ((ENDED, 1), (forked, 2)):
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        said = "This program is ending: its agents and MCP servers are closed.\n"
        assert (done.returncode, done.stdout, done.stderr) == (0, said * times, "")

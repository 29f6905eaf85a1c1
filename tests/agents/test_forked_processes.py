"""Agents in forked processes, as servers of web applications and task queues start their workers."""

from __future__ import annotations

import json
import subprocess
import sys

# Sessions, a pool of threads and an open agent are in use before the fork. Each child must answer by itself.
PROGRAM = """
import asyncio
import json
import multiprocessing
import os

from holodeck import Agent, Session, tool
from holodeck.lib.off_loop import run_off_loop


@tool
def process() -> int:
    "Id of the process."
    return os.getpid()


agent, session = Agent("rehearsal", tools=[process]), Session()


def ask(_: int) -> tuple[int, str, int]:
    asyncio.run(run_off_loop(os.getpid))
    return os.getpid(), agent.run_sync("Call process with {}", session=session).output, os.getppid()


with agent:
    ask(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        answers = pool.map(ask, range(4), chunksize=1)
    answers.append(ask(0))
print(json.dumps(answers))
"""


def test_an_agent_that_the_parent_has_used_answers_in_forked_children_and_still_in_the_parent() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    *of_children, of_parent = json.loads(done.stdout)
    assert len(of_children) == 4
    for pid, answer, parent in of_children:
        assert parent == of_parent[0]
        assert str(pid) in answer
    assert str(of_parent[0]) in of_parent[1]

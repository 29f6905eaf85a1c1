"""Runs the cases of suites, some at a time.

When the task that awaits `run_cases` is cancelled, all jobs close what they own before it ends. The verdicts that the
listener got until then are valid.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from holodeck.evaluation.agent_job import AgentJob, BuildAgent, CaseListener
from holodeck.evaluation.suite import CaseRun


async def run_cases(runs: Sequence[CaseRun], *, jobs: int, build_agent: BuildAgent, listener: CaseListener) -> None:
    """Run all, at most `jobs` at the same time. They start in this order. The listener gets the verdicts.

    An error of one job ends the others, and is raised.
    """
    waiting = deque(runs)

    async def work() -> None:
        async with AgentJob(build_agent, listener) as job:
            while waiting:
                run = waiting.popleft()
                listener.on_case_started(run)
                listener.on_case_finished(run, await job.run(run))

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(jobs, len(runs))):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None

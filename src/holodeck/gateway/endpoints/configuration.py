"""`/v1/config`: what the gateway runs by, as its file is written, and the problems of a file that was changed since."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holodeck.config.edit.caller_keys import describe_entry
from holodeck.gateway.api import examples
from holodeck.gateway.api.route import route
from holodeck.gateway.configuration import ConfigurationHolder, ReloadOutcome
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.lib.errors import Problem
from holodeck.lib.redaction import mask_written


class ConfigurationEndpoint:
    """The route of the configuration, for operators. Values of variables and literal secrets are not in it."""

    def __init__(self, configurations: ConfigurationHolder, *, get_outcome: Callable[[], ReloadOutcome | None]) -> None:
        """`get_outcome`: of the latest reading of the files. None: this gateway does not read them again."""
        self._configurations = configurations
        self._get_outcome = get_outcome

    @route(
        "GET",
        "/v1/config",
        id="getConfiguration",
        tag="Operation",
        summary="Get the configuration",
        description=(
            "What the gateway runs by, as its file is written: variables by their names, keys by the start of their "
            "hashes. If the file was changed on disk and is refused, `problems` says why. Needs an operator's key."
        ),
        reply="Configuration",
        example=examples.CONFIGURATION,
        roles=("operator",),
        is_unscoped=True,
        is_counted=False,
        is_plain_read=True,
    )
    async def get(self, request: Request) -> Reply:
        current, outcome = self._configurations.current, self._get_outcome()
        written = current.loaded.written
        settings = {key: mask_written(value, key) for key, value in written.items()}
        if isinstance(written.get("keys"), list):
            settings["keys"] = [describe_entry(entry) for entry in written["keys"] if isinstance(entry, dict)]
        agents = [{"name": name, "file": str(agent.path)} for name, agent in current.loaded.agents.items()]
        return json_reply(
            {
                "object": "configuration",
                "file": str(current.loaded.path),
                "settings": settings,
                "agents": agents,
                "warnings": [_describe_problem(problem) for problem in current.loaded.warnings],
                "watches_files": outcome is not None and current.gateway.reload.watch,
                "read_at": None if outcome is None else int(outcome.at),
                "problems": [] if outcome is None else [_describe_problem(problem) for problem in outcome.problems],
                "restart_keys": [] if outcome is None else list(outcome.restart_keys),
            }
        )


def _describe_problem(problem: Problem) -> dict[str, Any]:
    return {
        "severity": problem.severity,
        "file": problem.file,
        "line": problem.line,
        "key": problem.key,
        "message": problem.message,
        "fix": problem.fix,
    }

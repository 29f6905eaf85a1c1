"""The page of the documentation that explains an error: `More: holodeck docs TOPIC`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from holodeck.lib.errors import (
    HoloDeckError,
    MCPError,
    MCPToolNotFoundError,
    ModelError,
    Problem,
    ServerUnavailableError,
    StorageError,
)

TOPICS_OF_ERRORS: Mapping[type[HoloDeckError], str] = {
    MCPError: "guides/server-does-not-start",
    MCPToolNotFoundError: "guides/tools",
    ModelError: "reference/errors",
    ServerUnavailableError: "guides/server-does-not-start",
    StorageError: "operate/when-things-go-wrong",
}
"""The topic of each class of errors at run time, and of its subclasses."""
TOPICS_OF_FILES: Mapping[str, str] = {
    "agent": "reference/agent-file",
    "config": "reference/config-file",
    "gateway": "reference/gateway-file",
}
"""The topic of each kind of configuration file."""


def topic_of_error(error: HoloDeckError) -> str | None:
    """Return the topic that explains an error at run time, or None."""
    return next((TOPICS_OF_ERRORS[kind] for kind in type(error).__mro__ if kind in TOPICS_OF_ERRORS), None)


def topic_of_problems(problems: Iterable[Problem]) -> str | None:
    """Return the topic about the file of the first error, or None if the error is about no key of ours."""
    from holodeck.models.agent import Agent
    from holodeck.models.gateway import GatewayFile

    for problem in problems:
        found = re.match(r"\w+", problem.key)
        if problem.severity != "error" or found is None:
            continue
        if Path(problem.file).name == "config.yaml":
            return TOPICS_OF_FILES["config"]
        for kind, model in (("agent", Agent), ("gateway", GatewayFile)):
            if found[0].removesuffix("_file") in model.model_fields:
                return TOPICS_OF_FILES[kind]
    return None


def print_topic(topic: str | None) -> None:
    """Print to stderr how to read about an error, if there is a page about it."""
    if topic is not None:
        click.secho(f"More: holodeck docs {topic}", dim=True, err=True)

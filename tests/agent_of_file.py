"""The runner of an agent, built from its file as the command line and the Python API build it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from holodeck.agent_runner import AgentRunner
from holodeck.providers.base import ModelProvider
from holodeck.runtime import People, build_runner, read_agent


def load_runner(
    path: Path,
    *,
    model: ModelProvider | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    people: People | None = None,
) -> AgentRunner:
    """Read a file and build its runner. `model` replaces the one in the file, `home` the folder of the user."""
    loaded = read_agent(path, environ=environ, home=home, has_model=model is not None)
    return build_runner(loaded, model=model, environ=environ, people=people)

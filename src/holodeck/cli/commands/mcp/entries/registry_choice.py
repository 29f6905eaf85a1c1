"""The registry that a command asks: an option, the user's own settings, or the official one."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.config.agent_loader import read_user_registry

if TYPE_CHECKING:
    from holodeck.tools.mcp.registry.client import Registry

T = TypeVar("T")

registry_option = click.option(
    "--registry", metavar="URL|FILE", help="Registry to ask, or a snapshot of one (default: the official registry)."
)


def choose_registry(option: str | None) -> Registry:
    """Return the registry of the option, of `registry` in the user's settings, or the official one."""
    from holodeck.tools.mcp.registry.client import OFFICIAL_REGISTRY, Registry

    return Registry(place=option or read_user_registry() or OFFICIAL_REGISTRY)


def run_request(work: Coroutine[Any, Any, T], phase: str) -> T:
    """Run a request to a registry with a progress line. Ctrl-C cancels it."""
    from holodeck.cli.interruptible import run_interruptible
    from holodeck.cli.output.progress import Progress

    async def run() -> T:
        async with Progress(phase):
            return await work

    return run_interruptible(run())

"""`holodeck model`: download, check and list the weights of local models, which are stored in a cache folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from holodeck.cli.ctrl_c import let_asyncio_handle_interrupts
from holodeck.cli.main import json_option
from holodeck.lib.escape import escape_unprintable
from holodeck.providers.local.weights import (
    KNOWN_WEIGHTS,
    Progress,
    Weights,
    import_weights,
    is_pulled,
    models_folder,
    pull,
    require_weights,
)

_EPILOG = """\b
Examples:
  holodeck model list
  holodeck model pull qwen2.5-coder-0.5b
  holodeck model pull qwen2.5-coder-0.5b --from weights.gguf     on a machine without internet

\b
Then, in agent.yaml:
  model:
    provider: local"""
_PULL_EPILOG = """\b
Examples:
  holodeck model pull qwen2.5-coder-0.5b
  holodeck model pull qwen2.5-coder-0.5b --from weights.gguf"""
_LIST_EPILOG = """\b
Example:
  holodeck model list --json"""
_STEP = 10
"""Percent between two lines of progress without a terminal."""


@click.group("model", epilog=_EPILOG)
def command() -> None:
    """Manage the weights of local models, which need no key and no server."""


@command.command("pull", epilog=_PULL_EPILOG, short_help="Download the weights of a model and check them.")
@click.argument(
    "name",
    type=click.Choice([weights.name for weights in KNOWN_WEIGHTS]),
    metavar="NAME",
)
@click.option("--from", "source", metavar="FILE", help="Take the weights from a file, or from the URL of a mirror.")
@json_option()
def pull_command(name: str, source: str | None, as_json: bool) -> None:
    """Download the weights of a model and check their sha256. An interrupted download is resumed.

    NAME is one of those that `holodeck model list` shows.
    """
    weights = require_weights(name)
    was_there = is_pulled(weights)
    with _progress_callback(weights, is_shown=not as_json and not was_there) as on_progress:
        if source is None or "://" in source:
            let_asyncio_handle_interrupts()
            path = pull(weights, url=source, on_progress=on_progress)
        else:
            path = import_weights(weights, Path(source), on_progress=on_progress)
    if as_json:
        click.echo(json.dumps({**_weights_data(weights), "path": str(path), "was_there": was_there}, indent=2))
    else:
        click.echo(escape_unprintable(f"{weights.name} {'was there already' if was_there else 'is ready'}: {path}"))


@command.command("list", epilog=_LIST_EPILOG)
@json_option("Print the list as JSON.")
def list_command(as_json: bool) -> None:
    """List the models that can be pulled, and which of them are here."""
    if as_json:
        click.echo(
            json.dumps({"folder": str(models_folder()), "models": list(map(_weights_data, KNOWN_WEIGHTS))}, indent=2)
        )
        return
    for weights in KNOWN_WEIGHTS:
        state = "here" if is_pulled(weights) else "not pulled"
        pace = f"{weights.tokens_per_second:.0f} tokens/s"
        size = f"{weights.size / 1e6:.0f} MB"
        click.echo(
            f"{weights.name:<20}  {size:>8}  {weights.memory:>6} of memory  {pace:>11}  {weights.licence}  {state}"
        )
    click.echo(escape_unprintable(f"\nKept in {models_folder()}. Speeds are of two ordinary cores."))


def _weights_data(weights: Weights) -> dict[str, Any]:
    return {
        "name": weights.name,
        "bytes": weights.size,
        "sha256": weights.sha256,
        "licence": weights.licence,
        "url": weights.url,
        "is_pulled": is_pulled(weights),
    }


@contextmanager
def _progress_callback(weights: Weights, *, is_shown: bool) -> Iterator[Progress | None]:
    """Yield a callback that draws a bar on a terminal, or prints a line every `_STEP` percent; None if not shown."""
    if not is_shown:
        yield None
    elif sys.stderr.isatty():
        with click.progressbar(length=weights.size, label=weights.name, file=sys.stderr) as bar:
            yield lambda done, _: bar.update(done - bar.pos)
    else:
        yield _ProgressLines(weights.name)


class _ProgressLines:
    def __init__(self, name: str) -> None:
        self._name, self._printed_tenth = name, -1

    def __call__(self, done: int, size: int) -> None:
        tenth = 100 * done // size // _STEP
        if tenth > self._printed_tenth:
            self._printed_tenth = tenth
            click.echo(f"{self._name}: {done / 1e6:.0f} of {size / 1e6:.0f} MB", err=True)

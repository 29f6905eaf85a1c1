"""What a page says is not here is really not: no key, route or command has its name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from holodeck.cli.main import cli
from holodeck.config.json_schema import SCHEMAS
from holodeck.gateway.all_endpoints import list_routes

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# What others call a thing that has another name here.
OTHER_NAMES = {"admin": "console", "dashboard": "console", "virtual": "key"}
_SECTION = re.compile(r"^##+ What is not here\n+(.+?)(?:\. |\.\n|\n\n)", re.MULTILINE | re.DOTALL)
_ROW = re.compile(r"^\| ([^|]+) \| not here\b", re.MULTILINE)
_WORD = re.compile(r"[a-z]+")


def _singular(word: str) -> str:
    return word.removesuffix("s")


def _find_claims(text: str) -> Iterator[str]:
    """Yield the first word of each thing that a page says is not here; names in backticks are keys of others."""
    for claim in (*_SECTION.findall(text), *_ROW.findall(text)):
        for item in re.split(r",| and ", claim):
            words = [word for word in _WORD.findall(item.lower()) if word not in {"a", "an", "the", "no"}]
            if words and not item.strip().startswith("`"):
                yield OTHER_NAMES.get(words[0], _singular(words[0]))


def _list_keys(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for part in schema.values():
            yield from _list_keys(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from _list_keys(part)


def _list_features() -> set[str]:
    keys = {key for make in SCHEMAS.values() for key in _list_keys(make())}
    parts = {part for route in list_routes() for part in route.path.split("/") if part and "{" not in part}
    return {_singular(name) for name in keys | parts | set(cli.list_commands(click.Context(cli)))}


FEATURES = _list_features()


def test_no_page_says_that_something_is_missing_which_has_a_key_a_route_or_a_command() -> None:
    claims = {(page.name, word) for page in PAGES for word in _find_claims(page.read_text())}
    assert ("moving-from-litellm.md", "team") in claims
    assert {(page, word) for page, word in claims if word in FEATURES} == set()


@pytest.mark.parametrize(
    "claim",
    [
        "## What is not here\n\nTeams, budgets in money. Keep the other.\n",
        "## What is not here\n\nEmbeddings.\n",
        "## What is not here\n\nCaches, an admin page.\n",
        "| handoffs, sessions | not here |\n",
    ],
)
def test_a_claim_that_a_key_a_route_or_a_command_contradicts_is_found(claim: str) -> None:
    assert [word for word in _find_claims(claim) if word in FEATURES]

"""Pieces of Markdown that several generated pages use."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

NOTICE = "<!-- Generated from the code by `make reference`. Change the code, not this page. -->"


def join_blocks(blocks: Iterable[str]) -> str:
    """Join the blocks of a page with empty lines; empty blocks are left out."""
    return "\n\n".join(block.strip("\n") for block in blocks if block) + "\n"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; an empty string without rows. Cells are Markdown, except that `|` is escaped here."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    if not lines:
        return ""
    return "\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns), *lines])


def code(text: str) -> str:
    """Return `text` as inline code."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def fence(text: str, language: str = "text") -> str:
    """Return `text` as a fenced block."""
    return f"```{language}\n{text.strip(chr(10))}\n```"


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site make it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")

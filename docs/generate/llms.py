"""Sphinx extension that writes Markdown beside the built site, for programs that read it.

Each page is there as Markdown; `llms.txt` lists the pages with their first sentence; `llms-full.txt` has all pages in
one file, in the order of the table of contents.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from holodeck.cli.commands.docs import without_site_parts

_SUMMARY = "HoloDeck runs agents that use MCP tools, in a terminal, from Python, and as an HTTP gateway."


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("build-finished", write_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write_files(app: Sphinx, error: Exception | None) -> None:
    """Write the files, unless the build failed."""
    if error is not None:
        return
    names = list(_in_order(app.env, app.config.root_doc))
    texts = {name: without_site_parts(Path(app.srcdir, f"{name}.md").read_text(encoding="utf-8")) for name in names}
    lines = [f"- [{_title(text)}]({name}.md): {_first_sentence(text)}" for name, text in texts.items()]
    index = "\n".join([f"# {app.config.project}", "", f"> {_SUMMARY}", "", "## Pages", "", *lines]) + "\n"
    Path(app.outdir, "llms.txt").write_text(index, encoding="utf-8")
    for name, text in texts.items():
        Path(app.outdir, f"{name}.md").write_text(text, encoding="utf-8")
    full = "\n\n".join(f"<!-- {name}.md -->\n\n{text}" for name, text in texts.items())
    Path(app.outdir, "llms-full.txt").write_text(full, encoding="utf-8")


def _in_order(env: BuildEnvironment, name: str) -> Iterator[str]:
    """Yield a page, and then those below it in the table of contents."""
    yield name
    for below in env.toctree_includes.get(name, []):
        yield from _in_order(env, below)


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("# ")


def _first_sentence(text: str) -> str:
    paragraph = text.partition("\n\n")[2].partition("\n\n")[0]
    return re.split(r"(?<=[.])\s", " ".join(paragraph.split()), maxsplit=1)[0]

"""`holodeck docs`: the documentation of this version, in a terminal.

A wheel carries the pages; an editable install reads those of its repository. On a terminal a page is rendered and
paged, elsewhere it is printed as Markdown. A topic is the path of a page without `.md`, or its last part.
"""

from __future__ import annotations

import posixpath
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import escape_unprintable, one_line

# Characters of a line that `--search` shows.
MAX_MATCH_SHOWN = 80

_EPILOG = """\b
Examples:
  holodeck docs                       list the pages
  holodeck docs agent-file            show one; reference/agent-file is the same
  holodeck docs --search approval     list the pages with this word
  holodeck docs cli > cli.md          its Markdown"""

_SECTIONS = ("index", "start", "guides", "operate", "clients", "reference", "explain")
"""The order in which pages are listed; all others follow."""
_INDEX_PAGES = ("index", "README")
_TOCTREE = re.compile(r"^```\{toctree\}.*?^```\n?", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"^<!--.*?-->\n\n?", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?P<path>[\w./-]+)\.md(?:#[\w-]+)?\)")
_LINK_IN_PAGE = re.compile(r"\[([^\]]*)\]\(#[\w-]+\)")


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page. The topic of an index page is its folder."""

    folder: str
    """Folder that links of the page are relative to."""
    text: str
    """Markdown without the parts that only the site needs."""

    @property
    def title(self) -> str:
        return next((line.removeprefix("# ") for line in self.text.splitlines() if line.startswith("# ")), "")


@click.command("docs", epilog=_EPILOG)
@click.argument("topic", required=False)
@click.option("--list", "as_list", is_flag=True, help="Print only the topics, one per line.")
@click.option("--search", metavar="WORDS", help="List the pages that have all of these words.")
def command(topic: str | None, as_list: bool, search: str | None) -> None:
    """Show the documentation page TOPIC; without it, list all pages."""
    if (topic is not None) + as_list + (search is not None) > 1:
        raise click.UsageError("TOPIC, --list and --search exclude each other.")
    pages = read_pages(find_pages_folder())
    if as_list:
        click.echo("\n".join(pages))
    elif search is not None:
        _print_matches(pages, search.lower().split())
    elif topic is not None:
        _show_page(pages[resolve_topic(topic, list(pages))])
    else:
        _print_topics({name: page.title for name, page in pages.items()})
        click.echo("\nShow one with: holodeck docs TOPIC")


def find_pages_folder() -> Path:
    """Return the folder of the pages. Raises `ExecutionError` if this installation has none."""
    package = Path(__file__).parents[2]
    for folder in (package / "docs_pages", package.parents[1] / "docs"):
        if (folder / "index.md").is_file():
            return folder
    raise ExecutionError("This installation has no documentation pages. Install HoloDeck from its wheel.")


def read_pages(folder: Path) -> dict[str, Page]:
    """Return each page by its topic, in the order of the sections, an index page before the others of its folder."""
    found: dict[str, Page] = {}
    for path in folder.rglob("*.md"):
        place = path.relative_to(folder).parent.as_posix().removeprefix(".")
        name = "" if place and path.stem in _INDEX_PAGES else path.stem
        text = without_site_parts(path.read_text(encoding="utf-8"))
        found[posixpath.join(place, name).rstrip("/")] = Page(folder=place, text=text)

    def order(topic: str) -> tuple[int, str]:
        section = topic.partition("/")[0]
        return (_SECTIONS.index(section) if section in _SECTIONS else len(_SECTIONS), topic)

    return {topic: found[topic] for topic in sorted(found, key=order)}


def without_site_parts(text: str) -> str:
    """Return the Markdown of a page without comments and tables of contents, which only the site needs."""
    return _COMMENT.sub("", _TOCTREE.sub("", text)).strip("\n") + "\n"


def resolve_topic(topic: str, topics: Sequence[str]) -> str:
    """Return the full topic of a page. Raises `click.UsageError` if there is none, or if several could be meant."""
    wanted = topic.removesuffix(".md").removesuffix("/index").strip("/")
    if wanted in topics:
        return wanted
    ends = [each for each in topics if each.rpartition("/")[2] == wanted]
    if len(ends) == 1:
        return ends[0]
    shown = escape_unprintable(topic)
    if ends:
        raise click.UsageError(f"There are several pages '{shown}': {', '.join(ends)}.")
    import difflib

    names = {each.rpartition("/")[2]: each for each in topics}
    close = difflib.get_close_matches(wanted.lower(), [*topics, *names], n=1)
    hint = f"Did you mean '{names.get(close[0], close[0])}'?" if close else "'holodeck docs' lists the pages."
    raise click.UsageError(f"There is no page '{shown}'. {hint}")


def _print_topics(lines: Mapping[str, str]) -> None:
    width = max(map(len, lines))
    for topic, line in lines.items():
        click.echo(f"{topic.ljust(width)}  {line}".rstrip())


def _print_matches(pages: Mapping[str, Page], words: Sequence[str]) -> None:
    """Print each page that has all words, with the first of its lines that has one."""
    lines = {
        topic: one_line(_first_line_with(page.text, words), MAX_MATCH_SHOWN)
        for topic, page in pages.items()
        if words and all(word in page.text.lower() for word in words)
    }
    if not lines:
        raise ExecutionError(f"No page has '{escape_unprintable(' '.join(words))}'. 'holodeck docs' lists the pages.")
    _print_topics(lines)


def _first_line_with(text: str, words: Sequence[str]) -> str:
    return next((line for line in text.splitlines() if any(word in line.lower() for word in words)), "")


def _show_page(page: Page) -> None:
    if not sys.stdout.isatty():
        click.echo(page.text, nl=False)
        return
    from rich.console import Console

    from holodeck.cli.output.markdown import FinishedBlock
    from holodeck.cli.output.stdout_guard import can_use_colours

    console = Console(highlight=False, emoji=False, no_color=not can_use_colours())
    with console.capture() as capture:
        console.print(FinishedBlock(_name_topics(page)), crop=False)
    if capture.get().count("\n") < console.height:
        click.echo(capture.get(), nl=False)
    else:
        click.echo_via_pager(capture.get())


def _name_topics(page: Page) -> str:
    """Return the text of a page with topics instead of paths in its links to other pages."""

    def name_topic(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(page.folder, link["path"]))
        head, _, last = path.rpartition("/")
        return f"]({head if head and last in _INDEX_PAGES else path})"

    return _LINK.sub(name_topic, _LINK_IN_PAGE.sub(r"\1", page.text))

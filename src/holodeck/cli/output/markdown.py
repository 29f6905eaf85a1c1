"""Markdown of a model on a terminal, rendered so that what a person copies is what the model wrote.

Code is not wrapped by line breaks of ours, and neither is a paragraph with a word that is wider than the terminal, such
as a URL. A table whose words do not fit beside each other is shown row by row. All text is to be escaped before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markdown import (
    BlockQuote,
    CodeBlock,
    ListItem,
    Markdown,
    MarkdownElement,
    Paragraph,
    TableElement,
)
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

# Characters of a block in progress that are rendered as Markdown at each redraw; a longer one is shown as plain text.
MAX_LIVE_MARKDOWN = 4_000
# Lines left free below a block in progress, for running calls.
_LINES_BELOW = 4
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def finished_blocks(text: str) -> tuple[str, str]:
    """Split Markdown into finished blocks and the rest.

    A block ends at a blank line outside fenced code that is followed by a line without indentation.
    """
    fence = ""
    end = 0
    position = 0
    is_after_blank = False
    for line in text.splitlines(keepends=True):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
        else:
            if is_after_blank and line.strip() and not line[0].isspace():
                end = position
            if mark:
                fence = mark.group(1)
        is_after_blank = not fence and not line.strip()
        position += len(line)
    return text[:end], text[end:]


class FinishedBlock:
    """A finished block without the empty lines around it. Some of its lines may be wider than the terminal."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = _render_uncropped(console, _FaithfulMarkdown(self._text), options.update(height=None))
        while lines and _is_blank(lines[0]):
            lines.pop(0)
        while lines and _is_blank(lines[-1]):
            lines.pop()
        for line in lines:
            yield from _strip_end(line)
            yield Segment.line()


class BlockInProgress:
    """The last lines of a block that is not finished, as many as fit on the screen."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = (
            _FaithfulMarkdown(self._text)
            if len(self._text) <= MAX_LIVE_MARKDOWN
            else Text(self._text[-MAX_LIVE_MARKDOWN:])
        )
        lines = console.render_lines(shown, options.update(height=None), pad=False)
        for line in lines[-max(console.height - _LINES_BELOW, 1) :]:
            yield from line
            yield Segment.line()


def _render_uncropped(console: Console, content: RenderableType, options: ConsoleOptions) -> list[list[Segment]]:
    return list(Segment.split_lines(console.render(content, options)))


def _is_blank(line: Sequence[Segment]) -> bool:
    return not "".join(segment.text for segment in line).strip()


def _strip_end(line: list[Segment]) -> list[Segment]:
    """Return a line without the spaces that fill it up to the width of the terminal."""
    while line and not line[-1].text.strip():
        line.pop()
    return [*line[:-1], Segment(line[-1].text.rstrip(), line[-1].style, line[-1].control)] if line else line


def _has_wide_word(text: Text, width: int) -> bool:
    return any(cell_len(word) > width for word in text.plain.split())


def _leave_wrapping_to_terminal(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ignore"
    return text


class _CodeBlock(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = Syntax("", self.lexer_name, theme=self.theme).highlight(str(self.text).rstrip())
        code.rstrip()
        yield _leave_wrapping_to_terminal(code)


class _Paragraph(Paragraph):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if _has_wide_word(self.text, options.max_width):
            yield _leave_wrapping_to_terminal(self.text)
        else:
            yield from super().__rich_console__(console, options)


def _share_room(table: Table, room: int) -> None:
    """Fix the widths of the columns, where lines have to be broken: each column has room for its longest word.

    Rich takes what is missing from the widest column, also if that has one word. `room`: the cells that are left once
    each column is as wide as its longest word.
    """
    words, wanted = [], []
    for column in table.columns:
        texts = [cell.plain for cell in (column.header, *column.cells) if isinstance(cell, Text)]
        words.append(max((cell_len(word) for text in texts for word in text.split()), default=0))
        wanted.append(max(map(cell_len, texts), default=0) - words[-1])
    if sum(wanted) > room:
        for column, word, more in zip(table.columns, words, wanted, strict=True):
            column.width = word + more * room // sum(wanted)


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for each in super().__rich_console__(console, options):
            table = cast("Table", each)
            room = options.max_width - table.__rich_measure__(console, options).minimum
            if room < 0:
                yield from self._list_rows(options.max_width)
            else:
                _share_room(table, room)
                yield table

    def _list_rows(self, width: int) -> Iterator[RenderableType]:
        names = [] if self.header is None or self.header.row is None else self.header.row.cells
        for number, row in enumerate([] if self.body is None else self.body.rows):
            if number:
                yield Text("")
            for name, cell in zip(names, row.cells, strict=False):
                line = Text.assemble((f"{name.content.plain}: ", "bold"), cell.content)
                yield _leave_wrapping_to_terminal(line) if _has_wide_word(line, width) else line


class _ListItem(ListItem):
    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self._render_after(" • ", console, options)

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        return self._render_after(f"{number:>{len(str(last_number)) + 1}} ", console, options)

    def _render_after(self, mark: str, console: Console, options: ConsoleOptions) -> RenderResult:
        inside = options.update(width=options.max_width - len(mark))
        for number, line in enumerate(_render_uncropped(console, self.elements, inside)):
            yield Segment(" " * len(mark) if number else mark, console.get_style("markdown.item.bullet"))
            yield from line
            yield Segment.line()


class _BlockQuote(BlockQuote):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in _render_uncropped(console, self.elements, options.update(width=options.max_width - 4)):
            yield Segment("▌ ", self.style)
            yield from line
            yield Segment.line()


class _FaithfulMarkdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "paragraph_open": _Paragraph,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "table_open": _Table,
        "list_item_open": _ListItem,
        "blockquote_open": _BlockQuote,
    }

    def __init__(self, text: str) -> None:
        # Without hyperlinks, the target of a link is visible.
        super().__init__(text, hyperlinks=False, code_theme="ansi_dark")

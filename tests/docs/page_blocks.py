"""The fenced blocks of a Markdown page, and what each of them is for.

| block | what it is |
|---|---|
| first line is a comment that names a file (`# agent.yaml`), or the line before is `**mcp.json**` | `WRITE` this file |
| `bash`; `python` without a file name | `RUN` |
| `console`: `$ command` lines, each followed by its output | `CONSOLE` |
| `text` or `json` after a block that runs, with no heading between | `OUTPUT` of that block |
| `yaml` without a file name | `PART` of an agent or gateway file |
| any other `text`, `mermaid`, `{toctree}` | `PICTURE`: for readers only |

A block after `<!-- not run: reason -->` is not run. Every other block is `UNKNOWN`, and a mistake of the page.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)(?P<marks>`{3,})(?P<info>[^`\n]*)$")
_NOT_RUN = re.compile(r"<!-- not run: (?P<reason>\S.*) -->$")
_FILE_BEFORE = re.compile(r"\*\*`?(?P<file>[\w.~/-]*[./][\w.-]+)`?\*\*$")
_FILE_INSIDE = re.compile(r"(?:#|//|--|<!--) (?P<file>[\w.~/-]*[./][\w.-]+)(?:[,:;(] ?.*| -->)?$")
_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_PROGRAMS = {"bash", "python"}
_OUTPUTS = {"text", "json"}
_PICTURES = {"text", "mermaid", "{toctree}"}


class Purpose(Enum):
    """What the tests do with a block."""

    WRITE = "write"
    RUN = "run"
    CONSOLE = "console"
    OUTPUT = "output"
    PART = "part"
    PICTURE = "picture"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block: `line` is that of its opening fence, `file` the file that it names."""

    line: int
    language: str
    text: str
    file: str = ""
    reason_not_run: str = ""
    purpose: Purpose = Purpose.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class _Fenced:
    language: str
    text: str
    before: str
    line: int


def read_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page in their order."""
    blocks: list[Block] = []
    for fenced in _split(page.read_text()):
        blocks.append(_classify(fenced, blocks[-1] if blocks else None))
    return blocks


def _split(text: str) -> list[_Fenced]:
    lines = text.splitlines()
    fences: list[int] = []
    marks = ""
    for number, line in enumerate(lines):
        found = _FENCE.match(line)
        if found and (not marks or (found["marks"] == marks and not found["info"])):
            fences.append(number)
            marks = "" if marks else found["marks"]
    assert not marks, f"line {fences[-1] + 1}: the block has no end"
    pairs = list(zip(fences[::2], fences[1::2], strict=True))
    starts = [0, *(end + 1 for _, end in pairs)]
    fenced = []
    for after, (start, end) in zip(starts, pairs, strict=False):
        opening = _FENCE.match(lines[start])
        assert opening is not None
        body = [line.removeprefix(opening["indent"]) for line in lines[start + 1 : end]]
        language = (opening["info"].split() or [""])[0]
        before = "\n".join(lines[after:start]).strip()
        fenced.append(_Fenced(language=language, text="\n".join(body), before=before, line=start + 1))
    return fenced


def _classify(fenced: _Fenced, previous: Block | None) -> Block:
    last_line = fenced.before.splitlines()[-1].strip() if fenced.before else ""
    mark = _NOT_RUN.match(last_line)
    file = _find_file(fenced, last_line)
    is_after_program = (
        previous is not None
        and (previous.purpose is Purpose.RUN or (previous.purpose is Purpose.OUTPUT and bool(previous.reason_not_run)))
        and not _HEADING.search(fenced.before)
    )
    purpose = Purpose.UNKNOWN
    if file:
        purpose = Purpose.WRITE
    elif fenced.language in _PROGRAMS:
        purpose = Purpose.RUN
    elif fenced.language == "console":
        purpose = Purpose.CONSOLE
    elif fenced.language in _OUTPUTS and is_after_program:
        purpose = Purpose.OUTPUT
    elif fenced.language in _PICTURES:
        purpose = Purpose.PICTURE
    elif fenced.language == "yaml":
        purpose = Purpose.PART
    return Block(
        line=fenced.line,
        language=fenced.language,
        text=fenced.text,
        file=file,
        reason_not_run=mark["reason"] if mark else "",
        purpose=purpose,
    )


def _find_file(fenced: _Fenced, last_line: str) -> str:
    if fenced.language in {"bash", "console", "text"} and not _FILE_BEFORE.match(last_line):
        return ""
    inside = _FILE_INSIDE.match(fenced.text.partition("\n")[0])
    before = _FILE_BEFORE.match(last_line)
    found = inside or before
    return found["file"] if found else ""


def console_commands(text: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output that is shown for it."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if line.startswith("$ ")]
    assert starts[:1] == [0], "a console block begins with `$ command`"
    commands = []
    for start, end in pairwise([*starts, len(lines)]):
        last = start
        while lines[last].endswith("\\"):
            last += 1
        command = "\n".join(lines[start : last + 1]).removeprefix("$ ")
        commands.append((command, "\n".join(lines[last + 1 : end])))
    return commands

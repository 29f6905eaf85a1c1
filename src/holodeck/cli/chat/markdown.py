"""Markdown that is still being written: which of its blocks are finished, and may be shown for good."""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


def finished_blocks(text: str) -> tuple[str, str]:
    """What is finished, and the rest. A block ends at a blank line outside code, before a line without indentation."""
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

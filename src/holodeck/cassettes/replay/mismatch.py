"""Compares what a replayed run asks with what was recorded, and shows the difference."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from holodeck.cassettes.cassette_file import format_yaml
from holodeck.lib.redaction import MASK

# Lines of a difference that are shown: the first ones say what has changed.
MAX_DIFF_LINES = 120


def is_same(recorded: Any, asked: Any) -> bool:
    """Return whether plain data is what was recorded. A mask in the recording stands for any text in its place."""
    if isinstance(recorded, str) and isinstance(asked, str):
        if recorded == asked:
            return True
        return MASK in recorded and _mask_pattern(recorded).fullmatch(asked) is not None
    if isinstance(recorded, dict) and isinstance(asked, dict):
        return recorded.keys() == asked.keys() and all(is_same(recorded[key], asked[key]) for key in recorded)
    if isinstance(recorded, list) and isinstance(asked, list):
        return len(recorded) == len(asked) and all(map(is_same, recorded, asked))
    return bool(recorded == asked) and isinstance(recorded, bool) == isinstance(asked, bool)


def format_diff(recorded: Mapping[str, Any], asked: Mapping[str, Any], entry: int) -> str:
    """Return a unified diff of both as YAML. Tools that are the same are shown by their names."""
    before, after = format_yaml(_name_tools(recorded, asked)), format_yaml(_name_tools(asked, recorded))
    lines = list(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), f"recorded (entry {entry})", "asked now", lineterm=""
        )
    )
    if len(lines) > MAX_DIFF_LINES:
        lines[MAX_DIFF_LINES:] = [f"... and {len(lines) - MAX_DIFF_LINES} more lines"]
    return "\n".join(lines)


def _mask_pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*?".join(map(re.escape, text.split(MASK))), re.DOTALL)


def _name_tools(data: Mapping[str, Any], other: Mapping[str, Any]) -> Mapping[str, Any]:
    request = data.get("request")
    if not isinstance(request, dict) or "tools" not in request:
        return data
    others = other.get("request", {}).get("tools", []) if isinstance(other.get("request"), dict) else []
    tools = [tool["name"] if tool in others else tool for tool in request["tools"]]
    return {**data, "request": {**request, "tools": tools}}

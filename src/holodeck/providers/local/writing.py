"""The answer of a choosing model while it is written: a call is complete at its end, a reply is told as it comes."""

from __future__ import annotations

import json
import re
from typing import Any

from holodeck.lib.ids import new_id
from holodeck.models.items import FunctionCall

_REPLY = re.compile(r'\s*\{\s*"reply"\s*:\s*"')
_BROKEN_ESCAPE = re.compile(r"(?:\\u[0-9a-fA-F]{0,3}|(?<!\\)(?:\\\\)*\\)$")
_HALF_A_PAIR = re.compile(r"[\ud800-\udbff]$")


class ChoiceParser:
    """Collects the JSON that a model writes."""

    def __init__(self) -> None:
        self._text = ""
        self._sent_chars = 0

    def add(self, text: str) -> str:
        """Take another piece; returns what is new of a reply."""
        self._text += text
        match = _REPLY.match(self._text)
        if match is None:
            return ""
        reply = _parse_partial_string(self._text[match.end() :])
        new, self._sent_chars = reply[self._sent_chars :], max(self._sent_chars, len(reply))
        return new

    def parse_call(self) -> FunctionCall | None:
        """The call that was written, or None for a reply or for something that is neither."""
        written = _first_object(self._text)
        name, arguments = written.get("tool"), written.get("arguments", {})
        if not isinstance(name, str) or not isinstance(arguments, dict):
            return None
        text = json.dumps(arguments, ensure_ascii=False)
        return FunctionCall(call_id=new_id("call"), name=name, arguments=text)


def _parse_partial_string(written: str) -> str:
    """The text of a JSON string that may not have ended yet."""
    end = re.search(r'(?<!\\)(?:\\\\)*"', written)
    inner = written[: end.end() - 1] if end else _BROKEN_ESCAPE.sub("", written)
    try:
        text = str(json.loads(f'"{inner}"', strict=False))
    except ValueError:
        return ""
    return text if end else _HALF_A_PAIR.sub("", text)


def _first_object(text: str) -> dict[str, Any]:
    start = text.find("{")
    try:
        found, _ = json.JSONDecoder().raw_decode(text[start:]) if start >= 0 else ({}, 0)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

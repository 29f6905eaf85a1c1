"""Rules for what a server says about one tool: invisible characters, instructions to the model, secret parameters.

Every text of a tool is examined, also in its schemas: a model reads defaults and enumerations as it reads descriptions.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from holodeck.lib.escape import escape_unprintable, one_line
from holodeck.lib.redaction import is_secret_parameter
from holodeck.tools.mcp.lint.finding import Finding

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo

_MAX_QUOTED_CHARS = 100
_MAX_LISTED_CODES = 5
# `escape_unprintable` writes these for the characters themselves.
_CODE = re.compile(r"<U\+([0-9A-F]{4,6})>")
# Joiners and the emoji style belong to the character before them; a carriage return is half a line break.
_JOINERS = frozenset({"200C", "200D", "FE0F"})
_KEYCAPS = frozenset("0123456789#*")
_LINE_BREAK = "000D"

_USER = r"(?:the |your )?(?:user|human|person|operator)\b"
_PRIVATE_FILE = (
    r"(?:~|\$home|/root|/home/[\w.-]+)?/?\.(?:ssh|aws|gnupg|netrc|kube|pgpass|git-credentials|docker/config)\b"
    r"|\b(?:id_rsa|id_ed25519|id_ecdsa|mcp\.json|claude_desktop_config\.json)\b|(?<![\w.])\.env\b|/etc/(?:passwd|shadow)\b"
)
_INSTRUCTIONS: Mapping[str, re.Pattern[str]] = {
    "it tells the model to hide something from the user": re.compile(
        rf"\b(?:do not|don't|never|must not) (?:ever )?(?:tell|inform|notify|alert|warn) {_USER}"
        rf"|\b(?:do not|don't|never|must not) (?:mention|reveal|disclose|explain) (?:this|that|it|any of this)\b"
        rf"[^.\n]{{0,40}}\bto {_USER}"
        rf"|\bwithout (?:telling|informing|notifying|alerting) {_USER}"
        rf"|\b(?:hide|conceal|keep) (?:this|it|that)[^.\n]{{0,40}} from {_USER}"
    ),
    "it tells the model to ignore its instructions": re.compile(
        r"\b(?:ignore|disregard|forget|override) (?:(?:all|any|the|your|of|these|my) ){0,3}"
        r"(?:previous|prior|above|earlier|preceding|existing|system|other) (?:system )?"
        r"(?:instructions?|prompts?|rules|messages|guidelines|directives)\b"
    ),
    "it tells the model to read a file with secrets": re.compile(
        r"\b(?:read|open|cat|send|include|load|fetch|access|upload|pass|copy|paste|provide)\b"
        rf"(?: [\w'-]+){{0,6}} [`'\"(]?(?:{_PRIVATE_FILE})"
    ),
    "it tells the model to send secrets away": re.compile(
        r"\b(?:send|forward|upload|post|bcc|exfiltrate)\b[^.\n]{0,80}"
        r"\b(?:conversation|chat history|system prompt|credentials?|passwords?|api keys?|private keys?)\b"
        r"[^.\n]{0,60}\bto [`'\"<]?(?:https?://|[\w.+-]+@)"
    ),
    "it has a tag that models take for their system prompt": re.compile(
        r"<important>|</(?:system|system[-_ ]?prompt|system[-_]reminder|secret|hidden|admin)>"
        r"|<\|(?:im_start|im_end|system|start_header_id|endoftext)\|>|\[/?inst\]|<</?sys>>"
    ),
}
_BEFORE_USE = re.compile(
    r"\bbefore (?:you )?(?:use|using|call|calling|invoke|invoking|run|running) (?:this|any|any other|other) tools?\b"
)
_FROM_RESULT = re.compile(
    r"\b(?:from|in|of|by)(?: (?:a|an|the|its|any|search|list|previous|earlier|last|prior))* "
    r"(?:results?|responses?|answers?|calls?|pages?|searches|listings?|outputs?)\b",
    re.IGNORECASE,
)
_PASS_CONTENT = re.compile(
    r"\b(?:pass|send|include|put|provide|place) (?:its|their|(?:the|that|this) file'?s?)"
    r"(?: full| entire)? (?:contents?|text|data) (?:as|in|into|to)\b"
    r"|\b(?:read|open|cat) [^\n]{1,80} and (?:then )?(?:pass|send|include|put|provide|place) it (?:as|in|into|to)\b"
)


def check_tool(server: str, tool: MCPToolInfo) -> Iterator[Finding]:
    """Yield the findings in everything that the server says about one of its tools."""
    subject = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "input_schema": tool.input_schema,
        "output_schema": tool.output_schema,
        "annotations": tool.annotations,
    }
    for place, value in _walk_members(subject):
        if isinstance(value, str):
            yield from check_text(value, server=server, tool=tool.name, place=place)
        elif _is_secret_parameter(place, value) and not _is_handle(place, value, tool):
            yield Finding(
                code="secret_parameter",
                severity="warning",
                server=server,
                tool=tool.name,
                place=place,
                message="a parameter for a secret: the model has to know the secret to call the tool",
            )


def check_text(text: str, *, server: str, tool: str | None, place: str) -> Iterator[Finding]:
    """Yield the findings in one text that a model reads."""
    escaped = escape_unprintable(text)
    plain = " ".join(unicodedata.normalize("NFKC", _CODE.sub("", escaped)).replace("\u2019", "'").lower().split())
    codes = list(_find_codes(escaped))
    if codes:
        shown = ", ".join(f"U+{code}" for code in dict.fromkeys(codes[:_MAX_LISTED_CODES]))
        message = f"{len(codes)} invisible character{'s' if len(codes) > 1 else ''}: {shown}"
        yield Finding(
            code="invisible_character", severity="error", server=server, tool=tool, place=place, message=message
        )
    for reason, quoted in _find_instructions(plain):
        message = f'{reason}: "{one_line(quoted, _MAX_QUOTED_CHARS)}"'
        yield Finding(
            code="model_instruction", severity="error", server=server, tool=tool, place=place, message=message
        )


def _find_instructions(plain: str) -> Iterator[tuple[str, str]]:
    """Yield what a text in small letters and single spaces tells the model, and its words."""
    for reason, pattern in _INSTRUCTIONS.items():
        if match := pattern.search(plain):
            yield reason, match[0]
    before, content = _BEFORE_USE.search(plain), _PASS_CONTENT.search(plain)
    # Each alone is in the descriptions of honest tools.
    if before and content:
        yield "it tells the model to pass on something before the call", f"{before[0]} … {content[0]}"


def _find_codes(text: str) -> Iterator[str]:
    for match in _CODE.finditer(text):
        before = text[match.start() - 1 : match.start()]
        is_joined = match[1] in _JOINERS and (not before.isascii() or before in _KEYCAPS)
        if not is_joined and match[1] != _LINE_BREAK:
            yield match[1]


def _walk_members(subject: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield each member of a JSON object at any depth with its place, and each key that is more than a name."""
    # A stack and no recursion: a server chooses the depth of its schemas.
    stack: list[tuple[str, Any]] = list(subject.items())[::-1]
    while stack:
        place, value = stack.pop()
        yield place, value
        if isinstance(value, Mapping):
            yield from ((f"{place}.{key}", key) for key in value if not key.isidentifier())
            stack += [(f"{place}.{key}", item) for key, item in value.items()][::-1]
        elif isinstance(value, list):
            stack += [(f"{place}[{index}]", item) for index, item in enumerate(value)][::-1]


def _is_handle(place: str, parameter: Mapping[str, Any], tool: MCPToolInfo) -> bool:
    """Return whether a parameter that is only named `token` takes something that the server has given out itself."""
    texts = (tool.description, parameter.get("description"))
    return place.endswith(".token") and any(isinstance(text, str) and _FROM_RESULT.search(text) for text in texts)


def _is_secret_parameter(place: str, value: Any) -> bool:
    container, _, name = place.rpartition(".")
    if not place.startswith("input_schema.") or not container.endswith(".properties") or not isinstance(value, Mapping):
        return False
    kind = value.get("type", "string")
    return is_secret_parameter(name) and (kind == "string" or (isinstance(kind, list) and "string" in kind))

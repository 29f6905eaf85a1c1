"""Matches tools against the names and globs that a file or a request gives for them.

The one matcher behind `allowed_tools`, `denied_tools`, `approval` and `idempotent_tools` of a server, and behind
`allowed_tools` and `require_approval` of a request. A pattern matches a tool by any of its spellings: the server's
own name, its normalised form, the name as models see it, and that name with `server__` in front. Case matters.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Sequence
from fnmatch import translate
from functools import lru_cache
from typing import Protocol

from holodeck.lib.record import record
from holodeck.models.tool import Approval, MCPTool
from holodeck.tools.executor import READ_RESOURCE
from holodeck.tools.mcp.names import normalize_tool_name

# How similar the name of a tool must be to be suggested, from 0 to 1: enough for a typo or a missing word.
_MIN_SIMILARITY = 0.6
# Compiled lists of the files: the five of each of some hundred servers.
_MAX_COMPILED = 512
_WILDCARDS = re.compile(r"[*?[]")


class NamedTool(Protocol):
    """A tool as patterns see it: by its names."""

    @property
    def name(self) -> str: ...

    @property
    def model_name(self) -> str: ...


@record
class _Reading:
    """Reading a resource, as patterns see it."""

    name: str = READ_RESOURCE
    model_name: str = READ_RESOURCE


_READING = _Reading()


def has_wildcard(pattern: str) -> bool:
    return _WILDCARDS.search(pattern) is not None


class ToolPatterns:
    """A list of patterns for the tools of one server, compiled once.

    A tool is looked up among the plain names, and matched against all globs by one expression: a thousand tools and a
    thousand patterns do not take a million steps of Python.
    """

    __slots__ = ("_globs", "_names")

    def __init__(self, patterns: Collection[str], server: str) -> None:
        # The prefix is removed from the pattern. Added to the name, `read_*` would match all tools of server `read`.
        spelled = dict.fromkeys((*patterns, *(pattern.removeprefix(f"{server}__") for pattern in patterns)))
        globs = [translate(pattern) for pattern in spelled if has_wildcard(pattern)]
        # A name with a wildcard in it is not looked up: `[a]` does not match a tool of that name.
        self._names = frozenset(pattern for pattern in spelled if not has_wildcard(pattern))
        self._globs = re.compile("|".join(globs)) if globs else None

    def match(self, tool: NamedTool) -> bool:
        """Return whether one of the patterns matches a spelling of the tool."""
        spellings = {tool.name, normalize_tool_name(tool.name), tool.model_name}
        if not self._names.isdisjoint(spellings):
            return True
        return self._globs is not None and any(self._globs.match(spelling) for spelling in spellings)


@lru_cache(_MAX_COMPILED)
def _compile_patterns(patterns: tuple[str, ...], server: str) -> ToolPatterns:
    return ToolPatterns(patterns, server)


def is_match(patterns: Collection[str], server: str, tool: NamedTool) -> bool:
    """Return whether one of the patterns of a file matches a spelling of the tool."""
    return bool(patterns) and _compile_patterns(tuple(patterns), server).match(tool)


def is_allowed(server: MCPTool, tool: NamedTool) -> bool:
    """Return whether `allowed_tools` and `denied_tools` of the server permit this tool."""
    if server.denied_tools and is_denied(server, tool):
        return False
    return server.allowed_tools is None or is_match(server.allowed_tools, server.name, tool)


def is_denied(server: MCPTool, tool: NamedTool) -> bool:
    """Return whether `denied_tools` of the server matches this tool."""
    return is_match(server.denied_tools, server.name, tool)


def is_idempotent(server: MCPTool, tool: NamedTool) -> bool:
    """Return whether `idempotent_tools` of the server permits repeating a call of this tool."""
    return is_match(server.idempotent_tools, server.name, tool)


def needs_approval(server: MCPTool, tool: NamedTool) -> bool:
    """Return whether a call needs a person's approval. `never` overrides `always`, so that `*` can have exceptions."""
    approval = server.approval
    if not isinstance(approval, Approval):
        return approval == "always"
    return is_match(approval.always, server.name, tool) and not is_match(approval.never, server.name, tool)


def may_read_resources(server: MCPTool, reading: NamedTool) -> bool:
    """Return whether resources may be read without a person's approval. `reading`: the tool that patterns match.

    `allowed_tools` does not matter: only resources that an allowed tool has linked to are read.
    """
    return not is_denied(server, reading) and not needs_approval(server, reading)


def may_browse_resources(server: MCPTool, reading: NamedTool) -> bool:
    """Return whether a model may read any resource that the server lists. `reading`: the tool that patterns match."""
    return server.load_resources and is_allowed(server, reading) and not needs_approval(server, reading)


def unmatched_patterns(server: MCPTool, tools: Sequence[NamedTool]) -> Iterator[str]:
    """Yield a sentence for each pattern of the definition that matches no tool, with the most similar name.

    And one for `load_resources`, if another key of the definition forbids what it permits.
    """
    if server.load_resources and not may_browse_resources(server, _READING):
        is_blocked = is_allowed(server, _READING)
        key = "'approval' applies to" if is_blocked else "'allowed_tools' or 'denied_tools' excludes"
        yield f"{server.name}: 'load_resources' has no effect, because {key} '{READ_RESOURCE}'."
    approval = server.approval if isinstance(server.approval, Approval) else Approval()
    keys = {
        "allowed_tools": server.allowed_tools or (),
        "denied_tools": server.denied_tools,
        "approval.always": approval.always,
        "approval.never": approval.never,
        "idempotent_tools": server.idempotent_tools,
    }
    names = [tool.name for tool in tools]
    for key, patterns in keys.items():
        for pattern in patterns:
            compiled = ToolPatterns([pattern], server.name)
            if pattern != READ_RESOURCE and not any(map(compiled.match, tools)):
                close = difflib.get_close_matches(pattern, names, n=1, cutoff=_MIN_SIMILARITY)
                hint = f" Did you mean '{close[0]}'?" if close else ""
                yield f"{server.name}: '{pattern}' in '{key}' matches none of its tools.{hint}"

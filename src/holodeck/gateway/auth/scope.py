"""The scope of a caller: which models, agents, MCP servers, tools, resources and prompts it may use.

A `CallerScope` is compiled once, from one `Scope` of the gateway file or from several, of which any may allow a thing.
It is immutable but for its cache of tools, and shared by all requests of a key. A denial wins over every other pattern
of the same `Scope`. A server of which no tool and no prompt can be allowed is out of scope as a whole, so that it is
not started. Every API asks here, and has no rule of its own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import field
from fnmatch import translate

import orjson

from holodeck.lib.record import record
from holodeck.models.callers import Scope, split_pattern, split_tool_pattern
from holodeck.tools.executor import READ_RESOURCE, CallTarget, TargetKind

# Decisions about tools that one scope remembers: more than the tools of a gateway, and a bound for those of servers
# that requests declare.
_MAX_REMEMBERED = 10_000
_ALL = "*"


@record
class _Names:
    """A compiled list of patterns for names."""

    allowed: re.Pattern[str] | None
    """None: every name is allowed that is not denied."""
    denied: re.Pattern[str] | None

    def allows(self, name: str) -> bool:
        if self.denied is not None and self.denied.match(name):
            return False
        return self.allowed is None or self.allowed.match(name) is not None


@record
class _ToolGlob:
    """A compiled `server.tool` or `server.prompt`."""

    server: re.Pattern[str]
    tool: re.Pattern[str]
    is_whole_server: bool


@record
class _Tools:
    """A compiled list of patterns for tools, or for prompts."""

    allowed: tuple[_ToolGlob, ...] | None
    """None: every tool is allowed that is not denied."""
    denied: tuple[_ToolGlob, ...]

    def allows(self, server: str, tool: str) -> bool:
        return not _matches(self.denied, server, tool) and (
            self.allowed is None or _matches(self.allowed, server, tool)
        )

    def may_allow_some(self, server: str) -> bool:
        """Return whether a server could have a tool that is allowed."""
        if any(glob.is_whole_server and glob.server.match(server) for glob in self.denied):
            return False
        return self.allowed is None or any(glob.server.match(server) for glob in self.allowed)


@record
class _Part:
    """One compiled `Scope`."""

    models: _Names
    agents: _Names
    servers: _Names
    tools: _Tools
    prompts: _Tools | None
    """None: those of servers with tools that are allowed, unless `tools` names what is allowed."""

    def allows_model(self, name: str) -> bool:
        return self.models.allows(name)

    def allows_agent(self, name: str) -> bool:
        return self.agents.allows(name)

    def allows_server(self, server: str) -> bool:
        has_prompts = self.prompts is not None and self.prompts.may_allow_some(server)
        return self.servers.allows(server) and (has_prompts or self.tools.may_allow_some(server))

    def allows_tool(self, server: str, tool: str) -> bool:
        return self.servers.allows(server) and self.tools.allows(server, tool)

    def allows_links(self, server: str) -> bool:
        has_tools = self.servers.allows(server) and self.tools.may_allow_some(server)
        return has_tools and not _matches(self.tools.denied, server, READ_RESOURCE)

    def allows_prompt(self, server: str, prompt: str) -> bool:
        if not self.servers.allows(server):
            return False
        if self.prompts is None:
            # A caller that is given some tools by name is given nothing else of their servers.
            return self.tools.allowed is None and self.tools.may_allow_some(server)
        return self.prompts.allows(server, prompt)


@record
class _Both:
    """The intersection of two scopes."""

    first: _Part | _Both
    second: _Part | _Both

    def allows_model(self, name: str) -> bool:
        return self.first.allows_model(name) and self.second.allows_model(name)

    def allows_agent(self, name: str) -> bool:
        return self.first.allows_agent(name) and self.second.allows_agent(name)

    def allows_server(self, server: str) -> bool:
        return self.first.allows_server(server) and self.second.allows_server(server)

    def allows_tool(self, server: str, tool: str) -> bool:
        return self.first.allows_tool(server, tool) and self.second.allows_tool(server, tool)

    def allows_links(self, server: str) -> bool:
        return self.first.allows_links(server) and self.second.allows_links(server)

    def allows_prompt(self, server: str, prompt: str) -> bool:
        return self.first.allows_prompt(server, prompt) and self.second.allows_prompt(server, prompt)


@record
class CallerScope:
    """The things that one caller may use. `everything()` is the scope of a caller without `allow`."""

    is_limited: bool = True
    """False: everything is allowed, and a check can be left out."""
    parts: tuple[_Part | _Both, ...] = ()
    """Of which any may allow a thing; none of them: nothing is allowed."""
    sources: tuple[tuple[Scope, ...], ...] = field(default=(), repr=False, compare=False)
    """What the parts are compiled from, in their order: a part allows what all scopes of its entry allow."""
    _tools: dict[tuple[str, str], bool] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def everything() -> CallerScope:
        """Return the scope that allows everything."""
        return _EVERYTHING

    @staticmethod
    def of(scopes: Iterable[Scope]) -> CallerScope:
        """Return the scope that allows what any of these allows; nothing without one."""
        found = tuple(scopes)
        if Scope() in found:
            return _EVERYTHING
        return CallerScope(
            parts=tuple(_compile_scope(scope) for scope in found), sources=tuple((scope,) for scope in found)
        )

    def within(self, other: CallerScope) -> CallerScope:
        """Return the scope that allows what this and another one allow."""
        if not (self.is_limited and other.is_limited):
            return self if self.is_limited else other
        return CallerScope(
            parts=tuple(_Both(first=mine, second=its) for mine in self.parts for its in other.parts),
            sources=tuple((*mine, *its) for mine in self.sources for its in other.sources),
        )

    def digest(self) -> str:
        """Return a text that is equal for scopes that are compiled from the same, at any gateway. Empty: no limits."""
        if not self.is_limited:
            return ""
        entries = sorted(sorted(each.model_dump_json() for each in entry) for entry in self.sources)
        return hashlib.sha256(orjson.dumps(entries)).hexdigest()

    def allows_model(self, name: str) -> bool:
        """Return whether the caller may use a plain model, by its public name."""
        return not self.is_limited or any(part.allows_model(name) for part in self.parts)

    def allows_agent(self, name: str) -> bool:
        """Return whether the caller may use an agent, by its public name."""
        return not self.is_limited or any(part.allows_agent(name) for part in self.parts)

    def allows_server(self, server: str) -> bool:
        """Return whether the caller may use an MCP server: it is allowed, and a tool or a prompt of it can be."""
        return not self.is_limited or any(part.allows_server(server) for part in self.parts)

    def allows_tool(self, server: str, tool: str) -> bool:
        """Return whether the caller may use a tool of a server, by the server's own name of the tool."""
        if not self.is_limited:
            return True
        is_allowed = self._tools.get((server, tool))
        if is_allowed is None:
            is_allowed = any(part.allows_tool(server, tool) for part in self.parts)
            if len(self._tools) >= _MAX_REMEMBERED:
                self._tools.clear()
            self._tools[server, tool] = is_allowed
        return is_allowed

    def allows_resources(self, server: str) -> bool:
        """Return whether the caller may list and read the resources of a server: reading is a tool, `read_resource`."""
        return self.allows_tool(server, READ_RESOURCE)

    def allows_links(self, server: str) -> bool:
        """Return whether the caller may read what tools of a server link to: unless `read_resource` is denied."""
        return not self.is_limited or any(part.allows_links(server) for part in self.parts)

    def allows_prompt(self, server: str, prompt: str) -> bool:
        """Return whether the caller may use a prompt of a server, by the server's own name of the prompt."""
        return not self.is_limited or any(part.allows_prompt(server, prompt) for part in self.parts)

    def allows(self, target: CallTarget) -> bool:
        """Return whether the caller may make a call. A Python function belongs to its agent and has no own rule."""
        if not self.is_limited:
            return True
        match target.kind:
            case TargetKind.TOOL:
                return not target.server or self.allows_tool(target.server, target.tool)
            case TargetKind.RESOURCE:
                return self.allows_resources(target.server)
            case TargetKind.LINK:
                return self.allows_links(target.server)
            case TargetKind.PROMPT:
                return self.allows_prompt(target.server, target.tool)
            case TargetKind.AGENT:
                return self.allows_agent(target.tool)


_EVERYTHING = CallerScope(is_limited=False)


def _compile_scope(scope: Scope) -> _Part:
    return _Part(
        models=_compile_names(scope.models),
        agents=_compile_names(scope.agents),
        servers=_compile_names(scope.servers),
        tools=_compile_tools(scope.tools),
        prompts=None if scope.prompts is None else _compile_tools(scope.prompts),
    )


def _split_list(patterns: Sequence[str]) -> tuple[list[str] | None, list[str]]:
    """Return the globs that allow, and those that deny.

    None for the first: with only denials, all the rest is allowed.
    """
    allowed = [glob for denies, glob in map(split_pattern, patterns) if not denies]
    denied = [glob for denies, glob in map(split_pattern, patterns) if denies]
    return (None if denied and not allowed else allowed), denied


def _compile_names(patterns: Sequence[str] | None) -> _Names:
    if patterns is None:
        return _Names(allowed=None, denied=None)
    allowed, denied = _split_list(patterns)
    return _Names(
        allowed=None if allowed is None else _compile_globs(allowed), denied=_compile_globs(denied) if denied else None
    )


def _compile_tools(patterns: Sequence[str] | None) -> _Tools:
    if patterns is None:
        return _Tools(allowed=None, denied=())
    allowed, denied = _split_list(patterns)
    return _Tools(
        allowed=None if allowed is None else tuple(map(_compile_tool_glob, allowed)),
        denied=tuple(map(_compile_tool_glob, denied)),
    )


def _compile_globs(globs: Sequence[str]) -> re.Pattern[str]:
    """Return one expression for several globs. Without any it matches nothing."""
    return re.compile("|".join(map(translate, globs)) if globs else r"(?!)")


def _compile_tool_glob(glob: str) -> _ToolGlob:
    server, tool = split_tool_pattern(glob)
    return _ToolGlob(server=_compile_globs([server]), tool=_compile_globs([tool]), is_whole_server=tool == _ALL)


def _matches(globs: Iterable[_ToolGlob], server: str, tool: str) -> bool:
    return any(glob.server.match(server) and glob.tool.match(tool) for glob in globs)

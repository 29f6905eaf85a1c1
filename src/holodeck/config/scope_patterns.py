"""Patterns of scopes that match nothing in a gateway file: warnings with the name that was probably meant.

A pattern that allows nothing locks its caller out, and one that denies nothing lets it in: both are easily a typo.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from holodeck.config.agent_loader import LoadedAgent
from holodeck.config.known_keys import closest_match
from holodeck.config.problems import problem_at
from holodeck.config.source import Source
from holodeck.config.yaml_reader import KeyPath
from holodeck.lib.errors import Problem
from holodeck.lib.record import record
from holodeck.models.file_model import quote_value
from holodeck.models.scope import Scope, split_pattern, split_tool_pattern

if TYPE_CHECKING:
    from holodeck.models.gateway import GatewayFile


@record
class _Configured:
    """The names that patterns can match, by the list that they are in."""

    models: Collection[str]
    agents: Collection[str]
    servers: Collection[str]


def find_unmatched_patterns(
    gateway: GatewayFile, agents: Mapping[str, LoadedAgent], source: Source
) -> Iterator[Problem]:
    """Yield a warning for each pattern of a key or of `jwt` that matches nothing that the file has."""
    servers = [tool.name for tool in gateway.mcp_servers]
    servers += [tool.name for loaded in agents.values() for tool in loaded.agent.tools]
    configured = _Configured(models=[model.name for model in gateway.models], agents=agents, servers=servers)
    for path, scope in _list_scopes(gateway):
        for key, patterns in scope:
            # Patterns for servers also match the labels of servers that requests declare.
            are_labels_unknown = key in ("servers", "tools") and gateway.request_servers.allow
            for index, pattern in enumerate(patterns or ()):
                if are_labels_unknown and not split_pattern(pattern)[0]:
                    continue
                yield from _check_pattern(key, pattern, (*path, key, index), configured, source)


def _list_scopes(gateway: GatewayFile) -> Iterator[tuple[KeyPath, Scope]]:
    for index, key in enumerate(gateway.keys):
        if key.allow is not None:
            yield ("keys", index, "allow"), key.allow
    if gateway.jwt is not None and gateway.jwt.allow is not None:
        yield ("jwt", "allow"), gateway.jwt.allow
    if gateway.jwt is not None and gateway.jwt.allow_by_claim is not None:
        for value, scope in gateway.jwt.allow_by_claim.values.items():
            yield ("jwt", "allow_by_claim", "values", value), scope


def _check_pattern(key: str, pattern: str, path: KeyPath, configured: _Configured, source: Source) -> Iterator[Problem]:
    denies, glob = split_pattern(pattern)
    kind = "servers" if key == "tools" else key
    name = split_tool_pattern(glob)[0] if key == "tools" else glob
    names: Collection[str] = getattr(configured, kind)
    if name == "*" or any(fnmatchcase(each, name) for each in names):
        return
    noun = {"models": "model", "agents": "agent", "servers": "MCP server"}[kind]
    effect = "denies" if denies else "allows"
    close = closest_match(name, names)
    fix = f"Did you mean '{close}'?" if close is not None else _describe_names(noun, names)
    message = f"{quote_value(pattern)} {effect} nothing: no {noun} of this file matches {quote_value(name)}"
    yield problem_at(source.document, path, message, fix=fix, severity="warning")


def _describe_names(noun: str, names: Collection[str]) -> str:
    return f"There are: {', '.join(dict.fromkeys(names))}." if names else f"The file has no {noun}."

"""A server as a registry describes it. Both spellings of keys that registries use are read: camel case and snake case.

Parsing never fails: what has another form than expected is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holodeck.lib.record import record

_META_KEY = "io.modelcontextprotocol.registry/official"
# Entries of one list (packages, remotes, arguments, variables) that are read. Real servers have a handful.
_MAX_ITEMS = 100
# Characters of a text that are read: a description has at most 100.
_MAX_TEXT = 2000


@record
class Input:
    """A value of an argument, a variable or a header that a user may have to give."""

    name: str
    description: str = ""
    is_required: bool = False
    is_secret: bool = False
    default: str | None = None
    value: str | None = None
    """A fixed value, with `{name}` for each of `variables`."""
    variables: tuple[Input, ...] = ()
    is_named: bool = False
    """For an argument: whether its name comes before its value."""


@record
class Package:
    """A package that starts the server on this machine."""

    registry_type: str
    identifier: str
    version: str = ""
    base_url: str = ""
    transport: str = "stdio"
    runtime_arguments: tuple[Input, ...] = ()
    arguments: tuple[Input, ...] = ()
    environment: tuple[Input, ...] = ()


@record
class Remote:
    """An address at which the server runs."""

    transport: str
    url: str
    headers: tuple[Input, ...] = ()
    variables: tuple[Input, ...] = ()


@record
class RegistryServer:
    """One version of a server of a registry."""

    name: str
    description: str = ""
    version: str = ""
    status: str = "active"
    is_latest: bool = True
    packages: tuple[Package, ...] = ()
    remotes: tuple[Remote, ...] = ()

    def to_data(self) -> dict[str, Any]:
        """Return what a list of servers shows, as data for `--json`."""
        packages = [
            {"type": each.registry_type, "identifier": each.identifier, "version": each.version}
            for each in self.packages
        ]
        remotes = [{"type": each.transport, "url": each.url} for each in self.remotes]
        about = {"name": self.name, "description": self.description, "version": self.version, "status": self.status}
        return {**about, "packages": packages, "remotes": remotes}


def parse_server(data: Any) -> RegistryServer | None:
    """Parse one element of a listing: `{server, _meta}`, or the server itself. None if it names no server."""
    outer = data if isinstance(data, Mapping) else {}
    inner = outer.get("server")
    server = inner if isinstance(inner, Mapping) else outer
    name = _text(server, "name")
    if not name:
        return None
    meta = outer.get("_meta") if isinstance(outer.get("_meta"), Mapping) else server.get("_meta")
    official = meta.get(_META_KEY) if isinstance(meta, Mapping) else None
    about = official if isinstance(official, Mapping) else {}
    return RegistryServer(
        name=name,
        description=_text(server, "description"),
        version=_text(server, "version"),
        status=_text(about, "status") or _text(server, "status") or "active",
        is_latest=_get(about, "isLatest") is not False,
        packages=tuple(_parse_package(each) for each in _list(server, "packages")),
        remotes=tuple(_parse_remote(each) for each in _list(server, "remotes")),
    )


def _parse_package(data: Mapping[str, Any]) -> Package:
    transport = data.get("transport")
    return Package(
        registry_type=_text(data, "registryType"),
        identifier=_text(data, "identifier"),
        version=_text(data, "version"),
        base_url=_text(data, "registryBaseUrl"),
        transport=_text(transport, "type") if isinstance(transport, Mapping) else "stdio",
        runtime_arguments=_parse_arguments(data, "runtimeArguments"),
        arguments=_parse_arguments(data, "packageArguments"),
        environment=tuple(_parse_input(each, _text(each, "name")) for each in _list(data, "environmentVariables")),
    )


def _parse_remote(data: Mapping[str, Any]) -> Remote:
    return Remote(
        transport=_text(data, "type"),
        url=_text(data, "url"),
        headers=tuple(_parse_input(each, _text(each, "name")) for each in _list(data, "headers")),
        variables=_parse_variables(data),
    )


def _parse_arguments(data: Mapping[str, Any], key: str) -> tuple[Input, ...]:
    result = []
    for each in _list(data, key):
        is_named = _text(each, "type") == "named"
        name = _text(each, "name") if is_named else _text(each, "valueHint") or _text(each, "name") or "argument"
        result.append(_parse_input(each, name, is_named=is_named))
    return tuple(result)


def _parse_input(data: Mapping[str, Any], name: str, *, is_named: bool = False) -> Input:
    return Input(
        name=name,
        description=_text(data, "description"),
        is_required=_get(data, "isRequired") is True,
        is_secret=_get(data, "isSecret") is True,
        default=_optional_text(data, "default"),
        value=_optional_text(data, "value"),
        variables=_parse_variables(data),
        is_named=is_named,
    )


def _parse_variables(data: Mapping[str, Any]) -> tuple[Input, ...]:
    variables = data.get("variables")
    pairs = list(variables.items())[:_MAX_ITEMS] if isinstance(variables, Mapping) else []
    return tuple(_parse_input(each, str(name)) for name, each in pairs if isinstance(each, Mapping))


def _get(data: Mapping[str, Any], key: str) -> Any:
    return data[key] if key in data else data.get(re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", key))


def _text(data: Mapping[str, Any], key: str) -> str:
    return _optional_text(data, key) or ""


def _optional_text(data: Mapping[str, Any], key: str) -> str | None:
    value = _get(data, key)
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)[:_MAX_TEXT] if isinstance(value, (str, int, float)) else None


def _list(data: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    value = _get(data, key)
    return [each for each in value[:_MAX_ITEMS] if isinstance(each, Mapping)] if isinstance(value, list) else []

"""The differences between two configurations of a gateway: what the log names, and what only a restart can change.

`keep_restart_keys` puts the values of now into a new file for keys that are used once, at the start, such as the
address and the storage, and `keep_written` does so in the file as it is written. `describe_changes` names what is
different, and never a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.configuration import Configuration
from holodeck.models.gateway import GatewayFile
from holodeck.models.tool import MCPTool

_RESTART_KEYS: Mapping[str, tuple[str, ...]] = {
    "listen": ("host", "port"),
    "storage": ("url", "durability"),
    "background": (),
    "audit": (),
    "log": (),
    "metrics": (),
    "otel": (),
    "seal_key": (),
    # Limits of memory and of connections, which the server was built with.
    "limits": ("body_bytes", "bodies_bytes", "context_bytes", "request_seconds", "reader_seconds", "socket_seconds"),
}
"""The keys that are used at the start only: a section, and the keys in it. Without any, all of the section."""
_LISTED = frozenset({"models", "agents", "mcp_servers", "keys"})
"""Sections whose entries are compared one by one."""
_RESTRICTIONS: Mapping[str, tuple[str, ...]] = {
    "jwt": ("allow", "allow_by_claim"),
    "request_servers": ("hosts", "max_per_request"),
    "request_files": ("hosts", "max_bytes", "max_seconds"),
}
"""Keys without which more is allowed, of sections without which nothing is."""
_ENTRY_RESTRICTIONS: Mapping[str, tuple[str, ...]] = {
    "keys": ("allow", "limits", "budget"),
    "mcp_servers": ("allowed_tools", "denied_tools", "approval", "sandbox", "max_result_bytes"),
}
"""The same of entries of lists."""


def find_restart_keys(current: GatewayFile, new: GatewayFile) -> list[str]:
    """Return the keys that differ and that only a restart can change."""
    return [
        f"{section}.{key}" if key else section
        for section, key in _restart_keys()
        if _value_of(current, section, key) != _value_of(new, section, key)
    ]


def keep_restart_keys(current: GatewayFile, new: GatewayFile) -> GatewayFile:
    """Return the new settings, with those of now for keys that only a restart can change."""
    updates: dict[str, Any] = {}
    for section, keys in _RESTART_KEYS.items():
        before = getattr(current, section)
        if keys:
            before = getattr(new, section).model_copy(update={key: getattr(before, key) for key in keys})
        updates[section] = before
    return new.model_copy(update=updates)


def keep_written(current: Mapping[str, Any], new: Mapping[str, Any], restart_keys: Iterable[str]) -> dict[str, Any]:
    """Return the new file as it is written, with what is written now for keys of `find_restart_keys`."""
    kept = dict(new)
    for name in restart_keys:
        section, _, key = name.partition(".")
        if key:
            inside = _mapping_at(kept, section)
            _keep_entry(_mapping_at(current, section), inside, key)
            kept[section] = inside
            # A section of which nothing is in force is one that is not written yet.
            if not inside and section not in current:
                del kept[section]
        else:
            _keep_entry(current, kept, section)
    return kept


def find_removed_limits(current: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return the restrictions that are written now and in the new file are not, by their paths.

    Removing one allows more, and a file that was cut or merged wrongly has removed it by mistake. Both are files as
    they are written. A caller or a server that is gone has no restrictions any more: it may do nothing.
    """
    found = [*_list_removed(current, new, ("limits",))]
    listen = (_mapping_at(current, "listen"), _mapping_at(new, "listen"))
    found += [f"listen.{path}" for path in _list_removed(*listen, ("allowed_hosts",))]
    for name, keys in _RESTRICTIONS.items():
        found += [f"{name}.{path}" for path in _list_removed(current.get(name), new.get(name), keys)]
    for name, keys in _ENTRY_RESTRICTIONS.items():
        before, now = _entries_of(current, name), _entries_of(new, name)
        found += [
            f"{name}.{entry}.{path}" for entry in before for path in _list_removed(before[entry], now.get(entry), keys)
        ]
    return found


def describe_changes(old: Configuration, new: Configuration) -> dict[str, list[str]]:
    """Return the names of what is different, for the log: keys, models, servers, and settings by their paths."""
    compared: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
        "keys": (_keys_of(old), _keys_of(new)),
        "models": (_models_of(old), _models_of(new)),
        "servers": (_servers_of(old), _servers_of(new)),
    }
    found: dict[str, list[str]] = {}
    for kind, (before, now) in compared.items():
        found[f"{kind}_added"] = [name for name in now if name not in before]
        found[f"{kind}_removed"] = [name for name in before if name not in now]
        found[f"{kind}_changed"] = [name for name in now if name in before and now[name] != before[name]]
    found["settings_changed"] = list(_changed_settings(old.gateway, new.gateway))
    return {kind: names for kind, names in found.items() if names}


def find_changed_code(current: LoadedGateway, new: LoadedGateway) -> set[str]:
    """Return the agents whose Python files have changed since they were imported: a process imports a file once."""
    imported = _code_of(current)
    return {
        name
        for name, agent in new.agents.items()
        for path, digest in agent.code.items()
        if imported.get(agent.path.parent / path, digest) != digest
    }


def _list_removed(before: object, now: object, keys: Iterable[str]) -> Iterator[str]:
    """Yield the paths at and below these keys that only the first mapping has. A mapping that is gone has none."""
    if not isinstance(before, Mapping) or not isinstance(now, Mapping):
        return
    for key in keys:
        value, other = before.get(key), now.get(key)
        if value not in (None, []) and other in (None, []):
            yield key
        elif isinstance(value, Mapping):
            yield from (f"{key}.{path}" for path in _list_removed(value, other, value))


def _entries_of(written: Mapping[str, Any], section: str) -> dict[str, Mapping[str, Any]]:
    entries = written.get(section)
    return {str(entry.get("name")): entry for entry in entries} if isinstance(entries, list) else {}


def _restart_keys() -> Iterator[tuple[str, str]]:
    for section, keys in _RESTART_KEYS.items():
        for key in keys or ("",):
            yield section, key


def _value_of(gateway: GatewayFile, section: str, key: str) -> object:
    value = getattr(gateway, section)
    return getattr(value, key) if key else value


def _mapping_at(written: Mapping[str, Any], section: str) -> dict[str, Any]:
    """Return a copy of a section; empty if it is not written, or has no entries (`listen:`)."""
    value = written.get(section)
    return dict(value) if isinstance(value, Mapping) else {}


def _keep_entry(source: Mapping[str, Any], target: dict[str, Any], key: str) -> None:
    if key in source:
        target[key] = source[key]
    else:
        target.pop(key, None)


def _keys_of(configuration: Configuration) -> dict[str, object]:
    return {key.name: key for key in configuration.gateway.keys}


def _models_of(configuration: Configuration) -> dict[str, object]:
    """Return models and agents by their public names: a change of their servers is not a change of them."""
    models: dict[str, object] = dict(configuration.loaded.models)
    for name, agent in configuration.loaded.agents.items():
        models[name] = (agent.agent.model_copy(update={"tools": []}), agent.code)
    return models


def _servers_of(configuration: Configuration) -> dict[str, object]:
    """Return the servers of the gateway by their names, and those of agents with the agents' names before."""
    loaded = configuration.loaded
    servers: dict[str, object] = {item.tool.name: item.tool for item in loaded.servers}
    for name, agent in loaded.agents.items():
        servers |= {f"{name}/{tool.name}": tool for tool in agent.agent.tools if isinstance(tool, MCPTool)}
    return servers


def _code_of(loaded: LoadedGateway) -> dict[object, str]:
    return {agent.path.parent / path: digest for agent in loaded.agents.values() for path, digest in agent.code.items()}


def _changed_settings(old: GatewayFile, new: GatewayFile) -> Iterator[str]:
    for section in GatewayFile.model_fields:
        before, now = getattr(old, section), getattr(new, section)
        if section in _LISTED or before == now:
            continue
        fields = getattr(type(now), "model_fields", None)
        if fields is None or type(before) is not type(now):
            yield section
        else:
            yield from (f"{section}.{key}" for key in fields if getattr(before, key) != getattr(now, key))

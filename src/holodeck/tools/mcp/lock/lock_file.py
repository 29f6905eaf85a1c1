"""The file `holodeck.lock`: what MCP servers list, as a person accepted it.

It lies beside the file that defines the servers, and is meant for version control: JSON with one line for each tool,
prompt, resource and template, in a stable order, so that a review shows what changed. Servers are grouped by the file
that defines them, because two agent files in one folder may have servers of the same name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import field
from pathlib import Path
from typing import Any

from holodeck.lib.errors import ConfigError, Problem
from holodeck.lib.json.parse import parse_json
from holodeck.lib.record import record
from holodeck.lib.system.files import draft_of
from holodeck.tools.mcp.lock.drift import FIELDS, LISTS, LockedEntry, ServerLock, decode_values, encode_values

LOCK_FILE = "holodeck.lock"
_VERSION = 1
_FIX = "Restore it from version control, or delete it and write it anew with 'holodeck mcp lock'."


@record
class LockFile:
    """The accepted servers, by the name of their file and their own name."""

    files: Mapping[str, Mapping[str, ServerLock]] = field(default_factory=dict)

    def find_server(self, file: str, server: str) -> ServerLock | None:
        """Return the lock of a server. None: the servers of this file are not locked.

        A server that was added to a locked file has a lock without tools: none of its tools was accepted.
        """
        servers = self.files.get(file)
        return None if servers is None else servers.get(server, ServerLock())

    def replace_servers(self, file: str, servers: Mapping[str, ServerLock]) -> LockFile:
        """Return the lock with these servers instead of those that it has for the file."""
        return LockFile(files={**self.files, file: dict(servers)})


def read_server_lock(file: Path, server: str) -> ServerLock | None:
    """Return the lock of a server that `file` defines. None: there is none. Raises `ConfigError`."""
    lock = read_lock(file.parent)
    return None if lock is None else lock.find_server(file.name, server)


def read_lock(folder: Path) -> LockFile | None:
    """Read the lock of a folder. None if it has none. Raises `ConfigError` for a damaged one."""
    path = folder / LOCK_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _lock_error(path, f"cannot be read: {error.strerror}", "Check its permissions.") from error
    try:
        data = parse_json(content)
    except ValueError as error:
        line = getattr(error, "lineno", None)
        raise _lock_error(path, f"is not valid JSON: {error}", _FIX, line=line) from None
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        raise _lock_error(path, f"does not have 'version': {_VERSION}", "Use the version of HoloDeck that wrote it.")
    try:
        return LockFile(files={name: _decode_servers(servers) for name, servers in data["files"].items()})
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise _lock_error(path, f"has an entry that is not as it was written ({error})", _FIX) from None


def write_lock(folder: Path, lock: LockFile) -> Path:
    """Write the lock of a folder, all or nothing. Returns its path."""
    path = folder / LOCK_FILE
    with draft_of(path) as draft:
        draft.write_text(format_lock(lock), encoding="utf-8")
        draft.replace(path)
    return path


def format_lock(lock: LockFile) -> str:
    """Return the text of a lock: sorted, with one line for each entry."""
    files = [
        f"    {_dump(name)}: {{\n{_format_servers(servers)}\n    }}" for name, servers in sorted(lock.files.items())
    ]
    return f'{{\n  "version": {_VERSION},\n  "files": {{\n' + ",\n".join(files) + "\n  }\n}\n"


def _format_servers(servers: Mapping[str, ServerLock]) -> str:
    texts = []
    for name, server in sorted(servers.items()):
        lines = [f'        "launch": {_dump(server.launch)}', f'        "version": {_dump(server.version)}']
        if server.ignored:
            lines.append(f'        "ignored": {_dump(sorted(server.ignored))}')
        if server.instructions is not None:
            lines.append(f'        "instructions": {_dump(encode_values(server.instructions))}')
        for noun, key in LISTS.items():
            entries = server.entries(noun)
            if entries or noun == "tool":
                lines.append(f'        "{key}": {_format_entries(entries)}')
        texts.append(f"      {_dump(name)}: {{\n" + ",\n".join(lines) + "\n      }")
    return ",\n".join(texts)


def _format_entries(entries: Mapping[str, LockedEntry]) -> str:
    lines = [f"          {_dump(name)}: {_dump(_encode_entry(each))}" for name, each in sorted(entries.items())]
    return "{\n" + ",\n".join(lines) + "\n        }" if lines else "{}"


def _encode_entry(entry: LockedEntry) -> dict[str, Any]:
    plain: dict[str, Any] = {"parameters": entry.parameters} if "input_schema" in entry.values else {}
    plain |= encode_values(entry)
    if entry.ignored:
        plain["ignored"] = sorted(entry.ignored)
    return plain


def _decode_servers(servers: Mapping[str, Any]) -> dict[str, ServerLock]:
    return {name: _decode_server(server) for name, server in servers.items()}


def _decode_server(server: Mapping[str, Any]) -> ServerLock:
    _refuse_unknown(server, {*LISTS.values(), "launch", "version", "instructions", "ignored"})
    instructions = server.get("instructions")
    return ServerLock(
        tools=_decode_entries(server["tools"]),
        prompts=_decode_entries(server.get("prompts", {})),
        resources=_decode_entries(server.get("resources", {})),
        templates=_decode_entries(server.get("templates", {})),
        instructions=None if instructions is None else _decode_entry(instructions),
        ignored=frozenset(server.get("ignored", ())) - {LISTS["tool"]},
        launch=str(server.get("launch", "")),
        version=str(server.get("version", "")),
    )


def _decode_entries(entries: Mapping[str, Any]) -> dict[str, LockedEntry]:
    return {name: _decode_entry(plain) for name, plain in entries.items()}


def _decode_entry(plain: Mapping[str, Any]) -> LockedEntry:
    _refuse_unknown(plain, {*FIELDS, "other", "pinned", "parameters", "ignored"})
    ignored = frozenset(plain.get("ignored", ()))
    return LockedEntry(values=decode_values(plain), parameters=plain.get("parameters", ""), ignored=ignored)


def _refuse_unknown(plain: Mapping[str, Any], known: Set[str]) -> None:
    if unknown := set(plain) - known:
        raise ValueError(f"unknown field '{min(unknown)}'")


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lock_error(path: Path, problem: str, fix: str, *, line: int | None = None) -> ConfigError:
    return ConfigError.of([Problem(message=f"{LOCK_FILE} {problem}", file=str(path), line=line, fix=fix)])

"""Changes the configuration of a running gateway: reads its files again, checks them, and applies them as a whole.

`ConfigurationReader` reads the files and knows what the operator agreed to when the gateway was started: a change of
what the files do needs a new trust record, a change of keys, limits or other settings does not.
`ConfigurationReloader` reads them on request (a signal) or when they have changed, at most once a second. A file with
errors is refused: its problems are logged, and the configuration of before stays in force as a whole.

Files are read, and models and servers built, in a thread. The change itself happens between two steps of the event
loop, by the `apply` of the service. Nothing here raises: every outcome is in the log and in the audit log.

`keep_restart_keys` puts the values of now into a new file for keys that are used once, at the start, such as the
address and the storage, and `keep_written` does so in the file as it is written. `describe_changes` names what is
different, and never a value.

Watched files are found by their paths each time, so that a file which is replaced by another one counts as changed: an
editor that saves by a rename, or a symbolic link on the way that points elsewhere now, as in a mounted ConfigMap. A
change counts once two looks in a row find the same: before that, a program may still be writing.
"""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from holodeck.config.actions import Actions, list_actions
from holodeck.config.agent_loader import LoadedAgent
from holodeck.config.files import record_paths
from holodeck.config.gateway_loader import LoadedGateway
from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.backends import Backend, build_backends, reuse_unchanged
from holodeck.gateway.configuration import Configuration, ConfigurationHolder, ReloadOutcome, build_configuration
from holodeck.lib import log
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.errors import ConfigError, HoloDeckError, Problem
from holodeck.lib.record import record
from holodeck.models.gateway import GatewayFile
from holodeck.models.tool import MCPTool
from holodeck.runtime import read_gateway
from holodeck.tools.function import FunctionExecutor
from holodeck.tools.mcp.lock.lock_file import LOCK_FILE
from holodeck.trust import check_trust, find_changes, open_trust_store

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
_LISTED = frozenset({"models", "agents", "mcp_servers", "keys", "groups"})
"""Sections whose entries are compared one by one."""
_RESTRICTIONS: Mapping[str, tuple[str, ...]] = {
    "jwt": ("allow", "allow_by_claim"),
    "request_servers": ("hosts", "max_per_request"),
    "request_files": ("hosts", "max_bytes", "max_seconds"),
}
"""Keys without which more is allowed, of sections without which nothing is."""
_ENTRY_RESTRICTIONS: Mapping[str, tuple[str, ...]] = {
    "keys": ("allow", "limits", "budget", "group"),
    "groups": ("allow", "limits", "budget"),
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


FileStamps = dict[Path, tuple[int, int, int, int] | None]
"""Time, size, inode and device of each file. None: there is no such file."""


class FileWatch:
    """Compares files with how they were when they were read. It has no task of its own: `find_change` looks once."""

    def __init__(self) -> None:
        self._read: FileStamps = {}
        self._latest: FileStamps = {}

    @property
    def paths(self) -> Collection[Path]:
        return self._read.keys()

    def mark_read(self, stamps: FileStamps) -> None:
        """Watch these files from now on. `stamps`: from before they were read."""
        self._read = stamps
        self._latest = {}

    async def find_change(self) -> bool:
        """Look at the files, in a thread. True when they differ from what was read, and are as at the last look."""
        stamps = await asyncio.to_thread(take_stamps, self._read)
        is_settled, self._latest = stamps == self._latest, stamps
        return is_settled and stamps != self._read


def take_stamps(paths: Collection[Path]) -> FileStamps:
    """Return the stamps of files as they are now."""
    return {path: _stamp_of(path) for path in paths}


def _stamp_of(path: Path) -> tuple[int, int, int, int] | None:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


# Seconds between two looks at the files: a change is applied within two of them, and looking costs nothing.
WATCH_INTERVAL = 1.0

# A file that was cut while it was written looks like one without keys: only a person who restarts the gateway says so.
_NO_AUTH = "the file has neither 'keys' nor 'jwt' any more, and a reload never ends authentication"
_NO_AUTH_FIX = "Put them back. To serve this machine without keys, write 'auth: none' and restart the gateway."


class ConfigurationReader:
    """Reads the files of one gateway, and checks that the operator trusts what they do."""

    def __init__(self, file: Path, *, environ: Mapping[str, str], home: Path | None = None) -> None:
        """`file`: a gateway file, or the file of one agent. `home`: replaces the home folder of the process."""
        self.environ = environ
        self._file = file
        self._home = home
        self._agreed = Actions(actions=())
        self.stamps: FileStamps = {}
        """All files that the latest `read` has used or looked for, as they were before."""

    def agree_to(self, actions: Actions) -> None:
        """Set what the operator agreed to when the gateway was started."""
        self._agreed = actions

    def read(self) -> LoadedGateway:
        """Read the files, with every check that starts nothing. Raises `ConfigError`."""
        before = take_stamps(self.stamps)
        with record_paths() as paths:
            try:
                loaded = read_gateway(self._file, environ=self.environ, home=self._home)
                folders = {loaded.path.parent, *(agent.path.parent for agent in loaded.agents.values())}
                paths |= {folder / LOCK_FILE for folder in folders}
            finally:
                # After an error some files may not have been reached; a change of them may mend it.
                self.stamps = before | take_stamps([path for path in paths if path not in before])
        self.stamps = {path: self.stamps[path] for path in paths}
        return loaded

    def check_trust(self, loaded: LoadedGateway) -> None:
        """Raise `ConfigError` if the files do what the operator has not agreed to, at the start or by now."""
        actions = list_actions(loaded)
        changes = list(find_changes(actions, self._agreed.actions))
        if not changes:
            return
        store = open_trust_store(self._home)
        if check_trust(loaded.path, actions, environ=self.environ, store=store).state == "trusted":
            return
        # The operator may agree now, and the gateway is to notice that.
        self.stamps |= take_stamps([store.file])
        names = sorted({change.action.name for change in changes})
        message = f"this file does what it was not trusted for when the gateway was started: {', '.join(names)}"
        fix = f"Look at it and agree to it with: holodeck trust {shlex.quote(str(loaded.path))}"
        raise ConfigError.of([Problem(message=message, file=str(loaded.path), fix=fix)])


@record
class _Reading:
    """A configuration that was read and built, and what of its files is not in it."""

    configuration: Configuration
    restart_keys: list[str]


class ConfigurationReloader:
    """Applies changed files to a running gateway. `run` is its one task; `request` is for signals."""

    def __init__(
        self,
        reader: ConfigurationReader,
        configurations: ConfigurationHolder,
        budget: ByteBudget,
        audit: AuditLog,
        *,
        apply: Callable[[Configuration], None],
    ) -> None:
        """`budget`: as of `build_configuration`. `apply` swaps the configuration, at once and without raising."""
        self._reader = reader
        self._configurations = configurations
        self._budget = budget
        self._audit = audit
        self._apply = apply
        self._requested = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._watch = FileWatch()
        self._watch.mark_read(reader.stamps)
        self.latest = ReloadOutcome(at=time.time())
        """The start of the gateway counts as the first reading."""

    def request(self) -> None:
        """Read the files again soon, whether they have changed or not. For signal handlers; before `run`, ignored."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._requested.set)

    async def run(self) -> None:
        """Reload on request, and when files have changed. Runs until it is cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(WATCH_INTERVAL):
                    await self._requested.wait()
            if self._requested.is_set():
                self._requested.clear()
                await self.reload()
            elif self._configurations.current.gateway.reload.watch and await self._watch.find_change():
                await self.reload()

    async def reload(self) -> bool:
        """Read the files now and apply them. Returns False if they are refused, with the reason in the log."""
        async with self._lock:
            current = self._configurations.current
            try:
                reading = await asyncio.to_thread(self._read, current)
            except HoloDeckError as error:
                problems = error.problems if isinstance(error, ConfigError) else (Problem(message=str(error)),)
                described = [_describe_problem(each) for each in problems]
                log.error("gateway.reload_refused", problems=described)
                self.latest = ReloadOutcome(at=time.time(), problems=tuple(problems))
                await self._audit.record_refused_reload(described, request_id=_current_request())
                return False
            finally:
                self._watch.mark_read(self._reader.stamps)
            new = reading.configuration
            changes = describe_changes(current, new)
            self._apply(new)
            for problem in new.loaded.warnings:
                if problem not in current.loaded.warnings:
                    log.warning("gateway.file", problem=_describe_problem(problem))
            if reading.restart_keys:
                log.warning("gateway.reload_needs_restart", keys=reading.restart_keys)
            removed = find_removed_limits(current.loaded.written, new.loaded.written)
            if removed:
                log.warning("gateway.reload_allows_more", removed=removed)
            log.info("gateway.reloaded", **changes)
            self.latest = ReloadOutcome(at=time.time(), restart_keys=tuple(reading.restart_keys))
            await self._audit.record_reload(changes, request_id=_current_request())
            return True

    def _read(self, current: Configuration) -> _Reading:
        """Read the files and build their configuration, with all that is unchanged. Raises `HoloDeckError`."""
        loaded = self._reader.read()
        self._reader.check_trust(loaded)
        if current.gateway.has_auth and not loaded.gateway.has_auth:
            raise ConfigError.of([Problem(message=_NO_AUTH, file=str(loaded.path), fix=_NO_AUTH_FIX)])
        restart_keys = find_restart_keys(current.gateway, loaded.gateway)
        gateway = keep_restart_keys(current.gateway, loaded.gateway)
        stale = find_changed_code(current.loaded, loaded)
        loaded = replace(
            loaded,
            agents=_keep_agents(current.loaded, loaded, stale),
            written=keep_written(current.loaded.written, loaded.written, restart_keys),
        )
        built = build_backends(
            replace(loaded, gateway=gateway), environ=self._reader.environ, changes=current.served.changes
        )
        served = reuse_unchanged(built, current.served)
        _import_functions(served.all)
        restart_keys += [f"Python files of agent {name}" for name in sorted(stale)]
        configuration = build_configuration(loaded, served, self._budget, gateway=gateway, earlier=current)
        return _Reading(configuration=configuration, restart_keys=restart_keys)


def _current_request() -> str:
    """Return the id of the request that is being answered. Empty: there is none."""
    return str(log.current_fields().get("request", ""))


def _keep_agents(current: LoadedGateway, loaded: LoadedGateway, stale: set[str]) -> dict[str, LoadedAgent]:
    """Return the agents to serve. One whose Python files have changed stays as it was; a new one of those waits."""
    kept = {name: current.agents[name] for name in stale if name in current.agents}
    return {name: agent for name, agent in loaded.agents.items() if name not in stale} | kept


def _import_functions(backends: Iterable[Backend]) -> None:
    """Import the Python functions of agents, before a request would wait for it. Raises `ExecutionError`."""
    for backend in backends:
        for functions in backend.functions:
            if isinstance(functions, FunctionExecutor):
                functions.import_files()


def _describe_problem(problem: Problem) -> str:
    place = " ".join(part for part in (problem.where, problem.key) if part)
    text = " ".join(f"{problem.message}. {problem.fix}".split())
    return f"{place}: {text}" if place else text

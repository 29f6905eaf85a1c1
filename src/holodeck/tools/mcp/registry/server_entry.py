"""A server of a registry as an entry of our files: the command line with its exact version, or the URL.

What the registry leaves to the user becomes a reference to a variable whose name begins with `MCP_` and the name of the
entry, whatever the server calls it: no entry of a registry can name a variable that the user has for another purpose.
Text of the registry never becomes a reference: `${` in it is written as a literal.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from holodeck.lib.record import record
from holodeck.tools.mcp.registry.server_record import Input, Package, RegistryServer, Remote

LaunchKind = Literal["npm", "pypi", "oci", "http", "sse"]
KINDS: tuple[LaunchKind, ...] = ("http", "npm", "pypi", "oci", "sse")
"""In the order in which they are preferred."""
_PROGRAMS = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
_TRANSPORTS: dict[str, LaunchKind] = {"streamable-http": "http", "http": "http", "sse": "sse"}
_PUBLIC_BASES = re.compile(r"(https://(registry\.npmjs|pypi|docker|ghcr)\.(org|io)/?)?")
_IDENTIFIERS = {
    "npm": re.compile(r"(@[a-z0-9~-][a-z0-9._~-]*/)?[a-zA-Z0-9~][a-zA-Z0-9._~-]*"),
    "pypi": re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"),
    "oci": re.compile(r"[a-z0-9][A-Za-z0-9._/-]*(:[0-9]+/[A-Za-z0-9._/-]+)?(:[A-Za-z0-9._-]+)?(@sha256:[0-9a-f]{64})?"),
}
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OPTION = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9_.-]*")
_PREFIX = "MCP_"
# Stands around a reference until its text is complete. No registry can write it: it is removed from its texts.
_MARK = "\0"
_MARKED = re.compile(rf"{_MARK}([^{_MARK}]*){_MARK}")
_CURLY = re.compile(r"\{([A-Za-z0-9_.-]+)\}")


class UnusableError(ValueError):
    """This way to use a server cannot be said in our files. The text says why."""


@record
class NeededVariable:
    """A variable that an entry refers to."""

    name: str
    description: str = ""
    is_secret: bool = False
    is_required: bool = True


@record
class ServerLaunch:
    """One way to use a server."""

    kind: LaunchKind
    entry: dict[str, Any]
    """Without `name` and `description`."""
    variables: tuple[NeededVariable, ...] = ()


def find_launches(server: RegistryServer, label: str) -> tuple[list[ServerLaunch], list[str]]:
    """Return the ways to use a server, the best one first, and why others cannot be used.

    `label`: the name that the server gets, for names of variables. A package whose program is not on PATH comes last.
    """
    launches: list[ServerLaunch] = []
    reasons: list[str] = []
    ways: list[tuple[str, Callable[[], ServerLaunch]]] = []
    for remote in server.remotes:
        ways.append((remote.url, partial(_EntryBuilder(label).build_remote, remote)))
    for package in server.packages:
        what = f"{package.registry_type} {package.identifier}"
        ways.append((what, partial(_EntryBuilder(label).build_package, package)))
    for what, build in ways:
        try:
            launches.append(build())
        except UnusableError as error:
            reasons.append(f"{what}: {error}")
    launches.sort(key=lambda launch: (not _has_program(launch.kind), KINDS.index(launch.kind)))
    return launches, reasons


def _has_program(kind: LaunchKind) -> bool:
    return kind not in _PROGRAMS or shutil.which(_PROGRAMS[kind]) is not None


class _EntryBuilder:
    def __init__(self, label: str) -> None:
        self._label = label
        self._variables: dict[str, NeededVariable] = {}

    def build_package(self, package: Package) -> ServerLaunch:
        """Build the command line of a package. Raises `UnusableError`."""
        kind = package.registry_type
        if kind not in _PROGRAMS:
            raise UnusableError(f"packages of the kind '{kind}' cannot be started here")
        if package.transport != "stdio":
            raise UnusableError(f"it would be started here and reached over {package.transport}")
        if not _PUBLIC_BASES.fullmatch(package.base_url) and kind != "oci":
            raise UnusableError("it is in a package registry of its own")
        if not _IDENTIFIERS[kind].fullmatch(package.identifier):
            raise UnusableError("its name has an unusual form")
        env = self._build_environment(package.environment)
        runtime = self._build_arguments(package.runtime_arguments)
        arguments = self._build_arguments(package.arguments)
        args = [*_package_args(kind, package, runtime, list(env)), *arguments]
        entry: dict[str, Any] = {"command": _PROGRAMS[kind], "args": args}
        if env:
            entry["env"] = env
        return self._finish(kind, entry)

    def build_remote(self, remote: Remote) -> ServerLaunch:
        """Build the entry of a remote server. Raises `UnusableError`."""
        transport = _TRANSPORTS.get(remote.transport)
        if transport is None:
            raise UnusableError(f"its transport '{remote.transport}' is not known")
        url = self._write(self._fill(remote.url, remote.variables))
        headers: dict[str, str] = {}
        for each in remote.headers:
            if not _HEADER.fullmatch(each.name):
                raise UnusableError("a header has an unusual name")
            text = self._build_text(each, self._variable_for(each.name))
            if text is not None:
                headers[each.name] = text
        entry: dict[str, Any] = {"transport": transport, "url": url}
        if headers:
            entry["headers"] = headers
        return self._finish(transport, entry)

    def _finish(self, kind: Any, entry: dict[str, Any]) -> ServerLaunch:
        return ServerLaunch(kind=kind, entry=entry, variables=tuple(self._variables.values()))

    def _build_environment(self, inputs: Sequence[Input]) -> dict[str, str]:
        env: dict[str, str] = {}
        for each in inputs:
            if not _VARIABLE.fullmatch(each.name):
                raise UnusableError("a variable has an unusual name")
            text = self._build_text(each, self._variable_for(each.name))
            if text is not None:
                env[each.name] = text
        return env

    def _build_arguments(self, inputs: Sequence[Input]) -> list[str]:
        args: list[str] = []
        for each in inputs:
            if each.is_named and not _OPTION.fullmatch(each.name):
                raise UnusableError("an option has an unusual name")
            # An option without a value is a switch.
            is_switch = each.is_named and each.value is None and each.default is None and each.is_required
            text = None if is_switch and not each.is_secret else self._build_text(each, self._variable_for(each.name))
            if each.is_named and (text is not None or is_switch):
                args.append(each.name)
            if text is not None:
                args.append(text)
        return args

    def _build_text(self, each: Input, variable: str) -> str | None:
        """Return the value as text of our files: fixed, or a reference. None for one that the user need not give."""
        value = self._build_value(each, variable)
        return None if value is None else self._write(value)

    def _write(self, value: str) -> str:
        """Return the text of our files for a value in which references are marked."""
        # Escaped as a whole: pieces that are harmless alone could be a reference together.
        return _MARKED.sub(r"${\1}", escape_references(value))

    def _build_value(self, each: Input, variable: str) -> str | None:
        """Return the value with marked references. None for one that the user need not give."""
        if each.value is not None:
            return self._fill(each.value, each.variables)
        default = each.default
        if default is not None and not each.is_secret and not set(f"{{}}${_MARK}") & set(default):
            return self._refer(each, variable, default)
        if each.is_required or each.is_secret:
            return self._refer(each, variable)
        return None

    def _fill(self, text: str, variables: Sequence[Input]) -> str:
        """Return the text with `{name}` replaced by marked references or values, and everything else as it is."""
        text = text.replace(_MARK, "")
        known = {each.name: each for each in variables}
        parts: list[str] = []
        position = 0
        for match in _CURLY.finditer(text):
            each = known.get(match[1])
            if each is None:
                continue
            parts.append(text[position : match.start()])
            parts.append(self._build_value(each, self._variable_for(each.name)) or "")
            position = match.end()
        parts.append(text[position:])
        return "".join(parts)

    def _refer(self, each: Input, variable: str, default: str | None = None) -> str:
        self._variables[variable] = NeededVariable(
            name=variable, description=each.description, is_secret=each.is_secret, is_required=default is None
        )
        reference = variable if default is None else f"{variable}:-{default}"
        return f"{_MARK}{reference}{_MARK}"

    def _variable_for(self, name: str) -> str:
        """Name the variable that the user sets for an input. A server labelled `aws` must not get what AWS gave."""
        return re.sub(r"[^A-Za-z0-9]+", "_", f"{_PREFIX}{self._label}_{name}").strip("_").upper()


def _package_args(kind: str, package: Package, runtime: list[str], variables: list[str]) -> list[str]:
    """Return the arguments up to the package, with its exact version."""
    if kind == "oci":
        return ["run", "--rm", "-i", *_forward(runtime, variables), *runtime, _image_of(package)]
    if not _VERSION.fullmatch(package.version) or package.version == "latest":
        raise UnusableError("it has no exact version")
    if kind == "npm":
        before = [word for word in runtime if word not in {"-y", "--yes"}]
        return ["-y", *before, f"{package.identifier}@{package.version}"]
    return [*runtime, f"{package.identifier}=={package.version}"]


def _image_of(package: Package) -> str:
    has_tag = "@sha256:" in package.identifier or ":" in package.identifier.rpartition("/")[2]
    if has_tag:
        return package.identifier
    if not _VERSION.fullmatch(package.version) or package.version == "latest":
        raise UnusableError("it has no exact version")
    return f"{package.identifier}:{package.version}"


def _forward(runtime: Sequence[str], variables: Sequence[str]) -> list[str]:
    """Return `-e NAME` for each variable that the arguments do not pass on yet. Values never stand in arguments."""
    return [word for name in variables if name not in runtime for word in ("-e", name)]


def escape_references(text: str) -> str:
    """Return text of a registry so that nothing in it is a reference to a variable."""
    return text.replace("${", "$${")

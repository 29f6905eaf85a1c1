"""Checks the arguments of `uvx`: a package of the index, by name and version, and the arguments of its command."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from holodeck.tools.mcp.launch.denylist import describe_danger, find_program, is_from_package
from holodeck.tools.mcp.launch.flags import Option, Options, scan
from holodeck.tools.mcp.launch.refusal import LaunchFinding, quote_flag

_SWITCHES = frozenset(
    {"-q", "--quiet", "-v", "--verbose", "-n", "--no-cache", "--refresh", "--isolated", "--offline", "--no-progress"}
    | {"-U", "--upgrade", "--reinstall", "--no-config", "--no-env-file", "--no-sources", "--no-build", "--no-binary"}
    | {"--compile-bytecode", "--native-tls", "--system-certs", "--managed-python", "--no-managed-python"}
    | {"--no-python-downloads", "--require-build-hashes", "--lfs"}
)
_HARMLESS = frozenset(
    {
        "--refresh-package",
        "-P",
        "--upgrade-package",
        "--reinstall-package",
        "--resolution",
        "--prerelease",
        "--link-mode",
    }
    | {
        "--exclude-newer",
        "--exclude-newer-package",
        "--color",
        "--torch-backend",
        "--python-platform",
        "--fork-strategy",
    }
    | {"--python-preference", "--no-build-package", "--no-binary-package", "--prerelease-package"}
)
_ELSEWHERE = "would fetch packages from another index"
_FILE = "would read requirements from a file, which can name any code"
_LOCAL = "would run code from a folder"
_SETTINGS = "would read settings from elsewhere, which can name other code"
_REFUSED: Mapping[str, str] = {
    "--index": _ELSEWHERE,
    "--default-index": _ELSEWHERE,
    "-i": _ELSEWHERE,
    "--index-url": _ELSEWHERE,
    "--extra-index-url": _ELSEWHERE,
    "-f": _ELSEWHERE,
    "--find-links": _ELSEWHERE,
    "--with-editable": _LOCAL,
    "--with-requirements": _FILE,
    "-c": _FILE,
    "--constraints": _FILE,
    "--constraint": _FILE,
    "-b": _FILE,
    "--build-constraints": _FILE,
    "--build-constraint": _FILE,
    "--overrides": _FILE,
    "--override": _FILE,
    "--env-file": "would read variables from a file, which can make Python load other code",
    "--config-file": _SETTINGS,
    "--project": _SETTINGS,
    "--directory": "would start in another folder",
    "--cache-dir": "would run what lies in another cache",
    "-C": "would give options to the code that builds packages",
    "--config-setting": "would give options to the code that builds packages",
    "--allow-insecure-host": "would fetch packages without checking who sends them",
    "--keyring-provider": "would start another program to ask it for passwords",
}
_ADVICE: Mapping[str, str] = {"--env-file": "Use 'envFile' on this tool", "--directory": "Use 'cwd' on this tool"}

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_EXTRAS = r"(?:\s*\[[A-Za-z0-9._, -]*\])?"
_CLAUSE = r"\s*(?:===|[=<>!~]=|<|>)\s*[A-Za-z0-9.*+!_-]+\s*"
_REQUIREMENT = re.compile(rf"(?P<name>{_NAME}){_EXTRAS}(?:{_CLAUSE}(?:,{_CLAUSE})*)?")
_TARGET = re.compile(rf"(?P<name>{_NAME}){_EXTRAS}@(?:latest|v?\d[A-Za-z0-9.!+_-]*)")
_CLAUSE_ONLY = re.compile(_CLAUSE)
# One requirement of a list: up to a comma that is not inside the brackets of extras.
_ITEM = re.compile(r"(?:[^,\[]|\[[^\[\]]*\]|\[)+")
_COMMAND = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_PYTHON = re.compile(
    r"(?:(?:cpython|pypy|graalpy|python|cp|pp)[-@]?)?(?:[=<>!~]=|<|>)?\d[\d.*a-z+]*"
    r"(?:,(?:[=<>!~]=|<|>)\d[\d.*]*)*(?:-[a-z0-9_-]+)?|cpython|pypy|graalpy"
)
_ARCHIVE = re.compile(r"\.(?:whl|zip|tgz|tar|tar\.\w+|tbz|txz|tlz)$", re.IGNORECASE)
_NOT_INDEX = "would run code from a folder, an archive, a URL or a repository instead of a package of the index"


def index_name(spec: str) -> str | None:
    """Return the package name if uvx reads the text as a package of the index: `name[extra]==1.0`, `name@latest`."""
    match = _TARGET.fullmatch(spec) or _REQUIREMENT.fullmatch(spec)
    return match["name"] if match and not _ARCHIVE.search(match["name"]) else None


def _from_danger(value: str) -> str | None:
    return None if index_name(value) else _NOT_INDEX


def _with_danger(value: str) -> str | None:
    """Check a list separated by commas. Unlike in `--from`, `name@1.0` means the folder `1.0` here."""
    for part in _ITEM.findall(value) or [value]:
        match = _REQUIREMENT.fullmatch(part.strip())
        if not _CLAUSE_ONLY.fullmatch(part) and (match is None or _ARCHIVE.search(match["name"])):
            return _NOT_INDEX
    return None


def _python_danger(value: str) -> str | None:
    return None if _PYTHON.fullmatch(value) else "would start the program at its value to ask whether it is Python"


_VALUE_CHECKS: Mapping[str, Callable[[str], str | None]] = {
    "--from": _from_danger,
    "-w": _with_danger,
    "--with": _with_danger,
    "-p": _python_danger,
    "--python": _python_danger,
}
_VALUED = frozenset(_HARMLESS | _REFUSED.keys() | _VALUE_CHECKS.keys())


def scan_options(args: Sequence[str]) -> Options:
    """Parse the flags of uvx, which end where the package or its command is named."""
    return scan(args, 0, switches=_SWITCHES, valued=_VALUED)


def check(args: Sequence[str]) -> list[LaunchFinding]:
    """Return a finding for each argument before those of the server that is not known to be harmless."""
    options = scan_options(args)
    found = [finding for finding in map(_check_option, options.found) if finding]
    # An unknown flag may take the next argument as its value, so that the meaning of the rest is unknown.
    if any(not option.is_known for option in options.found):
        return found
    return found + _check_server(args, options.end, options.values("--from"))


def _check_option(option: Option) -> LaunchFinding | None:
    shown = quote_flag(option.name)
    if not option.is_known:
        message = f"{shown} is not a flag of uvx that is known to be harmless"
        advice = "Put the arguments of the server after its package, remove this one"
        return LaunchFinding(index=option.index, message=message, advice=advice)
    reason = _REFUSED.get(option.name)
    if option.name in _VALUE_CHECKS:
        reason = _VALUE_CHECKS[option.name](option.value or "")
    if reason is None:
        return None
    advice = _ADVICE.get(option.name, "Name a package of the index" if reason == _NOT_INDEX else "Remove it")
    return LaunchFinding(index=option.index, message=f"{shown} {reason}", advice=advice)


def _check_server(args: Sequence[str], at: int, sources: Sequence[str]) -> list[LaunchFinding]:
    if at >= len(args):
        return [LaunchFinding(index=None, message="no package is named for uvx to run", advice="Name the package")]
    word = args[at]
    packages = [name for name in map(index_name, sources) if name]
    name = index_name(word)
    if sources:
        # The finding is that of `--from`.
        if not packages:
            return []
        name = word if _COMMAND.fullmatch(word) else None
        if name is None or (find_program(name) is None and not is_from_package(name, packages)):
            message = "the command does not look like one of the package: uvx would start any program of this machine"
            return [LaunchFinding(index=at, message=message, advice="Name the package's own command")]
    elif name is None:
        return [LaunchFinding(index=at, message=f"the package {_NOT_INDEX}", advice="Name a package of the index")]
    known = find_program(name)
    return (
        [LaunchFinding(index=at, message=describe_danger(known), advice="Name the server's package")] if known else []
    )

"""All rules over several servers: their entries, their tools, and their names beside each other.

An entry may have packages without a version, and secrets among its arguments. A name may look like that of another
tool or server, or shadow it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from holodeck.lib.escape import escape_unprintable
from holodeck.lib.record import record
from holodeck.lib.redaction import find_secret_arguments
from holodeck.models.tool import CommandType, MCPTool
from holodeck.tools.mcp.launch import docker, npx, uvx
from holodeck.tools.mcp.launch.plan import plan_launch
from holodeck.tools.mcp.lint.finding import Finding, Severity
from holodeck.tools.mcp.lint.texts import check_text, check_tool

if TYPE_CHECKING:
    from holodeck.tools.mcp.discovery import MCPToolInfo


@record
class LintSubject:
    """One server to be examined."""

    entry: MCPTool
    written_args: Sequence[str] = ()
    """The arguments of the entry with `${...}` instead of values."""
    tools: Sequence[MCPToolInfo] = ()
    """What the server lists. Empty when it was not asked."""


def check_servers(subjects: Sequence[LintSubject], servers: Sequence[str]) -> list[Finding]:
    """Return the findings in these servers, errors first. `servers`: the names of all servers of the file."""
    tools = {subject.entry.name: subject.tools for subject in subjects}
    found = [finding for subject in subjects for finding in check_entry(subject.entry, subject.written_args)]
    found += [finding for name, listed in tools.items() for tool in listed for finding in check_tool(name, tool)]
    found += [finding for finding in check_names(tools, servers) if finding.server in tools]
    return sorted(found, key=lambda finding: finding.severity)


# Letters of other alphabets that most fonts draw as the Latin letter below them.
_FOREIGN = (
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u04bb\u051b\u051d\u0475\u04cf"
    "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0406\u0408\u0405"
    "\u03bf\u03b1\u03b9\u03bd\u03c1\u03c5\u03f2\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1"
    "\u03a4\u03a7\u03a5\u0131\u0251\u0261\u0585\u057d\u0578"
)
_LATIN = "aeopcyxijsdhqwvlABEKMHOPCTXIJSoaivpucABEZHIKMNOPTXYiagoun"
_LOOKALIKES = dict(zip(_FOREIGN, _LATIN, strict=True))
_TO_LATIN = str.maketrans(_LOOKALIKES)
# Of these, fonts without serifs draw several alike.
_TO_SHAPE = str.maketrans({"1": "l", "I": "l", "|": "l", "0": "o", "O": "o"})
_LATIN_LETTER = re.compile("[A-Za-z]")
_CODE = re.compile(r"<U\+[0-9A-F]{4,6}>")


def check_names(tools: Mapping[str, Sequence[MCPToolInfo]], servers: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings about names. `servers`: all of the file, in its order; `tools`: by server, those known.

    Of two names, the finding is about the later one.
    """
    earlier: dict[str, str] = {}
    for server in servers:
        other = earlier.setdefault(_shape_of(server), server)
        if other.lower() != server.lower():
            yield _name_finding("lookalike_name", "error", server, None, f"it looks like the server '{other}'")
    seen: dict[str, tuple[str, str]] = {}
    for server, listed in tools.items():
        for tool in listed:
            yield from _check_tool_name(server, tool.name, seen, servers)
        for tool in listed:
            seen.setdefault(_shape_of(tool.name), (server, tool.name))


def _check_tool_name(
    server: str, name: str, seen: Mapping[str, tuple[str, str]], servers: Sequence[str]
) -> Iterator[Finding]:
    foreign = [char for char in name if char in _LOOKALIKES]
    other, twin = seen.get(_shape_of(name), ("", ""))
    if twin and twin.lower() != name.lower():
        shown = escape_unprintable(f"{other}.{twin}")
        yield _name_finding("lookalike_name", "error", server, name, f"it looks like '{shown}', with other characters")
    elif twin == name:
        message = f"the server '{other}' has a tool of this name, too"
        yield _name_finding("shadowing_name", "warning", server, name, message)
    elif foreign and _LATIN_LETTER.search(name):
        shown = ", ".join(f"U+{ord(char):04X}" for char in dict.fromkeys(foreign))
        message = f"between Latin letters it has letters of another alphabet that look like them: {shown}"
        yield _name_finding("lookalike_name", "error", server, name, message)
    prefix, separator, _ = name.partition("__")
    if separator and prefix != server and prefix in servers:
        message = f"it reads as a tool of the server '{prefix}'"
        yield _name_finding("shadowing_name", "error", server, name, message)


def _name_finding(code: str, severity: Severity, server: str, tool: str | None, message: str) -> Finding:
    return Finding(code=code, severity=severity, server=server, tool=tool, place="name", message=message)


def _shape_of(name: str) -> str:
    """Return the same text for names that look alike."""
    visible = _CODE.sub("", escape_unprintable(name))
    return unicodedata.normalize("NFKC", visible).translate(_TO_LATIN).translate(_TO_SHAPE)


_NPM_PIN = re.compile(r".+@v?\d+\.\d+\.\d+(?:[-+][\w.+-]+)?")
_PYPI_PIN = re.compile(r".+(?:===?\s*[^*\s]+|@v?\d\S*)")
# After the last `/`: before it, a colon begins a port.
_IMAGE_PIN = re.compile(r"(?:.*/)?[^/:]+:(?!latest$)[\w.-]+|.+@sha256:[0-9a-f]{64}")


def check_entry(tool: MCPTool, written_args: Sequence[str]) -> Iterator[Finding]:
    """Yield the findings in one entry. `written_args` are its arguments with `${...}` instead of values."""
    yield from check_text(tool.description or "", server=tool.name, tool=None, place="description")
    for package in _find_unpinned(tool):
        message = f"'{package}' has no fixed version: another one can be started next time"
        yield _entry_finding("unpinned_package", "warning", tool, "args" if tool.args else "server", message)
    for index in find_secret_arguments(written_args):
        message = "a secret that all users of this machine see in the list of processes; use a variable in 'env'"
        yield _entry_finding("secret_argument", "error", tool, f"args[{index}]", message)


def _find_unpinned(tool: MCPTool) -> list[str]:
    """Return the packages or images of the entry whose version is open."""
    if not isinstance(tool.command, CommandType):
        return []
    args = plan_launch(tool).argv[1:]
    if tool.command is CommandType.NPX:
        return [package for package in npx.find_packages(args) if not _NPM_PIN.fullmatch(package)]
    if tool.command is CommandType.UVX:
        options = uvx.scan_options(args)
        packages = options.values("--from") or args[options.end : options.end + 1]
        return [package for package in packages if not _PYPI_PIN.fullmatch(package)]
    start = docker.find_run_position(args)
    end = len(args) if start is None else docker.scan_run_options(args, start).end
    return [image for image in args[end : end + 1] if not _IMAGE_PIN.fullmatch(image)]


def _entry_finding(code: str, severity: Severity, tool: MCPTool, place: str, message: str) -> Finding:
    return Finding(code=code, severity=severity, server=tool.name, tool=None, place=place, message=message)

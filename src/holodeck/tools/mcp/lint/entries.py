"""Rules for the entry of a server in a file: packages without a version, and secrets among its arguments."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from holodeck.lib.redaction import find_secret_arguments
from holodeck.models.tool import CommandType, MCPTool
from holodeck.tools.mcp.launch import docker, npx, uvx
from holodeck.tools.mcp.launch.plan import plan_launch
from holodeck.tools.mcp.lint.finding import Finding, Severity
from holodeck.tools.mcp.lint.texts import check_text

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

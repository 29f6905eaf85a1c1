"""The rules between the fields of an MCP tool. `find_violations` checks a mapping as written in the file."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from typing import Any

from holodeck.lib.errors import MissingTransportFieldError, ValidationError
from holodeck.lib.record import record
from holodeck.models.file_model import Substituted, Violation, as_written, quote_value
from holodeck.models.transport import FIELD_TRANSPORTS, TRANSPORT_SPECS, TransportSpec, TransportType
from holodeck.models.url import ALLOW_INSECURE, HTTPS_REQUIRED, parse_endpoint, url_problem, wrong_scheme

COMMANDS = ("npx", "uvx", "docker")
USER_SETTINGS = "~/.holodeck/config.yaml"
"""The user's own shared settings, as messages name them."""
SCOPED_NPM_NAME = re.compile(r"@[a-z0-9~-][a-z0-9._~-]*/[a-z0-9~-][a-z0-9._~-]*(@[A-Za-z0-9._+~^-]+)?")


class AllowedCommand(Substituted):
    """A command that may be started although it is not one of `COMMANDS`. Loaders make it; a file has plain text."""


class RefusedCommand(Substituted):
    """A command that may not be started, with the file in which an operator can allow it."""

    __slots__ = ("allowed_in",)
    allowed_in: str


@record
class CommandRule:
    """Which programs may start a server, besides npx, uvx and docker."""

    allowed: tuple[str, ...] = ()
    """Names and paths, exactly as a file must write them."""
    allows_all: bool = False
    """True for what a person has typed, or trusts as a whole."""
    allowed_in: str = USER_SETTINGS
    """The file whose `allowed_commands` are heard, as messages name it."""

    def apply(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tool with its command marked as allowed or refused, unless it is one of `COMMANDS`."""
        command = tool.get("command")
        if not isinstance(command, str) or not command.strip() or command in COMMANDS:
            return dict(tool)
        if self.allows_all or command in self.allowed:
            return {**tool, "command": AllowedCommand(str(command), written=as_written(command))}
        refused = RefusedCommand(str(command), written=as_written(command))
        refused.allowed_in = self.allowed_in
        return {**tool, "command": refused}


def find_violations(data: Mapping[str, Any]) -> list[Violation]:
    """Return every violation of a rule between fields."""
    transport = data.get("transport") or default_transport(data)
    if not isinstance(transport, str):
        # The type of the field reports it.
        return []
    found: list[Violation] = []
    spec = TRANSPORT_SPECS.get(transport)
    if spec is None:
        found.append(_unknown_transport_violation(transport))
        return found
    found += _check_foreign_fields(data, transport)
    found += _check_server(data)
    if "envFile" in data and "env_file" in data:
        found.append(Violation(key="env_file", message="'envFile' and 'env_file' are the same key; give one of them"))
    if data.get("command") == "docker" and data.get("sandbox"):
        message = "'sandbox' is not for docker: the container is one"
        found.append(Violation(key="sandbox", message=message, fix="Remove it, or use npx or uvx."))
    if data.get("enabled") is not False:
        found += _check_command(data) if spec.starts_process else _check_url(data, transport, spec)
    return found


def default_transport(data: Mapping[str, Any]) -> TransportType:
    """Return the transport of a server that names none: http for one with a URL alone."""
    is_remote = data.get("url") is not None and data.get("command") is None
    return TransportType.HTTP if is_remote else TransportType.STDIO


def is_legacy_npm(data: Mapping[str, Any]) -> bool:
    """Return whether this is the old format: a stdio server without a command, whose `server` is a scoped npm name."""
    server = data.get("server")
    return (
        str(data.get("transport") or "stdio") == "stdio"
        and data.get("command") is None
        and isinstance(server, str)
        and bool(SCOPED_NPM_NAME.fullmatch(server))
    )


def encoding_problem(name: str) -> str | None:
    """Return why this cannot be the encoding of a line-based text stream, or None."""
    try:
        # Not public, but `open` checks the same attribute.
        is_text = codecs.lookup(name)._is_text_encoding
    except (LookupError, ValueError):
        return "'encoding' is not an encoding that Python knows; 'utf-8' is the usual one"
    if not is_text or "\n".encode(name) != b"\n":
        return "'encoding' must be one in which a line ends with the byte 0x0A, such as 'utf-8' or 'latin-1'"
    return None


def _unknown_transport_violation(transport: str) -> Violation:
    import difflib

    name = transport.lower()
    known = list(TRANSPORT_SPECS)
    similar = [each for each in known if name in TRANSPORT_SPECS[each].other_names]
    similar = similar or difflib.get_close_matches(name, known, n=1)
    return Violation(
        key="transport",
        message="Unknown transport. Supported transports: " + ", ".join(known),
        fix=f"Did you mean '{similar[0]}'?" if similar else "",
    )


def _check_foreign_fields(data: Mapping[str, Any], transport: str) -> list[Violation]:
    found = []
    for key in data:
        transports = FIELD_TRANSPORTS.get(key)
        if transports is None or transport in transports or data[key] is None:
            continue
        where = ", ".join(transports)
        fix = f"Remove it, or set 'transport' to {where.replace(', ', ' or ')}."
        if key == "url" and "command" not in data:
            fix = "Set 'transport: http' (or sse, websocket) to reach a server by its URL."
        found.append(
            Violation(
                key=key,
                message=f"'{key}' has no meaning for {as_written(transport)} transport (only for {where})",
                fix=fix,
            )
        )
    return found


def _check_server(data: Mapping[str, Any]) -> list[Violation]:
    server = data.get("server")
    if server is None and "server" not in data:
        return []
    if isinstance(server, str) and server.strip():
        return []
    return [
        Violation(
            key="server",
            message="'server' must be a non-empty identifier",
            fix="Name the package or service, or leave the key out when 'command' and 'args', or 'url', say it.",
            kind=ValidationError,
        )
    ]


def _check_command(data: Mapping[str, Any]) -> list[Violation]:
    command = data.get("command")
    if command is None:
        # A URL with stdio is reported once, as a field of another transport.
        if is_legacy_npm(data) or "url" in data:
            return []
        return [
            Violation(
                key="command",
                message="'command' is required for stdio transport",
                kind=MissingTransportFieldError,
                fix="Add 'command: npx', 'command: uvx' or 'command: docker'.",
            )
        ]
    if isinstance(command, AllowedCommand):
        return []
    if command not in COMMANDS:
        return [
            Violation(
                key="command",
                message=f"Invalid command {quote_value(command)}. Supported commands: npx, uvx, docker",
                fix=_command_fix(command),
            )
        ]
    if not data.get("args") and not data.get("server"):
        return [
            Violation(
                key="args",
                message="neither 'server' nor 'args' says which server to start",
                fix="Name the package in 'server', or write its arguments in 'args'.",
            )
        ]
    return []


def _command_fix(command: object) -> str:
    if not isinstance(command, str):
        return ""
    if command.lower() in COMMANDS:
        return f"Commands are case-sensitive: write '{command.lower()}'."
    if command.split("/")[-1] in COMMANDS:
        return f"Write '{command.split('/')[-1]}' without a path; it is looked up on PATH."
    file = command.allowed_in if isinstance(command, RefusedCommand) else USER_SETTINGS
    allow = f"To start it all the same, write 'allowed_commands: [{as_written(command)}]' in {file}."
    known = {
        "python": "Run a Python server from its package with 'uvx <package>'.",
        "python3": "Run a Python server from its package with 'uvx <package>'.",
        "uv": "Use 'uvx <package>' instead of 'uv'.",
        "node": "Run a Node.js server from its package with 'npx -y <package>'.",
        "npm": "Use 'npx -y <package>' instead of 'npm'.",
        "podman": "Use 'docker' (podman can provide it).",
    }
    other = known.get(command, "Start the server through its npm package, its PyPI package or its image.")
    return f"{other} {allow}"


def _check_url(data: Mapping[str, Any], transport: str, spec: TransportSpec) -> list[Violation]:
    url = data.get("url")
    if url is None or (isinstance(url, str) and not url.strip()):
        message = f"'url' is required for {as_written(transport)} transport"
        return [Violation(key="url", message=message, kind=MissingTransportFieldError)]
    if not isinstance(url, str):
        # The type of the field reports it.
        return []
    hosts = data.get("allow_insecure_hosts")
    insecure = [host for host in hosts if isinstance(host, str)] if isinstance(hosts, list) else []
    problem = url_problem(url, schemes=spec.url_schemes, allow_insecure_hosts=insecure)
    if problem is None:
        return _check_cleartext_credentials(data, url)
    fix = ""
    if problem == HTTPS_REQUIRED:
        fix = ALLOW_INSECURE
    elif problem == wrong_scheme(spec.url_schemes):
        fix = f"Use {spec.url_schemes[0]}://, or another transport for this URL."
    return [Violation(key="url", message=problem, fix=fix)]


def _check_cleartext_credentials(data: Mapping[str, Any], url: str) -> list[Violation]:
    """Refuse `ws://` off this machine for a server that is sent credentials. Plain HTTP is refused with its URL."""
    endpoint = parse_endpoint(url)
    if endpoint.scheme != "ws" or endpoint.is_loopback:
        return []
    sent = [f"'{key}'" for key in ("headers", "auth", "caller_authorization") if data.get(key)]
    from holodeck.lib.redaction import mask_url

    if mask_url(url) != url:
        sent.append("the query of the URL")
    if not sent:
        return []
    message = f"'url' must use wss:// (or ws:// for localhost): {', '.join(sent)} would be sent in the clear"
    return [Violation(key="url", message=message, fix=f"Use wss://, or leave out {' and '.join(sent)}.")]

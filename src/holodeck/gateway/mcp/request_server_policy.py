"""The operator's rules for MCP servers that requests declare by URL, and how such untrusted servers are connected."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from urllib.parse import urlsplit

from holodeck.gateway.auth.scope import CallerScope
from holodeck.gateway.http.errors import unknown_server_text
from holodeck.gateway.http.request_files import HostPolicy
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.mcp_declarations import MCPDeclaration
from holodeck.lib.byte_budget import ByteBudget
from holodeck.lib.limits import MIB
from holodeck.lib.secret import Secret
from holodeck.models.gateway import RequestServers
from holodeck.models.tool import TOOL_NAME_PATTERN, MCPTool, TransportType
from holodeck.models.url import parse_endpoint
from holodeck.tools.mcp.factory import UntrustedServer, create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks

# Seconds for the first answer of an untrusted server: it runs already, nothing is downloaded or started for it.
REQUEST_SERVER_START = 30.0
# Bytes of one result of an untrusted server; less than of one that the operator chose.
MAX_REQUEST_SERVER_RESULT = 8 * MIB

_LABEL = re.compile(TOOL_NAME_PATTERN)
_NOT_ALLOWED_TEXT = (
    "The operator of this gateway does not allow servers that a request names by their address. "
    "Use the label of a server that it has."
)


class RequestServerPolicy:
    """Checks declarations against `request_servers` of the gateway's file, and builds the plugins for them."""

    def __init__(self, config: RequestServers, budget: ByteBudget | None = None) -> None:
        """`budget`: for the answers of untrusted servers."""
        self._config = config
        self._budget = budget
        self._hosts = HostPolicy(config)

    def check(self, declarations: Collection[MCPDeclaration], configured: Collection[str]) -> None:
        """Raise `BadRequestError` for a declaration that is not allowed. Nothing is dialled or resolved.

        `configured`: the labels of the operator's servers, which a declaration by URL may not have.
        """
        untrusted = [each for each in declarations if each.server_url is not None]
        for declaration in untrusted:
            self._check_declaration(declaration, configured)
        limit = self._config.max_per_request
        if len(untrusted) > limit:
            message = f"At most {limit} servers with a 'server_url' in one request."
            refuse(message, untrusted[limit].param, "array_above_max_length")

    def build_plugin(self, declaration: MCPDeclaration) -> MCPPlugin:
        """Build the plugin of a declaration by URL that was checked. Nothing is dialled before its first use."""
        url = declaration.server_url or ""
        parts, host = urlsplit(url), parse_endpoint(url).host
        token = declaration.authorization
        tool = MCPTool(
            name=declaration.server_label,
            description=declaration.server_description or declaration.server_label,
            transport=TransportType.SSE if parts.path.rstrip("/").endswith("/sse") else TransportType.HTTP,
            url=url,
            headers=headers_of(declaration),
            load_prompts=False,
            startup_timeout=REQUEST_SERVER_START,
            max_result_bytes=MAX_REQUEST_SERVER_RESULT,
            allow_insecure_hosts=[host],
        )
        # Masked in errors, because paths and queries often contain keys.
        path_and_query = url[len(f"{parts.scheme}://{parts.netloc}") :]
        secrets = (Secret(path_and_query), *((token,) if token is not None else ()))
        untrusted = UntrustedServer(ip_policy=self._hosts.ip_policy_for(host), secrets=secrets)
        # The client of a request may answer what its server asks.
        return create_mcp_plugin(tool, untrusted=untrusted, budget=self._budget, callbacks=Callbacks(has_peers=True))

    def build_caller_plugin(self, declaration: MCPDeclaration, server: MCPPlugin) -> MCPPlugin:
        """Build a plugin for the operator's server with the caller's credentials, and none of the operator's."""
        token = declaration.authorization
        return server.with_headers(headers_of(declaration), (token,) if token is not None else ())

    def _check_declaration(self, declaration: MCPDeclaration, configured: Collection[str]) -> None:
        where = f"{declaration.param}.{declaration.url_field}"
        label = declaration.server_label
        if not self._config.allow:
            refuse(_NOT_ALLOWED_TEXT, where, "unsupported_value")
        if label in configured:
            message = f"'{label}' is a server of this gateway. Leave out 'server_url', or choose another label."
            refuse(message, f"{declaration.param}.server_label", "duplicate_value")
        if not _LABEL.fullmatch(label):
            message = "a label begins with a letter and has letters, digits, '_' and '-'."
            refuse(f"Invalid '{declaration.param}.server_label': {message}", f"{declaration.param}.server_label")
        self._hosts.check(declaration.server_url or "", where)


def headers_of(declaration: MCPDeclaration) -> dict[str, Secret]:
    """Return the headers of every request to the server of a declaration, and to no other server."""
    headers = dict(declaration.headers)
    if declaration.authorization is not None:
        headers["Authorization"] = Secret(f"Bearer {declaration.authorization.reveal()}")
    return headers


def check_configured_servers(declarations: Sequence[MCPDeclaration], configured: Mapping[str, MCPPlugin]) -> None:
    """Raise `BadRequestError` for a declaration of an operator's server that is unknown, or may not be used so."""
    for declaration in declarations:
        if declaration.server_url is not None:
            continue
        label, where = declaration.server_label, f"{declaration.param}.server_label"
        if label not in configured:
            refuse(unknown_server_text(label, configured), where)
        if declaration.has_credentials and not configured[label].config.caller_authorization:
            field = "authorization" if declaration.authorization is not None else "headers"
            message = (
                f"The server '{label}' is reached with its operator's credentials: leave out '{field}', "
                "unless the operator writes 'caller_authorization: true' for this server into the gateway's file."
            )
            refuse(message, f"{declaration.param}.{field}", "unsupported_parameter")


def check_labels_of_urls(declarations: Sequence[MCPDeclaration], scope: CallerScope) -> None:
    """Refuse a server by URL whose label is out of scope. The text does not tell which servers the gateway has."""
    for declaration in declarations:
        label = declaration.server_label
        if declaration.server_url is not None and not scope.allows_server(label):
            message = f"This key may not use a server with the label '{label}'. Ask the operator of this gateway."
            refuse(message, f"{declaration.param}.server_label", "unsupported_value")

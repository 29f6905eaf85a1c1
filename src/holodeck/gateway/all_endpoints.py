"""The endpoints of a gateway: the whole HTTP surface on one page."""

from __future__ import annotations

from dataclasses import fields
from typing import get_type_hints

from holodeck.gateway.api.route import BoundRoute, Route, collect_routes, list_declared
from holodeck.gateway.console.files import ConsoleFiles
from holodeck.gateway.endpoints.admin import AdminEndpoints
from holodeck.gateway.endpoints.callers import CallerEndpoints
from holodeck.gateway.endpoints.chat_completions import ChatCompletions
from holodeck.gateway.endpoints.client_login import ClientLoginEndpoints
from holodeck.gateway.endpoints.compact import ContextEndpoints
from holodeck.gateway.endpoints.configuration import ConfigurationEndpoint
from holodeck.gateway.endpoints.conversations import Conversations
from holodeck.gateway.endpoints.elicitations import ElicitationEndpoints
from holodeck.gateway.endpoints.keys import KeyEndpoints
from holodeck.gateway.endpoints.logins import LoginEndpoints
from holodeck.gateway.endpoints.messages import Messages
from holodeck.gateway.endpoints.pass_through import PassThroughEndpoints
from holodeck.gateway.endpoints.person_login import PersonEndpoints
from holodeck.gateway.endpoints.responses import Responses
from holodeck.gateway.endpoints.runs import RunEndpoints
from holodeck.gateway.endpoints.servers import ServerEndpoints
from holodeck.gateway.endpoints.usage import UsageEndpoints
from holodeck.gateway.mcp_endpoint.endpoint import MCPEndpoint
from holodeck.gateway.mcp_endpoint.resource_metadata import ResourceMetadata
from holodeck.gateway.openapi.document import DocumentEndpoint
from holodeck.lib.record import record


@record
class Endpoints:
    """The endpoints of a gateway, in the order of their routes in its document."""

    responses: Responses
    context: ContextEndpoints
    elicitations: ElicitationEndpoints
    chat: ChatCompletions
    messages: Messages
    pass_through: PassThroughEndpoints
    conversations: Conversations
    runs: RunEndpoints
    usage: UsageEndpoints
    admin: AdminEndpoints
    servers: ServerEndpoints
    logins: LoginEndpoints
    keys: KeyEndpoints
    callers: CallerEndpoints
    persons: PersonEndpoints
    configuration: ConfigurationEndpoint
    mcp: MCPEndpoint
    metadata: ResourceMetadata
    client_logins: ClientLoginEndpoints
    document: DocumentEndpoint
    console: ConsoleFiles

    def collect_routes(self) -> list[BoundRoute]:
        return collect_routes(*(getattr(self, each.name) for each in fields(self)))


def list_routes() -> list[Route]:
    """Return every route of a gateway, for what only describes them."""
    return list_declared(get_type_hints(Endpoints).values())

"""The MCP clients that log in at a gateway as its file has them, and the hosts that others may name by a URL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, ModelWrapValidatorHandler, model_validator
from pydantic.fields import FieldInfo

from holodeck.lib.net.ip_policy import parse_networks
from holodeck.models.callers import MAX_SESSION_HOURS
from holodeck.models.file_model import (
    Boolean,
    FileModel,
    NonEmpty,
    Number,
    PublicName,
    Violation,
    quote_value,
    validate_with_rules,
)


class RequestHosts(FileModel):
    """Hosts that requests name by a URL. Unless allowed below, only public addresses and https."""

    allow: Boolean = False
    """Whether requests may name hosts. false: such a request is refused."""
    hosts: Annotated[list[NonEmpty], Field(min_length=1)] | None = None
    """Names or globs of hosts that requests may name. Absent: every public host. E.g. `[mcp.example.com]`, not
    `['https://mcp.example.com']`."""
    allow_private_hosts: list[NonEmpty] = Field(default_factory=list)
    """Names, addresses or networks that may be reached although they are not public, such as `10.20.0.0/16`. E.g.
    `[10.20.0.0/16]`, not `10.20.0.0/16`."""
    allow_insecure_hosts: list[NonEmpty] = Field(default_factory=list)
    """Hosts that may be reached by plain http://. E.g. `[tools.internal]`, not `tools.internal`."""

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        return validate_with_rules(cls.__name__, data, handler, lambda fields: _check_hosts(fields, cls.model_fields))


class ClientDocuments(RequestHosts):
    """Documents in which MCP clients describe themselves. Unless allowed below, only public addresses and https."""

    allow: Boolean = True
    """Whether the id of a client may be the URL of such a document, which the gateway then fetches. E.g. `false`, not
    `'no'`."""


class MCPClientEntry(FileModel):
    """An MCP client that the gateway knows by its file."""

    id: PublicName
    """Id that is entered in the client. E.g. `editor`, not `my editor`."""
    name: NonEmpty | None = None
    """Name that a person is shown. Absent: the id. E.g. `Editor of the team`, not `''`."""
    redirect_uris: Annotated[list[NonEmpty], Field(min_length=1)]
    """Addresses that a browser may be sent back to, compared exactly; the port of one on this machine is free. E.g.
    `['http://127.0.0.1/callback']`, not `http://127.0.0.1/callback`."""


class MCPLogin(FileModel):
    """Logins of MCP clients, for which the gateway is an authorization server."""

    clients: list[MCPClientEntry] = Field(default_factory=list)
    """Clients that are known by their ids. E.g. `[{id: editor, redirect_uris: ['http://127.0.0.1/callback']}]`, not
    `[editor]`."""
    documents: ClientDocuments = Field(default_factory=ClientDocuments)
    """Clients whose id is the URL of a document. E.g. `{allow: false}`, not `false`."""
    registration: Boolean = True
    """Whether clients may register themselves. The gateway stores nothing for that: what a client says of itself is in
    its id, sealed. E.g. `false`, not `'no'`."""
    session_hours: Annotated[Number, Field(gt=0, le=MAX_SESSION_HOURS)] = 168
    """Hours after which a person has to let a client in again. E.g. `24`, not `0`."""


def _check_hosts(data: dict[str, Any], known: Mapping[str, FieldInfo]) -> list[Violation]:
    found: list[Violation] = []
    idle = [key for key in data if key in known and key != "allow"]
    if idle and data.get("allow", known["allow"].default) is False:
        found.append(Violation(key=idle[0], message="it has no meaning without 'allow: true'"))
    for key in ("hosts", "allow_private_hosts", "allow_insecure_hosts"):
        listed = data.get(key)
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, str) and ("://" in entry or ("/" in entry and not parse_networks([entry]))):
                fix = "Write the name alone, such as tools.example.com, or a network, such as 10.20.0.0/16."
                found.append(Violation(key=key, message=f"{quote_value(entry)} is not a host", fix=fix))
    return found

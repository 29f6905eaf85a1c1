"""Schemas of the MCP endpoint: the frame of JSON-RPC messages, and the metadata of a protected resource.

What stands in `params` and `result` is in the specification of the Model Context Protocol, in the version that client
and gateway have agreed on.
"""

from __future__ import annotations

from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    any_of,
    array,
    boolean,
    constant,
    integer,
    mapping,
    nullable,
    record_of,
    ref,
    string,
)

_VERSION = {"jsonrpc": constant("2.0")}
_ID: Schema = {"type": ["string", "integer"], "description": "Chosen by the sender of the request."}


def build_mcp_schemas() -> dict[str, Schema]:
    """Build the schemas, by name."""
    called = {"method": string("A method of the protocol."), "params": mapping("Its parameters.")}
    error = record_of(
        {
            "code": integer("A code of JSON-RPC or of the protocol."),
            "message": string("What happened, and what to do."),
            "data": {"description": "What else is known of the error."},
        },
        optional=("data",),
    )
    return {
        "MCPRequest": record_of(
            {**_VERSION, "id": _ID, **called}, "A message that wants an answer.", optional=("params",)
        ),
        "MCPNotification": record_of({**_VERSION, **called}, "A message that wants no answer.", optional=("params",)),
        "MCPResult": record_of({**_VERSION, "id": _ID, "result": mapping("As the method says.")}, "An answer."),
        "MCPError": record_of(
            {
                **_VERSION,
                "id": nullable({**_ID, "description": "Of the request; null if it could not be read."}),
                "error": error,
            },
            "A request that was refused or has failed. A tool that fails is no error of this kind: the result says so.",
        ),
        "MCPMessage": any_of(
            ref("MCPRequest"),
            ref("MCPNotification"),
            ref("MCPResult"),
            ref("MCPError"),
            about="One message of the Model Context Protocol.",
        ),
        "MCPMessages": any_of(
            ref("MCPMessage"),
            array(ref("MCPMessage")),
            about="One message, or several of a client of version 2025-03-26.",
        ),
        **_oauth_schemas(),
        "ResourceMetadata": record_of(
            {
                "resource": string("The address of the MCP endpoint, which tokens are for."),
                "authorization_servers": array(string(), "The identity provider of the gateway."),
                "bearer_methods_supported": array(constant("header")),
                "resource_name": string(),
            },
            "Where a client gets a token for the MCP endpoint (RFC 9728).",
        ),
    }


def _oauth_schemas() -> dict[str, Schema]:
    texts = array(string())
    return {
        "OAuthError": record_of({"error": string("As OAuth names it."), "error_description": string()}),
        "AccessToken": record_of(
            {
                "access_token": string("For the MCP endpoint alone."),
                "token_type": constant("Bearer"),
                "expires_in": integer("Seconds."),
                "refresh_token": string("Renews the access token, once."),
            }
        ),
        "RegisteredClient": record_of(
            {
                "client_id": string("What the client has said of itself, sealed."),
                "client_id_issued_at": integer(),
                "client_name": string(),
                "redirect_uris": texts,
                "grant_types": texts,
                "response_types": texts,
                "token_endpoint_auth_method": constant("none"),
            }
        ),
        "AuthorizationServer": record_of(
            {
                **dict.fromkeys(
                    ("issuer", "authorization_endpoint", "token_endpoint", "revocation_endpoint"), string()
                ),
                "registration_endpoint": string("Absent where no client may register itself."),
                "response_types_supported": texts,
                "grant_types_supported": texts,
                "code_challenge_methods_supported": texts,
                "token_endpoint_auth_methods_supported": texts,
                "client_id_metadata_document_supported": boolean(),
                "authorization_response_iss_parameter_supported": boolean(),
            },
            optional=("registration_endpoint",),
        ),
    }

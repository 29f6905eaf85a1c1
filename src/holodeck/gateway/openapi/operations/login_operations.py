"""What the routes of logins at MCP servers do, with their schemas and examples."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.endpoints.logins import CALLBACK_PATH
from holodeck.gateway.openapi.operations.operation import Operation
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    body_of,
    choice,
    constant,
    integer,
    nullable,
    record_of,
    string,
)

_TAG = "MCP servers"
_PATH = "/v1/mcp/servers/{name}/login"
_REDIRECT_URI = f"https://gateway.example.com{CALLBACK_PATH}"
_LOGIN: dict[str, Any] = {
    "object": "mcp_login",
    "server": "tickets",
    "status": "waiting",
    "authorization_url": "https://login.example.com/authorize?response_type=code&client_id=holodeck&state=...",
    "redirect_uri": _REDIRECT_URI,
    "expires_at": 1700000300,
    "error": None,
}
_OVER: dict[str, Any] = {**_LOGIN, "authorization_url": None}

LOGIN_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", _PATH): Operation(
        id="startLogin",
        tag=_TAG,
        summary="Log in to a server",
        description=(
            "For a server with `auth` of type `oauth_authorization_code`. Replies once the address of the login page "
            "is known, which a person then opens in any browser. There is one login of a server at a time: this one "
            "cancels the one before. After the login the server is connected anew."
        ),
        body="StartLogin",
        is_body_required=False,
        example_body={"redirect_uri": _REDIRECT_URI},
        reply="MCPLogin",
        example=_LOGIN,
        errors=("lookup", "fields", "login"),
    ),
    ("GET", _PATH): Operation(
        id="getLogin",
        tag=_TAG,
        summary="Get the latest login of a server",
        description="Whether it still waits for a person, is completed, or has failed. 404 if none was started.",
        reply="MCPLogin",
        example={**_OVER, "status": "completed"},
        errors=("lookup",),
    ),
    ("DELETE", _PATH): Operation(
        id="cancelLogin",
        tag=_TAG,
        summary="Cancel the login of a server",
        description="Its page leads nowhere any more. A login that is over stays as it is.",
        reply="MCPLogin",
        example={**_OVER, "status": "failed", "error": "Server 'tickets' (authorize): the login was cancelled."},
        errors=("lookup",),
    ),
    ("GET", CALLBACK_PATH): Operation(
        id="receiveLogin",
        tag=_TAG,
        summary="Come back from a login page",
        description=(
            "The redirect URI of logins, for the browser of the person that logs in. It needs no key: `state` says "
            "which login it belongs to, and is accepted once."
        ),
        reply="string",
        media_type="text/html",
        example=None,
        query={
            "state": string("Of the login, as its page got it."),
            "code": string("The permission, which the gateway exchanges for tokens."),
            "iss": string("The authorization server."),
            "error": string("Why there is no permission."),
            "error_description": string("The same in words."),
        },
        error_pages={400: "no login waits for this `state`."},
    ),
}


def build_login_schemas() -> dict[str, Schema]:
    """Build the schemas, by name."""
    login = {
        "object": constant("mcp_login"),
        "server": string(),
        "status": choice(("waiting", "completed", "failed")),
        "authorization_url": nullable(string("The login page. Null once the login is over.")),
        "redirect_uri": string("Where the browser comes back to. A `client_id` must have it registered."),
        "expires_at": integer("Seconds since 1970. Until then the page must be answered."),
        "error": nullable(string("Why the login has failed.")),
    }
    redirect_uri = string(
        f"Address of this gateway as the browser has it, with the path of a proxy, and `{CALLBACK_PATH}` at its end. "
        "Its origin must be that of the page or of the request. `mcp_endpoint.public_url` takes precedence."
    )
    return {"MCPLogin": record_of(login), "StartLogin": body_of({"redirect_uri": redirect_uri})}

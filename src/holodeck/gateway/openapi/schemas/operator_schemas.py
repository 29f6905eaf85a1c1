"""Schemas of what operators read and change: MCP servers and logins at them, keys, and the configuration."""

from __future__ import annotations

from typing import get_args

from holodeck.gateway.api.models.other_bodies import AcceptTools, CreateKey, RotateKey, StartLogin, UpdateKey
from holodeck.gateway.auth.key_rights import Managed
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    array,
    boolean,
    choice,
    constant,
    integer,
    mapping,
    model_schemas,
    nullable,
    number,
    record_of,
    ref,
    string,
)
from holodeck.models.callers import ROLES
from holodeck.storage.person_sessions import SessionKind
from holodeck.tools.mcp.connection.connection import ConnectionState
from holodeck.tools.mcp.protocol.versions import ProtocolEra

_TIME = integer("Seconds since 1970.")
_NULLABLE_TEXT = nullable(string())


def build_operator_schemas() -> dict[str, Schema]:
    """Build the schemas, by name."""
    return {
        **_server_schemas(),
        **_key_schemas(),
        **_group_schemas(),
        **_caller_schemas(),
        **_person_schemas(),
        "Configuration": _configuration_schema(),
        **_login_schemas(),
    }


def _server_schemas() -> dict[str, Schema]:
    change = record_of({"field": string(), "locked": string(), "current": string()})
    withheld = record_of(
        {
            "tool": string(),
            "kind": choice(("changed", "new")),
            "reason": string(),
            "digest": string("Of the tool as the server has it now."),
            "changes": array(change, "By field. Of a new tool: all of its fields, with nothing locked."),
        }
    )
    server = {
        "name": string(),
        "object": constant("mcp_server"),
        "description": _NULLABLE_TEXT,
        "state": choice(state.name.lower() for state in ConnectionState),
        "transport": string(),
        "auth": nullable(string("The type of `auth` in its definition.")),
        "can_log_in": boolean("Whether it uses the login of a person, which an operator can start."),
        "needs_login": boolean("Whether `last_error` is that it wants a login."),
        "era": nullable(choice(era.value for era in ProtocolEra)),
        "protocol_version": _NULLABLE_TEXT,
        "version": nullable(string("Name and version that the server declares.")),
        "tools": nullable(integer("Number of its tools. Null before they were listed.")),
        "restarts": integer("How many times the connection was established again."),
        "start_seconds": nullable(number("Seconds that the connection took to be established.")),
        "last_error": _NULLABLE_TEXT,
        "stderr": nullable(string("The end of what the latest process of the server wrote to its standard error.")),
        "next_try_at": nullable(_TIME),
        "warnings": array(string()),
        "withheld": array(withheld, "Tools that differ from `holodeck.lock` and are not offered."),
        "calls": integer("Calls of its tools since this gateway was started."),
        "call_seconds_p50": nullable(number("Half of these calls took no longer.")),
        "call_seconds_p95": nullable(number("95 of 100 of these calls took no longer.")),
    }
    tool = {
        "name": string(),
        "title": _NULLABLE_TEXT,
        "description": _NULLABLE_TEXT,
        "input_schema": mapping(),
        "annotations": mapping("Hints of the server about what the tool does."),
    }
    tools = {
        "object": constant("list"),
        "data": array(ref("ServerTool")),
        "error": string("Why the server did not list its tools."),
    }
    return {
        "MCPServer": record_of(server),
        "MCPServerList": record_of({"object": constant("list"), "data": array(ref("MCPServer"))}),
        "ServerTool": record_of(tool),
        "ServerToolList": record_of(tools, optional=("error",)),
        **model_schemas((AcceptTools,)),
    }


SPENDING = {
    "spent": number("Spent in this period of the budget."),
    "left": number("What is left of it; 0 if more was spent."),
    "resets_at": integer("When the next period begins, in seconds since 1970."),
}


def _key_schemas() -> dict[str, Schema]:
    settings = {
        "allow": mapping("What the caller may use: `models`, `agents`, `servers` and `tools`, as lists of globs."),
        "limits": mapping("As `keys[].limits` of the gateway file."),
        "budget": mapping("As `keys[].budget` of the gateway file."),
    }
    key = {
        "object": constant("key"),
        "name": string(),
        "id": nullable(string("As `keys[].id` of the gateway file: which of several callers of this name it is.")),
        "role": nullable(choice(ROLES, "What the caller may do beside its own requests.")),
        "group": nullable(string("The group of the caller.")),
        "owner": nullable(string("The id of the person that has made the key for itself.")),
        **{name: nullable(schema) for name, schema in settings.items()},
        "expires": nullable(string("Time after which the key is refused.")),
        "paused": boolean("Whether the key is refused for now."),
        "old_hash_expires": nullable(string("Until then the key before is accepted as well.")),
        "caller_id": string("The id of the caller, in runs, usage and logs."),
        "source": choice(("file", "store"), "Where the key is. One of the gateway's file is changed only there."),
        "made_at": nullable(integer("When it was made, in seconds since 1970. Null for one of the file.")),
        "made_by": nullable(string("The id of the caller that has made it. Null for one of the file.")),
    }
    listed = {
        **key,
        "last_used_at": nullable(integer("When a request with it was last seen, to the minute.")),
        "spending": nullable(record_of(SPENDING)),
    }
    created = {**key, "key": string("The key itself, shown only now.")}
    return {
        "Key": record_of(key),
        "ListedKey": record_of(listed),
        "KeyList": record_of(
            {
                "object": constant("list"),
                "data": array(ref("ListedKey")),
                "has_more": boolean(),
                "manages": nullable(choice(get_args(Managed), "Whose keys the caller may make and change.")),
            }
        ),
        "NewKey": record_of(created),
        "DeletedKey": record_of({"name": string(), "object": constant("key.deleted"), "deleted": boolean()}),
        **model_schemas((CreateKey, UpdateKey, RotateKey)),
    }


def _caller_schemas() -> dict[str, Schema]:
    caller = {
        "object": constant("caller"),
        "id": string("As in runs, usage and logs."),
        "paused": boolean("Whether its requests are refused for now."),
        "erasing": boolean("Whether what it has stored is being deleted."),
        "erased_at": nullable(integer("When that was last asked for, in seconds since 1970. Known for a day.")),
        "changed_at": nullable(integer("When one of these was last changed, in seconds since 1970.")),
        "changed_by": nullable(string("The id of the caller that has changed it.")),
        "last_used_at": nullable(integer("When a request of it was last seen, to the minute.")),
    }
    return {
        "Caller": record_of(caller),
        "CallerList": record_of({"object": constant("list"), "data": array(ref("Caller")), "has_more": boolean()}),
    }


def _group_schemas() -> dict[str, Schema]:
    settings = ("allow", "limits", "budget")
    group = {
        "object": constant("group"),
        "name": string(),
        **{name: nullable(mapping(f"As `groups[].{name}` of the gateway file.")) for name in settings},
        "claim_values": array(string(), "The values of the claim whose tokens are members."),
        "spending": nullable(record_of(SPENDING)),
    }
    budget = {
        "amount": nullable(number("In the currency of the prices.")),
        "period": nullable(string("`hour`, `day`, `week` or `month`.")),
        **{name: nullable(schema) for name, schema in SPENDING.items()},
    }
    of_group = nullable(record_of({"name": string(), **budget}))
    return {
        "GroupList": record_of({"object": constant("list"), "data": array(ref("Group"))}),
        "Group": record_of(group),
        "Budget": record_of({"object": constant("budget"), **budget, "group": of_group}),
    }


def _person_schemas() -> dict[str, Schema]:
    session = {
        "object": constant("session"),
        "id": string(),
        "kind": choice(
            get_args(SessionKind), "Of a browser at the console, or of a program that the person has let in."
        ),
        "about": string("The browser or the program, in its own words."),
        "created_at": _TIME,
        "expires_at": _TIME,
        "is_current": boolean("Whether it is the session of this request."),
    }
    budget = {"owner": string("Whose it is."), "amount": number(), "period": string(), **SPENDING}
    me = {
        "object": constant("caller"),
        "id": string("The id of the caller, in runs, usage and logs."),
        "name": nullable(string("What the identity provider calls the person.")),
        "role": nullable(choice(ROLES)),
        "group": _NULLABLE_TEXT,
        "session": nullable(ref("Session")),
        "allow": nullable(array(array(mapping("A scope, as `keys[].allow` of the gateway file.")))),
        "budgets": array(record_of(budget)),
    }
    return {
        "Session": record_of(session),
        "SessionList": record_of({"object": constant("list"), "data": array(ref("Session"))}),
        "Me": record_of(me),
    }


def _configuration_schema() -> Schema:
    problem = record_of(
        {
            "severity": choice(("error", "warning")),
            "file": string(),
            "line": nullable(integer()),
            "key": string(),
            "message": string(),
            "fix": string(),
        }
    )
    return record_of(
        {
            "object": constant("configuration"),
            "file": string(),
            "settings": mapping("The file as it is written. Keys of `restart_keys` are as they were at the start."),
            "agents": array(record_of({"name": string(), "file": string()})),
            "warnings": array(problem),
            "watches_files": boolean("Whether changed files are read again by themselves."),
            "read_at": nullable(_TIME),
            "problems": array(problem, "Why the files as they are on disk are refused."),
            "restart_keys": array(string(), "What has changed in the files and needs a restart."),
        }
    )


def _login_schemas() -> dict[str, Schema]:
    login = {
        "object": constant("mcp_login"),
        "server": string(),
        "status": choice(("waiting", "completed", "failed")),
        "authorization_url": nullable(string("The login page, or the link that begins a login. Null once it is over.")),
        "redirect_uri": string("Where the browser comes back to. A `client_id` must have it registered."),
        "expires_at": integer("Seconds since 1970. Until then the page must be answered."),
        "error": nullable(string("Why the login has failed.")),
    }
    deleted = {"object": constant("mcp_login.deleted"), "server": string(), "deleted": boolean()}
    return {"MCPLogin": record_of(login), "DeletedLogin": record_of(deleted), **model_schemas((StartLogin,))}

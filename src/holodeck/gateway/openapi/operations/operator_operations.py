"""What the routes for operators do: MCP servers, keys and the configuration, with their schemas and examples."""

from __future__ import annotations

from typing import Any

from holodeck.gateway.openapi.operations.operation import Operation
from holodeck.gateway.openapi.schemas.schema import (
    Schema,
    array,
    body_of,
    boolean,
    choice,
    constant,
    integer,
    mapping,
    nullable,
    number,
    record_of,
    ref,
    string,
)
from holodeck.tools.mcp.connection.connection import ConnectionState
from holodeck.tools.mcp.protocol.versions import ProtocolEra

SERVER: dict[str, Any] = {
    "name": "memory",
    "object": "mcp_server",
    "description": "Remembers facts",
    "state": "connected",
    "transport": "stdio",
    "auth": None,
    "can_log_in": False,
    "era": "legacy",
    "protocol_version": "2025-11-25",
    "version": "memory-server 0.6.3",
    "tools": 9,
    "restarts": 0,
    "start_seconds": 1.2,
    "last_error": None,
    "stderr": "Knowledge Graph MCP Server running on stdio",
    "next_try_at": None,
    "warnings": [],
    "withheld": [],
    "calls": 0,
    "call_seconds_p50": None,
    "call_seconds_p95": None,
}
_SERVER_TOOLS = {
    "object": "list",
    "data": [
        {
            "name": "create_entities",
            "title": "Create Entities",
            "description": "Create multiple new entities in the knowledge graph",
            "input_schema": {"type": "object", "properties": {"entities": {"type": "array"}}},
            "annotations": {},
        }
    ],
}
_KEY: dict[str, Any] = {
    "object": "key",
    "name": "alice",
    "id": "qkzvhtwbarme",
    "admin": False,
    "allow": {"models": ["small*"]},
    "limits": None,
    "budget": None,
    "old_hash_expires": None,
}
_CONFIGURATION: dict[str, Any] = {
    "object": "configuration",
    "file": "/srv/holodeck/gateway.yaml",
    "settings": {"models": [{"name": "demo", "model": {"provider": "rehearsal"}}]},
    "agents": [],
    "warnings": [],
    "watches_files": True,
    "read_at": 1700000000,
    "problems": [],
    "restart_keys": [],
}
_TIME = integer("Seconds since 1970.")
_NULLABLE_TEXT = nullable(string())
_SERVER_PATH = "/v1/mcp/servers/{name}"

TAGS = {
    "MCP servers": "The MCP servers of this gateway. These routes need an operator's key.",
    "Keys": (
        "The keys of callers, in the gateway's file. These routes need an operator's key, and a file that the gateway "
        "may write. What they change is in force when the reply comes."
    ),
}

OPERATOR_OPERATIONS: dict[tuple[str, str], Operation] = {
    ("GET", "/v1/mcp/servers"): Operation(
        id="listServers",
        tag="MCP servers",
        summary="List the MCP servers",
        description="The servers of the gateway and of its agents, with the state of their connections.",
        reply="MCPServerList",
        example={"object": "list", "data": [SERVER]},
    ),
    ("GET", f"{_SERVER_PATH}/tools"): Operation(
        id="listServerTools",
        tag="MCP servers",
        summary="List the tools of a server",
        description="If the server cannot list them, `data` is empty and `error` has the reason.",
        reply="ServerToolList",
        example=_SERVER_TOOLS,
        errors=("lookup",),
    ),
    ("POST", f"{_SERVER_PATH}/refresh"): Operation(
        id="refreshServer",
        tag="MCP servers",
        summary="Reconnect to a server",
        description="Waits for the new connection. `last_error` says why there is none.",
        reply="MCPServer",
        example=SERVER,
        errors=("lookup",),
    ),
    ("POST", f"{_SERVER_PATH}/sleep"): Operation(
        id="sleepServer",
        tag="MCP servers",
        summary="End the connection to a server",
        description="The process of the server ends, if it has one. The next use starts it again.",
        reply="MCPServer",
        example={**SERVER, "state": "created", "era": None, "protocol_version": None, "version": None, "stderr": None},
        errors=("lookup",),
    ),
    ("POST", f"{_SERVER_PATH}/accept"): Operation(
        id="acceptTools",
        tag="MCP servers",
        summary="Accept tools that differ from the lock",
        description=(
            "Writes tools of `withheld` into `holodeck.lock`, so that models are offered them. `tools` has the digest "
            "of each, which says what you have looked at: a tool that has changed again is refused."
        ),
        body="AcceptTools",
        example_body={"tools": {"create_entities": "sha256:4f2c1a9b"}},
        reply="MCPServer",
        example=SERVER,
        errors=("lookup", "fields", "file"),
    ),
    ("GET", "/v1/keys"): Operation(
        id="listKeys",
        tag="Keys",
        summary="List the keys",
        description="The callers that have a key, with what they may use. Keys themselves are not stored.",
        reply="KeyList",
        example={"object": "list", "data": [_KEY]},
    ),
    ("POST", "/v1/keys"): Operation(
        id="createKey",
        tag="Keys",
        summary="Create a key",
        description=(
            "`key` is in this reply and nowhere else. A gateway without keys makes none: the first one is made at "
            "its terminal, with `holodeck keys create`."
        ),
        body="CreateKey",
        example_body={"name": "alice", "allow": {"models": ["small*"]}},
        reply="NewKey",
        example={**_KEY, "key": "hd-..."},
        errors=("fields", "file"),
    ),
    ("POST", "/v1/keys/rotate"): Operation(
        id="rotateKey",
        tag="Keys",
        summary="Give a caller a new key",
        description="What the caller has stored stays its own. With `grace_seconds` the key before works as well.",
        body="RotateKey",
        example_body={"name": "alice", "grace_seconds": 86400},
        reply="NewKey",
        example={**_KEY, "key": "hd-..."},
        errors=("fields", "file", "lookup"),
    ),
    ("POST", "/v1/keys/update"): Operation(
        id="updateKey",
        tag="Keys",
        summary="Change what a key may do",
        description=(
            "The key itself stays the same. A setting that is given replaces that of the key, null removes it, and one "
            "that is left out stays. The key of the request itself cannot lose its operator rights, or get a scope."
        ),
        body="UpdateKey",
        example_body={"name": "alice", "allow": {"models": ["small*"]}, "budget": None},
        reply="Key",
        example=_KEY,
        errors=("fields", "file", "lookup"),
    ),
    ("DELETE", "/v1/keys/{name}"): Operation(
        id="deleteKey",
        tag="Keys",
        summary="Revoke a key",
        description="What runs for the caller is cancelled. The key of the request itself cannot be revoked by it.",
        reply="DeletedKey",
        example={"name": "alice", "object": "key.deleted", "deleted": True},
        errors=("file", "lookup"),
    ),
    ("GET", "/v1/config"): Operation(
        id="getConfiguration",
        tag="Operation",
        summary="Get the configuration",
        description=(
            "What the gateway runs by, as its file is written: variables by their names, keys by the start of their "
            "hashes. If the file was changed on disk and is refused, `problems` says why. Needs an operator's key."
        ),
        reply="Configuration",
        example=_CONFIGURATION,
    ),
}


def build_operator_schemas() -> dict[str, Schema]:
    """Build the schemas, by name."""
    return {**_server_schemas(), **_key_schemas(), "Configuration": _configuration_schema()}


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
        "AcceptTools": body_of({"tools": mapping("The digest of each tool, by its name.")}, required=("tools",)),
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
        "admin": boolean("Whether it is an operator's key."),
        **{name: nullable(schema) for name, schema in settings.items()},
        "old_hash_expires": nullable(string("Until then the key before is accepted as well.")),
    }
    created = {**key, "key": string("The key itself, shown only now.")}
    return {
        "Key": record_of(key),
        "KeyList": record_of({"object": constant("list"), "data": array(ref("Key"))}),
        "NewKey": record_of(created),
        "DeletedKey": record_of({"name": string(), "object": constant("key.deleted"), "deleted": boolean()}),
        "CreateKey": body_of(
            {"name": string("Name of the caller."), "admin": boolean(), **settings}, required=("name",)
        ),
        "UpdateKey": body_of(
            {
                "name": string(),
                "admin": nullable(boolean("Whether it is an operator's key.")),
                **{name: nullable(schema) for name, schema in settings.items()},
            },
            required=("name",),
        ),
        "RotateKey": body_of(
            {"name": string(), "grace_seconds": integer("Seconds for the key before.", minimum=0)}, required=("name",)
        ),
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

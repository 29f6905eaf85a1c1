"""`reference/http-api.md`: every route of the gateway, from its OpenAPI document, with a request that the tests run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from generate.markdown import NOTICE, code, fence, join_blocks, table
from holodeck.gateway.all_endpoints import list_routes
from holodeck.gateway.api.route import Route
from holodeck.gateway.http.error_codes import GROUP_TITLES
from holodeck.gateway.http.replies import EVENTS
from holodeck.gateway.openapi.document import TAGS, build_document, error_groups_of
from holodeck.gateway.openapi.schemas.schema import NULL

_INTRO = """\
Call a gateway from any language: every route, its fields, and a request that you can paste into a shell.

Programs for OpenAI's API work as they are: give them the base URL `http://localhost:8080/v1`. The same facts for
programs are in the OpenAPI 3.1 document, which the gateway serves at `/openapi.json` without a key.

The examples use this gateway, whose models are the built-in rehearsal. One of them has the tools of an MCP server."""

_GATEWAY = """\
# gateway.yaml
allow_stdio: true
models:
  - name: demo
    use_mcp: false
    model:
      provider: rehearsal
      name: rehearsal
  - name: helper
    model:
      provider: rehearsal
      name: rehearsal
mcp_servers:
  - name: memory
    type: mcp
    description: Remembers facts
    command: npx
    args: ["-y", "@modelcontextprotocol/server-memory"]"""

_RULES = """\
## Rules for all routes

- **Keys.** Send `Authorization: Bearer KEY`. The gateway above has no keys, so it accepts requests of this machine
  without one. Routes that need a key with a role say so. `/healthz`, `/readyz`,
  `/openapi.json`, `/v1/mcp/login/callback` and those under `/.well-known` need none.
- **Bodies** are JSON, with `content-type: application/json`. A field that is null counts as one that is left out. A
  field that is not listed here is refused by its name, so that a misspelt one has no silent effect.
- **Errors** are `{"error": {"message", "type", "code", "param"}}`. [Errors](errors.md) lists the codes. Each route
  below names its own; every request can also have those of [any request](errors.md#any-request). Those of
  [MCP](#mcp) have the form of JSON-RPC.
- **Headers.** Every reply has an `x-request-id`, which the gateway's log has too; send your own to choose it.
  `x-holodeck-missing-servers` names the MCP servers that a run had to do without."""

_SEE_ALSO = """\
## See also

- [Request fields](request-fields.md): what becomes of each field
- [Objects of the HTTP API](http-objects.md)
- [Events](events.md)
- [Errors](errors.md)"""

# Requests that are more than the plain one, by route.
_COMMANDS = {
    "getConsole": "curl -s -o /dev/null -w '%{content_type}\\n' localhost:8080/",
    "getConsoleFile": """\
file=$(curl -s localhost:8080/ | grep -o 'main-[A-Z0-9]*.js')
curl -s -o /dev/null -w '%{content_type}\\n' localhost:8080/console/$file""",
    "receiveLogin": "curl -s -o /dev/null -w '%{http_code}\\n' 'localhost:8080/v1/mcp/login/callback?code=x&state=y'",
    "logIn": "curl -s -o /dev/null -w '%{http_code}\\n' localhost:8080/v1/login",
    "finishLogin": "curl -s -o /dev/null -w '%{http_code}\\n' localhost:8080/v1/login/callback",
    "getMe": "curl -s localhost:8080/v1/me",
    "getAuthorizationServer": "curl -s localhost:8080/.well-known/oauth-authorization-server",
    "openLoginLink": "curl -s -o /dev/null -w '%{http_code}\\n' 'localhost:8080/v1/mcp/login/begin?link=x'",
    "followLoginLink": "curl -s -o /dev/null -w '%{http_code}\\n' -X POST 'localhost:8080/v1/mcp/login/begin?link=x'",
    "cancelResponse": """\
JOB=$(curl -s localhost:8080/v1/responses -H 'content-type: application/json' \\
  -d '{"model": "demo", "input": "Hello", "background": true}' | grep -o 'resp_[0-9a-f]*' | head -n 1)
curl -s -X POST localhost:8080/v1/responses/$JOB/cancel | python3 -m json.tool""",
    "cancelRun": "curl -s -X POST localhost:8080/v1/runs/$RUN/cancel | python3 -m json.tool",
    "getRun": """\
RUN=$(curl -s localhost:8080/v1/runs | grep -o 'resp_[0-9a-f]*' | head -n 1)
curl -s localhost:8080/v1/runs/$RUN | python3 -m json.tool""",
    "getRunTrace": "curl -s localhost:8080/v1/runs/$RUN/trace | python3 -m json.tool",
    "getDocument": "curl -s localhost:8080/openapi.json | python3 -m json.tool | head -n 4",
    "getMetrics": "curl -s localhost:8080/metrics | grep in_flight",
    "endMCP": """\
curl -s -D headers.txt localhost:8080/mcp -H 'content-type: application/json' -d '{"jsonrpc": "2.0", "id": 1,
  "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {},
  "clientInfo": {"name": "curl", "version": "1"}}}' > reply.json
SESSION=$(grep -i '^mcp-session-id:' headers.txt | tr -d '\\r' | cut -d ' ' -f 2)
curl -s -o reply.json -w '%{http_code}\\n' -X DELETE localhost:8080/mcp -H "mcp-session-id: $SESSION\"""",
}
# The ids in these replies are used by later requests: how the id begins, and the variable that it is stored in.
_STORED_IDS = {
    "createResponse": ("resp", "RESPONSE"),
    "createConversation": ("conv", "CONVERSATION"),
    "addItems": ("msg", "ITEM"),
}
_ARGUMENTS = {
    "/v1/responses/{id}": "/v1/responses/$RESPONSE",
    "/v1/conversations/{id}": "/v1/conversations/$CONVERSATION",
    "{item_id}": "$ITEM",
    "{elicitation_id}": "elic_1",
    "/v1/callers/{id}": "/v1/callers/key:alice",
    "/v1/sessions/{id}": "/v1/sessions/ses_1",
    "/v1/models/{id}": "/v1/models/demo",
    "{name}": "memory",
    "{server}": "memory",
}
# How many lines of a reply are shown, where the rest is shown elsewhere or differs from run to run.
_SHOWN_LINES = {
    "createResponse": 36,
    "getResponse": 6,
    "cancelResponse": 3,
    "listServerTools": 5,
    "getConfiguration": 2,
    "listRuns": 8,
    "getRun": 5,
    "getRunTrace": 5,
    "cancelRun": 5,
    "getUsage": 2,
}
# Connects to what others show, or deletes it.
_RANKS = {"refreshServer": -1, "sleepServer": 1, "deleteResponse": 1, "deleteItem": 1, "deleteConversation": 2}
# Characters of a reply that is shown as one line, as it is sent.
_MAX_LINE = 420
_NO_PROVIDER = (
    '{"error":{"message":"This gateway accepts only keys of its operator: there is no identity provider to log in to.",'
    '"type":"not_found","code":"unknown_url","param":null}}'
)
_NO_SESSION = '{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"The header Mcp-Session-Id is missing"}}'
_NO_KEYS = """\
{"error":{"message":"This gateway has no keys: everything on this machine may use it. Make the first key at its \
terminal, with 'holodeck keys create ops --role operator -f gateway.yaml'.","type":"invalid_request",\
"code":"no_keys","param":null}}"""
_NOT_WITHHELD = """\
{"error":{"message":"The tool 'create_entities' is not withheld, or not as you have seen it. Look at it again.",\
"type":"invalid_request","code":"tool_changed","param":"tools.create_entities"}}"""
_NO_LOGIN = """\
{"error":{"message":"The MCP server 'memory' has no login: it is a process that the gateway starts, and gets its \
credentials by 'env'.","type":"invalid_request","code":"no_login","param":null}}"""
_NO_LOGIN_STARTED = """\
{"error":{"message":"No login of the MCP server 'memory' was started lately.","type":"not_found",\
"code":"not_found","param":null}}"""
_NO_QUESTION = """\
{"error":{"message":"Elicitation with id 'elic_1' not found. It was answered, or its call waits no longer.",\
"type":"not_found","code":"not_found","param":null}}"""
_CALLER = (
    '{"object":"caller","id":"key:alice","paused":%s,"erasing":false,"erased_at":null,"changed_at":...,'
    '"changed_by":...,"last_used_at":null}'
)
_NO_CLIENT_LOGIN = """\
{"error":{"message":"MCP clients do not log in at this gateway: its file has no 'mcp_endpoint.login'.",\
"type":"not_found","code":"unknown_url","param":null}}"""
_NO_OWN_LOGIN = """\
{"error":{"message":"Callers do not log in to the MCP server 'memory' themselves: it has no 'auth' with 'per: \
caller'.","type":"invalid_request","code":"no_login","param":null}}"""
# Replies of the gateway of the page that are not the examples of the document.
_REPLIES = {
    "startOwnLogin": _NO_OWN_LOGIN,
    "getOwnLogin": _NO_OWN_LOGIN,
    "endOwnLogin": _NO_OWN_LOGIN,
    "listElicitations": '{"object":"list","data":[]}',
    "answerElicitation": _NO_QUESTION,
    "acceptTools": _NOT_WITHHELD,
    "startLogin": _NO_LOGIN,
    "getLogin": _NO_LOGIN_STARTED,
    "cancelLogin": _NO_LOGIN_STARTED,
    "receiveLogin": "400",
    "openLoginLink": "400",
    "logIn": "404",
    "finishLogin": "404",
    "logOut": """\
{"error":{"message":"This request has no login that could end: it has a key, or a token of its own.",\
"type":"invalid_request","code":"not_logged_in","param":null}}""",
    "getMe": """\
{"object":"caller","id":"local","name":null,"role":"operator","group":null,"session":null,"allow":null,\
"budgets":[]}""",
    "listSessions": '{"object":"list","data":[]}',
    "endSession": """\
{"error":{"message":"Session with id 'ses_1' not found.","type":"not_found","code":"not_found","param":null}}""",
    **dict.fromkeys(
        (
            *("getAuthorizationServer", "authorizeClient", "decideClient", "exchangeClientCode"),
            *("revokeClientToken", "registerClient"),
        ),
        _NO_CLIENT_LOGIN,
    ),
    "followLoginLink": "403",
    "listKeys": '{"object":"list","data":[],"has_more":false,"manages":"all"}',
    "listGroups": '{"object":"list","data":[]}',
    "listCallers": '{"object":"list","data":[...],"has_more":false}',
    "pauseCaller": _CALLER % "true",
    "resumeCaller": _CALLER % "false",
    "getCaller": _CALLER % "false",
    "exportCaller": '{"object":"caller","id":"key:alice","exported_at":...}',
    "eraseCaller": (_CALLER % "false").replace('"erased_at":null', '"erased_at":...'),
    "createKey": _NO_KEYS,
    "rotateKey": _NO_KEYS,
    "updateKey": _NO_KEYS,
    "deleteKey": _NO_KEYS,
    "getDocument": """\
{
    "openapi": "3.1.0",
    "info": {
        "title": "HoloDeck gateway",""",
    "getConsole": "text/html; charset=utf-8",
    "getConsoleFile": "text/javascript; charset=utf-8",
    "listenMCP": _NO_SESSION,
    "listenMCPOfServer": _NO_SESSION,
    "endMCP": "204",
    "endMCPOfServer": _NO_SESSION,
    "getResourceMetadata": _NO_PROVIDER,
    "getResourceMetadataOfMCP": _NO_PROVIDER,
    "getResourceMetadataOfServer": _NO_PROVIDER,
}
_PLAIN_REPLIES = {"string": "Text", "object": "A JSON object"}
_KINDS = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "object": "object",
}
# Described in events.md.
_EVENT_SCHEMAS = re.compile(r".*Event|ChatChunk|ChatError")


def build_page() -> str:
    """Return the page."""
    document = build_document(list_routes())
    return join_blocks(
        [
            "# HTTP API",
            NOTICE,
            _INTRO,
            fence(_GATEWAY, "yaml"),
            fence("holodeck serve gateway.yaml &", "bash"),
            _RULES,
            *(block for tag, about in TAGS.items() for block in _tag_blocks(tag, about, document)),
            _SEE_ALSO,
        ]
    )


def build_objects_page() -> str:
    """Return the page of the objects that requests and replies contain."""
    return join_blocks(
        [
            "# Objects of the HTTP API",
            NOTICE,
            "The objects that the fields of [requests and replies](http-api.md) contain, with all their fields.",
            *_object_blocks(build_document(list_routes())),
        ]
    )


def _tag_blocks(tag: str, about: str, document: Mapping[str, Any]) -> Iterator[str]:
    yield f"## {tag}"
    yield about
    routes = [route for route in list_routes() if route.tag == tag]
    for route in sorted(routes, key=lambda route: _RANKS.get(route.id, 0)):
        entry = document["paths"][route.path][route.method.lower()]
        yield f"### {route.summary}"
        yield f"{code(f'{route.method} {route.path}')}"
        yield route.description
        yield fence(_command(route), "bash")
        yield fence(_reply(route))
        yield _parameter_table(entry, "query", "Query parameter")
        yield _parameter_table(entry, "header", "Header")
        yield _body_fields(route, document)
        yield _reply_line(route)
        yield _error_line(route)


def _command(route: Route) -> str:
    if route.id in _COMMANDS:
        return _COMMANDS[route.id]
    path = route.path
    for parameter, argument in _ARGUMENTS.items():
        path = path.replace(parameter, argument)
    lines = [
        f"curl -s{'' if route.method == 'GET' or route.example_body else f' -X {route.method}'} localhost:8080{path}"
    ]
    if route.example_body is not None:
        lines += ["  -H 'content-type: application/json'", f"  -d '{json.dumps(route.example_body)}'"]
    request = " \\\n".join(lines)
    is_long = _is_long(route)
    if route.id not in _STORED_IDS:
        return f"{request} | python3 -m json.tool" if is_long else request
    prefix, variable = _STORED_IDS[route.id]
    store = f"{variable}=$(grep -o '{prefix}_[0-9a-f]*' reply.json | head -n 1)"
    return f"{request} > reply.json\n{store}\n{'python3 -m json.tool' if is_long else 'cat'} reply.json"


def _is_long(route: Route) -> bool:
    """Whether the reply is shown on several lines. Those of `_REPLIES` are not."""
    if route.id in _REPLIES:
        return False
    return route.id in _SHOWN_LINES or len(json.dumps(route.example)) > _MAX_LINE


def _reply(route: Route) -> str:
    """The example, with dots for what differs from run to run."""
    if route.id in _REPLIES:
        return _REPLIES[route.id]
    if isinstance(route.example, str):
        return route.example
    text = json.dumps(route.example, separators=(",", ":"))
    if _is_long(route):
        text = json.dumps(route.example, indent=4)
    text = re.sub(r'"([a-z]+)_[0-9a-f]{32,}"', r'"\1_..."', text)
    text = re.sub(r'("(?:created|created_at|completed_at)": ?)\d+', r"\1...", text)
    text = re.sub(r'("(?:start_seconds|restarts)": ?)[\d.]+', r"\1...", text)
    text = re.sub(r'("(?:calls|call_seconds_p50|call_seconds_p95)": ?)(?:[\d.]+|null)', r"\1...", text)
    text = re.sub(r'"hd2\.[^"]*"', '"hd2..."', text)
    shown = _SHOWN_LINES.get(route.id)
    return text if shown is None else "\n".join([*text.splitlines()[:shown], "..."])


def _parameter_table(entry: Mapping[str, Any], place: str, title: str) -> str:
    rows = [
        (code(each["name"]), _kind(each["schema"]), each["description"])
        for each in entry.get("parameters", ())
        if each["in"] == place
    ]
    return table((title, "Value", "Meaning"), rows)


def _body_fields(route: Route, document: Mapping[str, Any]) -> str:
    if route.body is None:
        return ""
    # A schema that several routes share is shown with the first of them.
    first = next(each for each in list_routes() if each.body == route.body)
    if route is not first:
        return f"The body has the same fields as that of [{first.summary}](#{_anchor(first.summary)})."
    schema = document["components"]["schemas"][route.body]
    if "properties" not in schema:
        return f"**Body:** {' or '.join(_kind(each) for each in schema['anyOf'])}."
    return join_blocks([schema.get("description", ""), _field_table(schema, document)]).strip()


def _field_table(schema: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = []
    for name, field in schema["properties"].items():
        is_required = name in required
        words = [*["**Required.**"] * is_required, _meaning(field, document)]
        rows.append((code(name), _kind(field, shows_null=is_required), " ".join(words).strip()))
    return table(("Field", "Value", "Meaning"), rows)


def _meaning(field: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    """The description of a field, or else that of the object in it."""
    inner = next((each for each in field.get("anyOf", ()) if "$ref" in each), field)
    named = document["components"]["schemas"].get(inner.get("$ref", "").rpartition("/")[2], {})
    return str(field.get("description") or named.get("description") or "")


# The first status of an error.
_FIRST_ERROR = 400


def _reply_line(route: Route) -> str:
    others = [_link(name) for status, name in route.other_replies.items() if status < _FIRST_ERROR]
    if others:
        return f"**Reply:** {', '.join(others)}."
    if route.reply is None:
        return f"**Reply:** {_empty_replies(route)}"
    named = _link(route.reply) if isinstance(route.reply, str) else _PLAIN_REPLIES[route.reply["type"]]
    if route.error == "MCPError":
        streamed = f" Or events, each with one {_link(route.stream)}." if route.stream else ""
        kind = "Events, each with one " if route.media_type == EVENTS else ""
        return f"**Reply:** {kind}{named}.{streamed} {_empty_replies(route)}".rstrip()
    streamed = " Or, with `stream`, [events](events.md)." if route.stream else ""
    return f"**Reply:** {named}.{streamed}"


def _empty_replies(route: Route) -> str:
    return " ".join(f"{status} without a body: {about}" for status, about in route.empty_replies.items())


def _error_line(route: Route) -> str:
    """The errors of a route; those of the MCP endpoint by their statuses, since they have no other codes."""
    if route.refusals:
        statuses = "".join(f"\n- {status}: {about}" for status, about in route.refusals.items())
        return f"**Errors:** as {_link(route.error)}, with the statuses of [errors](errors.md), and\n{statuses}"
    groups = error_groups_of(route)
    links = [f"[{title}](errors.md#{_anchor(title)})" for group, title in GROUP_TITLES.items() if group in groups]
    links += [f"{status}, as {_link(name)}" for status, name in route.other_replies.items() if status >= _FIRST_ERROR]
    links += [f"{status}, as a page: {about.rstrip('.')}" for status, about in route.error_pages.items()]
    return f"**Errors:** {', '.join(links)}." if links else ""


def _object_blocks(document: Mapping[str, Any]) -> Iterator[str]:
    schemas = document["components"]["schemas"]
    bodies = {route.body for route in list_routes()}
    for name, schema in schemas.items():
        # A body that is one of several objects is shown there by its name only.
        if (name in bodies and "properties" in schema) or _EVENT_SCHEMAS.fullmatch(name):
            continue
        yield f"## {name}"
        yield schema.get("description", "")
        if "properties" in schema:
            yield _field_table(schema, document)
        else:
            yield f"One of: {', '.join(_kind(each) for each in schema.get('oneOf') or schema['anyOf'])}."
            for variant in schema.get("anyOf", ()):
                if "properties" in variant:
                    yield variant.get("description", "")
                    yield _field_table(variant, document)


def _kind(schema: Mapping[str, Any], *, shows_null: bool = True) -> str:
    """The values that a schema allows, in words. A field that may be left out may be null as well."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return code(json.dumps(schema["const"]))
    if "enum" in schema:
        values = [code(str(value)) for value in schema["enum"] if value is not None]
        return ", ".join([*values, "null"] if shows_null and None in schema["enum"] else values)
    for word in ("oneOf", "anyOf"):
        # Beside properties it says which of them are needed.
        if word in schema and "properties" not in schema:
            return " or ".join(_kind(each) for each in schema[word] if shows_null or each != NULL)
    kind = schema.get("type", "any value")
    names = [kind] if isinstance(kind, str) else kind
    shown = " or ".join(_KINDS.get(name, name) for name in names if shows_null or name != "null")
    if "properties" in schema:
        shown += f" with {', '.join(map(code, schema['properties']))}"
    if names[0] == "array":
        shown = shown.replace("array", f"list of {_kind(schema['items'])}", 1)
    return shown + _limits(schema)


def _limits(schema: Mapping[str, Any]) -> str:
    words = []
    if schema.get("minLength") == 1 and "maxLength" not in schema:
        words.append("not empty")
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
        ("minProperties", "maxProperties", " keys"),
    ):
        least, most = schema.get(low), schema.get(high)
        if least is not None and most is not None:
            words.append(f"{least:,} to {most:,}{unit}")
        elif least is not None and low != "minLength":
            words.append(f"at least {least:,}{unit}")
        elif most is not None:
            words.append(f"at most {most:,}{unit}")
    return f" ({', '.join(words)})" if words else ""


def _link(name: str) -> str:
    return f"[{name}](http-objects.md#{name.lower()})"


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-")

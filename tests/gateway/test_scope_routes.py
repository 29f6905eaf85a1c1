"""Every route of the gateway holds the scope of its caller: models, agents, MCP servers and tools.

`SCOPED` decides for each route which of them apply. A route that is not in the table fails the first test.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from holodeck.gateway.all_endpoints import list_routes
from holodeck.gateway.auth.callers import hash_key
from holodeck.testing import FaultyMCPServer, ScriptedModel, say

ALL, MODELS, SERVERS, NONE = ("models", "agents", "servers", "tools"), ("models", "agents"), ("servers", "tools"), ()
SOCKET = "WEBSOCKET /v1/responses"
SCOPED = {
    SOCKET: ALL,
    "POST /v1/responses": ALL,
    "POST /v1/responses/compact": MODELS,
    "POST /v1/responses/input_tokens": ALL,
    "POST /v1/chat/completions": ALL,
    "POST /v1/messages": ALL,
    "POST /v1/messages/count_tokens": ALL,
    "POST /v1/embeddings": MODELS,
    "POST /v1/completions": MODELS,
    "GET /v1/models": MODELS,
    "GET /v1/models/{id}": MODELS,
    "GET /v1/mcp/servers": ("servers",),
    "GET /v1/mcp/servers/{name}/tools": SERVERS,
    "POST /v1/mcp/servers/{name}/refresh": ("servers",),
    "POST /v1/mcp/servers/{name}/sleep": ("servers",),
    "POST /v1/mcp/servers/{name}/accept": ("servers",),
    "POST /v1/mcp/servers/{name}/login": ("servers",),
    "GET /v1/mcp/servers/{name}/login": ("servers",),
    "DELETE /v1/mcp/servers/{name}/login": ("servers",),
    "POST /v1/mcp/logins/{name}": ("servers",),
    "GET /v1/mcp/logins/{name}": ("servers",),
    "DELETE /v1/mcp/logins/{name}": ("servers",),
    "POST /mcp": ("agents", "servers", "tools"),
    "POST /mcp/{server}": SERVERS,
    # The session of a caller is its own: what it may do in it is decided for each POST.
    "GET /mcp": NONE,
    "DELETE /mcp": NONE,
    "GET /mcp/{server}": ("servers",),
    "DELETE /mcp/{server}": ("servers",),
    # What a caller has stored is its own, whatever it may use now.
    "GET /v1/responses/{id}": NONE,
    "DELETE /v1/responses/{id}": NONE,
    "POST /v1/responses/{id}/cancel": NONE,
    "GET /v1/responses/{id}/input_items": NONE,
    "GET /v1/responses/{id}/elicitations": NONE,
    "POST /v1/responses/{id}/elicitations/{elicitation_id}": NONE,
    "POST /v1/conversations": NONE,
    "GET /v1/conversations": NONE,
    "GET /v1/conversations/{id}": NONE,
    "POST /v1/conversations/{id}": NONE,
    "DELETE /v1/conversations/{id}": NONE,
    "POST /v1/conversations/{id}/items": NONE,
    "GET /v1/conversations/{id}/items": NONE,
    "GET /v1/conversations/{id}/items/{item_id}": NONE,
    "DELETE /v1/conversations/{id}/items/{item_id}": NONE,
    # Not for an operator with a scope, who could make a key without one.
    "GET /v1/keys": NONE,
    "GET /v1/groups": NONE,
    "POST /v1/keys": NONE,
    "POST /v1/keys/rotate": NONE,
    "POST /v1/keys/update": NONE,
    "DELETE /v1/keys/{name}": NONE,
    "GET /v1/callers": NONE,
    "POST /v1/callers/{id}/pause": NONE,
    "POST /v1/callers/{id}/resume": NONE,
    "GET /v1/callers/{id}": NONE,
    "GET /v1/callers/{id}/export": NONE,
    "DELETE /v1/callers/{id}": NONE,
    "GET /v1/config": NONE,
    # Who it is, and the sessions of a person, are its own, too.
    "GET /v1/me": NONE,
    "GET /v1/login": NONE,
    "GET /.well-known/oauth-authorization-server": NONE,
    "GET /oauth/authorize": NONE,
    "POST /oauth/authorize": NONE,
    "POST /oauth/token": NONE,
    "POST /oauth/revoke": NONE,
    "POST /oauth/register": NONE,
    "GET /v1/login/callback": NONE,
    "POST /v1/logout": NONE,
    "GET /v1/sessions": NONE,
    "DELETE /v1/sessions/{id}": NONE,
    # So are its runs. An operator whose key has a scope sees its own, too, and not those of others.
    "GET /v1/runs": NONE,
    "GET /v1/runs/{id}": NONE,
    "GET /v1/runs/{id}/trace": NONE,
    "POST /v1/runs/{id}/cancel": NONE,
    "GET /v1/usage": NONE,
    "GET /v1/budget": NONE,
    # The counters of the whole process, for its operator.
    "GET /metrics": NONE,
    # Without a caller.
    "GET /.well-known/oauth-protected-resource": NONE,
    "GET /.well-known/oauth-protected-resource/mcp": NONE,
    "GET /.well-known/oauth-protected-resource/mcp/{server}": NONE,
    "GET /v1/mcp/login/callback": NONE,
    "GET /v1/mcp/login/begin": NONE,
    "POST /v1/mcp/login/begin": NONE,
    "GET /healthz": NONE,
    "GET /readyz": NONE,
    "GET /openapi.json": NONE,
    "GET /": NONE,
    "GET /console/{file}": NONE,
}
OPERATORS, FIGURES, MANAGERS = ("operator",), ("operator", "viewer"), ("operator", "keys")
ROLES = {
    "GET /metrics": ("operator", "viewer", "metrics"),
    "GET /v1/keys": (*FIGURES, "keys"),
    "GET /v1/groups": (*FIGURES, "keys"),
    "POST /v1/keys": MANAGERS,
    "POST /v1/keys/rotate": MANAGERS,
    "POST /v1/keys/update": MANAGERS,
    "DELETE /v1/keys/{name}": MANAGERS,
    "GET /v1/callers": FIGURES,
    "POST /v1/callers/{id}/pause": OPERATORS,
    "POST /v1/callers/{id}/resume": OPERATORS,
    "GET /v1/callers/{id}": OPERATORS,
    "GET /v1/callers/{id}/export": OPERATORS,
    "DELETE /v1/callers/{id}": OPERATORS,
    "GET /v1/config": OPERATORS,
    "GET /v1/mcp/servers": OPERATORS,
    "GET /v1/mcp/servers/{name}/tools": OPERATORS,
    "POST /v1/mcp/servers/{name}/refresh": OPERATORS,
    "POST /v1/mcp/servers/{name}/sleep": OPERATORS,
    "POST /v1/mcp/servers/{name}/accept": OPERATORS,
    "POST /v1/mcp/servers/{name}/login": OPERATORS,
    "GET /v1/mcp/servers/{name}/login": OPERATORS,
    "DELETE /v1/mcp/servers/{name}/login": OPERATORS,
}
"""The roles that open a route. All others are for every caller, but one with the role `metrics`."""
FREE, LIMITED = "hd-free", "hd-limited"
SCOPES = {
    "models": {"models": ["demo"]},
    "agents": {"agents": ["helper"]},
    "servers": {"servers": ["open"]},
    "tools": {"tools": ["*.*", "!open.echo"]},
}
HIDDEN = {"models": "secret-model", "agents": "secret-agent"}
"""The name that is out of scope, by the kind of scope."""


@dataclass(kw_only=True)
class Served:
    """A gateway with one model, agent, server and tool out of the scope of a key."""

    gateway: RunningGateway
    closed: FaultyMCPServer

    async def ask(self, route: str, key: str, model: str = MODEL) -> tuple[int, Any]:
        """A request to a route that asks a model: status and JSON."""
        if route == SOCKET:
            return await self._ask_socket(key, model)
        method, path = route.split()
        path = path.replace("{id}", model)
        body = {
            "model": model,
            "max_tokens": 100,
            **({"messages": [{"role": "user", "content": "Go"}]} if "messages" in path or "chat" in path else {}),
            **({"prompt": "Go"} if path == "/v1/completions" else {}),
            **({"input": "Go"} if "responses" in path or "embeddings" in path else {}),
        }
        if "responses" in path:
            del body["max_tokens"]
        return await self.gateway.send(method, path, body if method == "POST" else None, key=key)

    async def _ask_socket(self, key: str, model: str) -> tuple[int, Any]:
        url = self.gateway.url.replace("http", "ws", 1) + "/v1/responses"
        async with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
            await socket.send(orjson.dumps({"type": "response.create", "model": model, "input": "Go"}).decode())
            while True:
                event = orjson.loads(await socket.recv())
                if event["type"] == "error":
                    return int(event["status"]), {"error": event["error"]}
                if event["type"] == "response.completed":
                    return 200, event["response"]

    def offered_tools(self) -> set[str]:
        """The tools in the latest request to the model."""
        return {tool["function"]["name"] for tool in self.gateway.model_requests[-1].get("tools", ())}


@asynccontextmanager
async def serve(folder: Path, kind: str) -> AsyncIterator[Served]:
    model = ScriptedModel(lambda _: say("Hi."))
    agent = {"model": {"provider": "rehearsal"}, "instructions": "Help."}
    for name in ("helper", HIDDEN["agents"]):
        (folder / f"{name}.yaml").write_bytes(orjson.dumps({"name": name, **agent}))
    async with FaultyMCPServer() as opened, FaultyMCPServer() as closed, model.serve() as scripted:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        async with run_gateway(
            folder,
            model,
            mcp={"open": opened, "closed": closed},
            admins=[FREE, LIMITED],
            scopes={LIMITED: SCOPES[kind]},
            agents=[{"file": f"{name}.yaml"} for name in ("helper", HIDDEN["agents"])],
            models=[{"name": name, "model": llm} for name in (MODEL, HIDDEN["models"])],
        ) as gateway:
            gateway.model = scripted
            yield Served(gateway=gateway, closed=closed)


def test_every_route_has_a_decision_about_scopes() -> None:
    assert {f"{route.method} {route.path}" for route in list_routes()} | {SOCKET} == set(SCOPED)


@async_test(60)
async def test_a_role_opens_its_routes_and_no_others(tmp_path: Path) -> None:
    names = ("operator", "viewer", "keys", "metrics", "none")
    keys = [{"name": name, "hash": hash_key(name), "role": name if name != "none" else None} for name in names]
    keys[names.index("keys")]["group"] = "research"
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=["none"], is_checked=False) as gateway:
        assert await gateway.reload(keys=keys, groups=[{"name": "research"}])
        for route in list_routes():
            if route.is_public or route.method == "DELETE" or (route.method, route.path) == ("GET", "/mcp"):
                continue
            path = route.path.replace("{id}", "x").replace("{item_id}", "y").replace("{name}", "z")
            opened = ROLES.get(f"{route.method} {route.path}", tuple(each for each in names if each != "metrics"))
            assert route.roles == (() if "none" in opened else opened)
            for name in names:
                status, said = await gateway.send(route.method, path, {} if route.method == "POST" else None, key=name)
                assert (status == 403) is (name not in opened), (route.method, path, name, said)
        for name, is_open in (("none", True), ("metrics", False)):
            url, headers = gateway.url.replace("http", "ws", 1), {"authorization": f"Bearer {name}"}
            with nullcontext() if is_open else pytest.raises(InvalidStatus, match="403"):
                await (await connect(f"{url}/v1/responses", additional_headers=headers)).close()


@async_test(60)
async def test_a_viewer_sees_the_usage_of_all_callers_and_nothing_that_they_wrote(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=["alice"]) as gateway:
        viewer = {"name": "eve", "hash": hash_key("eve"), "role": "viewer"}
        assert await gateway.reload(keys=[{"name": "alice", "hash": hash_key("alice")}, viewer])
        _, made = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "My secret"}, key="alice")
        _, usage = await gateway.send("GET", "/v1/usage?group_by=caller", key="eve")
        assert [each["caller"] for each in usage["data"]] == ["key:alice"]
        _, runs = await gateway.send("GET", "/v1/runs", key="eve")
        assert runs["data"] == []
        for path in (f"/v1/runs/{made['id']}", f"/v1/runs/{made['id']}/trace", f"/v1/responses/{made['id']}"):
            assert (await gateway.send("GET", path, key="eve"))[0] == 404
        assert (await gateway.send("GET", "/v1/runs?caller=alice", key="eve"))[0] == 403


@pytest.mark.parametrize("role", ["viewer", "keys", "metrics"])
@async_test(60)
async def test_no_route_shows_or_deletes_what_a_caller_wrote_for_a_role_without_content(
    tmp_path: Path, role: str
) -> None:
    secret, item = "canary-52c9", {"role": "user", "content": "canary-52c9"}
    reader = {"name": "eve", "hash": hash_key("eve"), "role": role, "group": "research"}
    owner = {"name": "alice", "hash": hash_key("alice"), "group": "research"}
    async with run_gateway(tmp_path, ScriptedModel(lambda _: say("Hi.")), keys=["alice"], is_checked=False) as gateway:
        assert await gateway.reload(keys=[owner, reader], groups=[{"name": "research"}])
        _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": secret}, key="alice")
        _, conversation = await gateway.send("POST", "/v1/conversations", {"items": [item]}, key="alice")
        _, items = await gateway.send("GET", f"/v1/conversations/{conversation['id']}/items", key="alice")
        assert secret in str(items)
        for route in list_routes():
            if (route.method, route.path) == ("GET", "/mcp"):
                continue
            for owned in (response["id"], conversation["id"], "key:alice"):
                path = route.path.replace("{id}", owned).replace("{item_id}", items["data"][0]["id"])
                body: Any = {} if route.method == "POST" else None
                for query in ("", "?caller=key:alice"):
                    _, said = await gateway.send(
                        route.method, re.sub(r"\{\w+\}", "alice", path) + query, body, key="eve"
                    )
                    assert secret not in str(said), (route.method, path, query)
        for path in (f"/v1/responses/{response['id']}/input_items", f"/v1/conversations/{conversation['id']}/items"):
            status, said = await gateway.send("GET", path, key="alice")
            assert (status, secret in str(said)) == (200, True)


def routes_with(*kinds: str) -> list[Any]:
    """The routes that ask a model, with each of these kinds that applies to them."""
    return [
        pytest.param(route, kind, id=f"{route} {kind}")
        for route, held in SCOPED.items()
        for kind in kinds
        if kind in held and "/mcp" not in route
    ]


def _without_name(reply: Any, name: str) -> str:
    """An error without what differs between two requests: the name that they ask for, and their ids."""
    reply.pop("request_id", None)
    return orjson.dumps(reply).decode().replace(name, "NAME")


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(
    ("route", "kind"), [each for each in routes_with(*MODELS) if each.values[0] != "GET /v1/models"]
)
@async_test(60)
async def test_a_model_out_of_scope_is_answered_as_one_that_does_not_exist(
    tmp_path: Path, route: str, kind: str
) -> None:
    async with serve(tmp_path, kind) as served:
        hidden, unknown = HIDDEN[kind], "no-such-model"
        status, refused = await served.ask(route, LIMITED, hidden)
        assert (status, refused["error"]["message"].count(hidden)) == (404, 1)
        assert _without_name(refused, hidden) == _without_name((await served.ask(route, LIMITED, unknown))[1], unknown)
        assert (await served.ask(route, FREE, hidden))[0] != 404


@pytest.mark.proves("D-39")
@pytest.mark.parametrize("kind", MODELS)
@async_test(60)
async def test_the_list_of_models_has_only_those_in_scope(tmp_path: Path, kind: str) -> None:
    async with serve(tmp_path, kind) as served:
        _, free = await served.gateway.send("GET", "/v1/models", key=FREE)
        _, limited = await served.gateway.send("GET", "/v1/models", key=LIMITED)
        names = [each["id"] for each in free["data"]]
        assert [each["id"] for each in limited["data"]] == [name for name in names if name != HIDDEN[kind]]


RUNS = routes_with(*SERVERS)
COUNTS = ("input_tokens", "count_tokens")


@pytest.mark.proves("D-39", "D-37")
@pytest.mark.parametrize(("route", "kind"), [each for each in RUNS if not each.values[0].endswith(COUNTS)])
@async_test(60)
async def test_tools_out_of_scope_are_not_offered_and_the_others_keep_their_names(
    tmp_path: Path, route: str, kind: str
) -> None:
    async with serve(tmp_path, kind) as served:
        assert (await served.ask(route, FREE))[0] == 200
        free = served.offered_tools()
        before = len(served.closed.requests)
        assert (await served.ask(route, LIMITED))[0] == 200
        hidden = {"echo"} if kind == "tools" else {name for name in free if name.startswith("closed__")}
        assert hidden
        assert served.offered_tools() == free - hidden
        if kind == "servers":
            assert len(served.closed.requests) == before


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(("route", "kind"), [each for each in RUNS if each.values[0].endswith(COUNTS)])
@async_test(60)
async def test_tools_out_of_scope_are_not_counted(tmp_path: Path, route: str, kind: str) -> None:
    async with serve(tmp_path, kind) as served:
        _, limited = await served.ask(route, LIMITED)
        assert bool(served.closed.requests) == (kind == "tools")
        _, free = await served.ask(route, FREE)
        assert limited["input_tokens"] < free["input_tokens"]


@pytest.mark.proves("D-39")
@async_test(60)
async def test_an_operator_with_a_scope_sees_only_servers_and_tools_in_it(tmp_path: Path) -> None:
    async with serve(tmp_path, "servers") as served:
        send = served.gateway.send
        _, listed = await send("GET", "/v1/mcp/servers", key=LIMITED)
        assert [server["name"] for server in listed["data"]] == ["open"]
        logins = (("POST", "login"), ("GET", "login"), ("DELETE", "login"))
        for method, what in (("GET", "tools"), ("POST", "refresh"), ("POST", "sleep"), ("POST", "accept"), *logins):
            status, refused = await send(method, f"/v1/mcp/servers/closed/{what}", key=LIMITED)
            _, unknown = await send(method, f"/v1/mcp/servers/missing/{what}", key=LIMITED)
            assert status == 404
            assert _without_name(refused, "closed") == _without_name(unknown, "missing")
        assert not served.closed.requests


@pytest.mark.proves("D-39")
@async_test(60)
async def test_an_operator_with_a_scope_sees_no_tool_out_of_it(tmp_path: Path) -> None:
    async with serve(tmp_path, "tools") as served:
        path = "/v1/mcp/servers/open/tools"
        free, limited = [(await served.gateway.send("GET", path, key=key))[1]["data"] for key in (FREE, LIMITED)]
        assert [tool for tool in free if tool["name"] != "echo"] == limited
        assert len(limited) < len(free)


async def _list_mcp_tools(gateway: RunningGateway, path: str, key: str) -> set[str]:
    """The tools that an MCP client is offered."""
    status, answer = await gateway.send("POST", path, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, key=key)
    assert status == 200, answer
    return {tool["name"] for tool in answer["result"]["tools"]}


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(
    ("path", "kind", "hidden"),
    [
        ("/mcp", "agents", {f"ask_{HIDDEN['agents']}"}),
        ("/mcp", "servers", {"closed__add", "closed__echo"}),
        ("/mcp", "tools", {"echo"}),
        ("/mcp/open", "tools", {"echo"}),
    ],
)
@async_test(60)
async def test_an_mcp_client_is_offered_only_what_is_in_scope(
    tmp_path: Path, path: str, kind: str, hidden: set[str]
) -> None:
    async with serve(tmp_path, kind) as served:
        free = await _list_mcp_tools(served.gateway, path, FREE)
        before = len(served.closed.requests)
        limited = await _list_mcp_tools(served.gateway, path, LIMITED)
        assert hidden <= free - limited
        assert limited < free
        if kind == "servers":
            assert len(served.closed.requests) == before


@pytest.mark.proves("D-39")
@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@async_test(60)
async def test_the_mcp_endpoint_of_a_server_out_of_scope_does_not_exist(tmp_path: Path, method: str) -> None:
    async with serve(tmp_path, "servers") as served:
        body = {"jsonrpc": "2.0", "id": 1, "method": "ping"} if method == "POST" else None
        session = await served.gateway.http_client(LIMITED)
        replies = []
        for name in ("closed", "no-such-server"):
            headers = {"accept": "text/event-stream" if method == "GET" else "application/json, text/event-stream"}
            data = None if body is None else orjson.dumps(body)
            async with session.request(method, f"/mcp/{name}", data=data, headers=headers) as reply:
                assert reply.status == 404
                replies.append((await reply.text()).replace(name, "NAME"))
        assert replies[0] == replies[1]

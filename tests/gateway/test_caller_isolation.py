"""Two callers on every route: another caller's resource is answered exactly like a missing one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.gateway.api.models.other_bodies import CALLBACK_PATH
from holodeck.gateway.api.route import Route
from holodeck.gateway.mcp.server_logins import LINK_PATH
from holodeck.gateway.mcp_endpoint.resource_metadata import WELL_KNOWN
from holodeck.lib.ids import new_id
from holodeck.mcp_server.errors import INVALID_REQUEST
from holodeck.storage.person_sessions import StoredSession
from holodeck.testing import FaultyMCPServer, ScriptedModel, say

ALICE, BOB, ROOT = "hd-alice", "hd-bob", "hd-root"
SHARED = (
    *("/console/{file}", "/v1/models/{id}", "/mcp/{server}", f"{WELL_KNOWN}/mcp/{{server}}"),
    "/v1/mcp/logins/{name}",
)
"""Routes whose path parameters are the same for all callers."""
MESSAGE = {"role": "user", "content": "mine"}
BODIES: dict[tuple[str, str], Any] = {
    ("POST", "/v1/conversations/{id}"): {"metadata": {"by": "bob"}},
    ("POST", "/v1/conversations/{id}/items"): {"items": [MESSAGE]},
}
WITHOUT_LOGINS = {
    # There is no identity provider, and no MCP client logs in here.
    **dict.fromkeys((WELL_KNOWN, "/.well-known/oauth-authorization-server", "/oauth/", "/v1/login"), 404),
    # No login waits for a browser that comes back, or for one that follows its link.
    **dict.fromkeys((CALLBACK_PATH, LINK_PATH), 400),
    # No file is called "{file}".
    "/console/{file}": 404,
}
"""Statuses of public routes of a gateway that has only keys, by how their paths begin."""
REFERRING = ("/v1/responses", "/v1/responses/compact", "/v1/responses/input_tokens")
"""Routes that take the id of an earlier response in their body."""


async def _belongings(gateway: RunningGateway, key: str) -> dict[str, dict[str, str]]:
    """Resources of a caller by route prefix: each path parameter with its value."""
    _, response = await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "mine"}, key=key)
    _, conversation = await gateway.send("POST", "/v1/conversations", {"items": [MESSAGE]}, key=key)
    _, items = await gateway.send("GET", f"/v1/conversations/{conversation['id']}/items", key=key)
    return {
        "/v1/responses/": {"id": response["id"]},
        "/v1/runs/": {"id": response["id"]},
        "/v1/conversations/": {"id": conversation["id"], "item_id": items["data"][0]["id"]},
        "/v1/sessions/": {"id": await _add_session(gateway, key)},
    }


async def _add_session(gateway: RunningGateway, key: str) -> str:
    """Store a session of a caller, as a login does."""
    session = StoredSession(
        id=new_id("ses"),
        kind="console",
        caller_id=f"key:{key}",
        issuer="",
        about="",
        created_at=0.0,
        expires_at=9e9,
        secret_hash=key,
        secret_expires_at=9e9,
        claims=b"{}",
    )
    await gateway.service.store.person_sessions.add_session(session)
    return session.id


def _filled(route: Route, owned: dict[str, dict[str, str]], *, is_missing: bool) -> str:
    for beginning, values in owned.items():
        if route.path.startswith(beginning):
            path = route.path
            for name, value in values.items():
                path = path.replace(f"{{{name}}}", _missing(value) if is_missing else value)
            return path
    raise AssertionError(f"{route.path} is new: say in _belongings what a caller owns there, or that it is SHARED")


def _missing(item_id: str) -> str:
    return item_id[:-6] + "000000"


def _neutral(answer: Any, owned: dict[str, dict[str, str]]) -> str:
    text = repr(answer)
    for values in owned.values():
        for value in values.values():
            text = text.replace(value, "ID").replace(_missing(value), "ID")
    return text


@pytest.mark.proves("D-29")
@async_test(60)
async def test_another_caller_s_id_is_the_same_as_a_missing_one_on_every_route(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: say("ok"))
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB]) as gateway:
        owned = await _belongings(gateway, ALICE)
        for route in gateway.service.app.routes:
            if "{" not in route.path or route.roles or route.path in SHARED:
                continue
            body = BODIES.get((route.method, route.path), {} if route.method == "POST" else None)
            for query in ("", "?stream=true"):
                theirs = await gateway.send(
                    route.method, _filled(route, owned, is_missing=False) + query, body, key=BOB
                )
                missing = await gateway.send(
                    route.method, _filled(route, owned, is_missing=True) + query, body, key=BOB
                )
                assert theirs[0] == 404, route
                assert _neutral(theirs, owned) == _neutral(missing, owned)
        for values in owned.values():
            assert not any(value in repr(gateway.model_requests[1:]) for value in values.values())
        _, sessions = await gateway.send("GET", "/v1/sessions", key=ALICE)
        assert [each["id"] for each in sessions["data"]] == [owned.pop("/v1/sessions/")["id"]]
        for beginning, values in owned.items():
            assert (await gateway.send("GET", beginning + values["id"], key=ALICE))[0] == 200


@pytest.mark.proves("D-29")
@async_test(60)
async def test_another_caller_s_id_in_a_body_is_the_same_as_a_missing_one(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: say("ok"))
    async with run_gateway(tmp_path, model, keys=[ALICE, BOB]) as gateway:
        owned = await _belongings(gateway, ALICE)
        posts = [route.path for route in gateway.service.app.routes if route.method == "POST" and "{" not in route.path]
        assert set(REFERRING) <= set(posts)
        response, conversation = owned["/v1/responses/"]["id"], owned["/v1/conversations/"]["id"]
        for path in REFERRING:
            for name, value in (("previous_response_id", response), ("conversation", conversation)):
                body = {"model": MODEL, "input": "give me", name: value}
                theirs = await gateway.send("POST", path, body, key=BOB)
                missing = await gateway.send("POST", path, {**body, name: _missing(value)}, key=BOB)
                assert theirs[0] in (400, 404)
                assert _neutral(theirs, owned) == _neutral(missing, owned)
        assert len(gateway.model_requests) == 1


@pytest.mark.proves("D-29")
@async_test(60)
async def test_every_route_needs_a_key_and_the_operator_s_need_an_operator(tmp_path: Path) -> None:
    async with (
        FaultyMCPServer() as server,
        run_gateway(tmp_path, mcp={"sums": server}, keys=[BOB], admins=[ROOT]) as gateway,
    ):
        for route in gateway.service.app.routes:
            path = route.path
            for name, value in (("{name}", "sums"), ("{server}", "sums"), ("{id}", "x"), ("{item_id}", "y")):
                path = path.replace(name, value)
            body: Any = {} if route.method == "POST" else None
            status, answer = await gateway.send(route.method, path, body, key="hd-mallory")
            if route.is_public:
                expected = next((code for begin, code in WITHOUT_LOGINS.items() if route.path.startswith(begin)), 200)
                is_foreign_form = (route.method, route.path) == ("POST", LINK_PATH)
                assert status == (403 if is_foreign_form else expected), path
                continue
            # The Messages API and MCP have errors of their own form.
            assert status == 401
            error = answer["error"]
            assert error.get("code", error.get("type")) in ("invalid_api_key", "authentication_error", INVALID_REQUEST)
            if route.roles:
                assert (await gateway.send(route.method, path, body, key=BOB))[0] == 403
                # The operator is let in, whatever the route says of an empty body.
                assert (await gateway.send(route.method, path, body, key=ROOT))[0] not in (401, 403)

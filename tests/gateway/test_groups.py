"""Groups of callers: a scope, limits and a budget for all members together, and who makes their keys."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.config_entries import ASK, wait_asked
from gateway.identity_provider import Issuer, issuing
from gateway.running_gateway import MODEL, RunningGateway, gateway_config, parse_events, run_gateway
from gateway.test_keys_route import OPS, make
from gateway.test_shared_keys import shared

from holodeck.config.gateway_loader import load_gateway_file
from holodeck.gateway.auth.callers import hash_key
from holodeck.lib.errors import ConfigError
from holodeck.testing import ScriptedModel, say, spend, wait
from holodeck.testing.model.script import Turn

__all__ = ["shared"]

MILLION = 1_000_000
PRICE = {"input": 1.0, "output": 1.0}
KEYS = [
    {"name": OPS, "hash": hash_key(OPS), "role": "operator"},
    {"name": "alice", "hash": hash_key("alice"), "group": "research"},
    {"name": "bob", "hash": hash_key("bob"), "group": "research"},
    {"name": "carol", "hash": hash_key("carol")},
    {"name": "lead", "hash": hash_key("lead"), "group": "research", "role": "keys"},
]
CLAIM = {"allow_by_claim": {"claim": "groups"}, "role_by_scope": None}


@asynccontextmanager
async def serve_groups(
    folder: Path, groups: list[dict[str, Any]], turn: Turn | None = None, **config: Any
) -> AsyncIterator[tuple[RunningGateway, Issuer]]:
    """A gateway with `KEYS`, these groups, and tokens whose claim `groups` makes members."""
    model = ScriptedModel(lambda _: turn or [say("Hi."), spend(MILLION, 0)])
    async with issuing() as issuer, run_gateway(folder, model, price=PRICE, **config) as gateway:
        jwt = {**issuer.config, **CLAIM} if any("claim_values" in group for group in groups) else None
        assert await gateway.reload(keys=KEYS, groups=groups, jwt=jwt)
        yield gateway, issuer


async def ask(gateway: RunningGateway, key: str, path: str = "/v1/responses") -> tuple[int, str]:
    status, said = await gateway.send("POST", path, ASK, key=key)
    return status, "" if status == 200 else said["error"]["message"]


@async_test(60)
async def test_members_may_use_what_both_their_group_and_their_key_allow(tmp_path: Path) -> None:
    rehearsal = {"provider": "rehearsal"}
    models = [{"name": name, "model": rehearsal} for name in ("big", "small", "small-old")]
    group = {"name": "research", "allow": {"models": ["small*"]}, "claim_values": ["researchers", "guests"]}
    other = {"name": "sales", "allow": {"models": ["big"]}, "claim_values": ["sales"]}
    async with serve_groups(tmp_path, [group, other], models=models) as (gateway, issuer):
        await make(gateway, "narrow", group="research", allow={"models": ["*", "!*-old"]})

        async def list_models(key: str) -> list[str]:
            _, listed = await gateway.send("GET", "/v1/models", key=key)
            return [model["id"] for model in listed["data"]]

        narrow = await make(gateway, "wide", group="research", allow={"models": ["big", "small"]})
        for key, expected in (
            ("alice", ["small", "small-old"]),
            ("carol", ["big", "small", "small-old"]),
            (narrow, ["small"]),
            (issuer.token_with(groups=["guests"]), ["small", "small-old"]),
            (issuer.token_with(groups=["sales", "researchers"]), ["big", "small", "small-old"]),
            (issuer.token_with(groups=["others"]), []),
        ):
            assert await list_models(key) == expected, key


@async_test(60)
async def test_members_share_the_limits_of_their_group(tmp_path: Path) -> None:
    go = asyncio.Event()
    group = {"name": "research", "limits": {"in_flight": 2}, "claim_values": ["researchers"]}
    async with serve_groups(tmp_path, [group], [say("First."), wait(go), say(" Last.")]) as (gateway, issuer):
        token = issuer.token_with(groups=["researchers"])
        session, person = await gateway.http_client("alice"), await gateway.http_client(token)
        async with (
            session.post("/v1/responses", data=orjson.dumps(ASK | {"stream": True})) as stream,
            person.post("/v1/responses", data=orjson.dumps(ASK | {"stream": True})) as other,
        ):
            await wait_asked(gateway, 2)
            assert await ask(gateway, "bob") == (
                429,
                "The group 'research' is at its limit of 2 requests at once.",
            )
            go.set()
            assert (await ask(gateway, "carol"))[0] == 200
            for each in (stream, other):
                assert parse_events(await each.text())[-1]["type"] == "response.completed"
        assert (await ask(gateway, "bob"))[0] == 200
        assert await gateway.reload(groups=[group | {"limits": {"requests_per_minute": 2}}])
        assert [(await ask(gateway, key))[0] for key in ("alice", "bob", "alice", "carol")] == [200, 200, 429, 200]


@async_test(60)
async def test_members_share_the_tokens_of_their_group(tmp_path: Path) -> None:
    group = {"name": "research", "limits": {"tokens_per_minute": MILLION}}
    async with serve_groups(tmp_path, [group]) as (gateway, _):
        assert (await ask(gateway, "alice"))[0] == 200
        status, message = await ask(gateway, "bob", "/v1/chat/completions")
        assert (status, message) == (429, f"The group 'research' is at its limit of {MILLION} tokens a minute.")
        assert (await ask(gateway, "carol"))[0] == 200


@async_test(90)
async def test_members_share_the_budget_of_their_group_at_every_gateway(tmp_path: Path, shared: dict[str, Any]) -> None:
    group = {"name": "research", "budget": {"amount": 2.5, "period": "month"}, "claim_values": ["researchers"]}
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    async with (
        serve_groups(tmp_path / "one", [group], **shared) as (one, issuer),
        serve_groups(tmp_path / "other", [group], **shared) as (other, _),
    ):
        token = issuer.token_with(groups=["researchers"])
        assert [(await ask(one, key))[0] for key in ("alice", token)] == [200, 200]
        _, told = await one.send("GET", "/v1/budget", key="bob")
        assert (told["amount"], told["group"]["name"], told["group"]["left"]) == (None, "research", 0.5)
        assert (await ask(one, "bob"))[0] == 200
        for key, path in (("bob", "/v1/responses"), ("alice", "/v1/messages"), (token, "/v1/embeddings")):
            status, message = await ask(one, key, path)
            assert status == 429
            assert message.startswith("The group 'research' has spent its budget of 2.5 for this month.")
        while (await ask(other, "alice"))[0] == 200:
            # The other gateway sees what is stored within a second.
            pass
        assert (await ask(other, "alice"))[0] == 429
        assert (await ask(one, "carol"))[0] == 200
        _, groups = await other.send("GET", "/v1/groups", key=OPS)
        assert groups["data"][0]["spending"]["spent"] >= 3.0
        assert (await other.send("GET", "/v1/groups", key="alice"))[0] == 403


@async_test(60)
async def test_a_key_of_a_group_that_is_gone_is_refused_until_it_is_back(tmp_path: Path) -> None:
    async with serve_groups(tmp_path, [{"name": "research"}, {"name": "sales"}]) as (gateway, _):
        key = await make(gateway, "dave", group="sales")
        session = await gateway.http_client(key)
        async with session.get("/v1/models") as answer:
            assert answer.status == 200
        assert await gateway.reload(groups=[{"name": "research"}])
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=key)
        assert (status, said["error"]["code"]) == (401, "key_without_group")
        assert await gateway.reload(groups=[{"name": "research"}, {"name": "sales", "allow": {"models": ["x"]}}])
        status, said = await gateway.send("POST", "/v1/responses", ASK, key=key)
        assert (status, said["error"]["code"]) == (404, "model_not_found")
        status, said = await gateway.send("POST", "/v1/keys", {"name": "erin", "group": "sale"}, key=OPS)
        assert (status, said["error"]["param"]) == (400, "group")


@async_test(60)
async def test_the_role_keys_makes_and_changes_the_keys_of_its_group_and_no_others(tmp_path: Path) -> None:
    groups: list[dict[str, Any]] = [{"name": "research", "allow": {"models": [MODEL]}}, {"name": "sales"}]
    async with serve_groups(tmp_path, groups) as (gateway, _):
        for name, settings in (("stranger", {}), ("seller", {"group": "sales"}), ("boss", {"group": "research"})):
            await make(gateway, name, **settings, **({"role": "viewer"} if name == "boss" else {}))

        async def send(method: str, path: str, body: Any = None) -> tuple[int, Any]:
            return await gateway.send(method, path, body, key="lead")

        status, made = await send("POST", "/v1/keys", {"name": "mine", "budget": {"amount": 1, "period": "day"}})
        assert (status, made["group"], made["role"], made["made_by"]) == (200, "research", None, "key:lead")
        assert (await ask(gateway, made["key"]))[0] == 200
        _, listed = await send("GET", "/v1/keys")
        assert [each["name"] for each in listed["data"]] == ["alice", "bob", "lead", "boss", "mine"]
        assert listed["manages"] == "group"
        assert (await send("POST", "/v1/keys/update", {"name": "mine", "paused": True}))[0] == 200
        assert (await send("POST", "/v1/keys/rotate", {"name": "mine"}))[0] == 200
        for body in ({"role": "operator"}, {"role": "keys"}, {"group": "sales"}, {"group": "research"}):
            status, said = await send("POST", "/v1/keys", {"name": "more", **body})
            assert (status, said["error"]["param"]) == (403, next(iter(body))), body
            assert (await send("POST", "/v1/keys/update", {"name": "mine", **body}))[0] == 403
        assert (await send("POST", "/v1/keys/update", {"name": "mine", "group": None}))[0] == 403
        for name, expected in (("stranger", 404), ("seller", 404), ("carol", 404), ("boss", 403), ("alice", 409)):
            assert (await send("POST", "/v1/keys/update", {"name": name, "paused": True}))[0] == expected
            assert (await send("POST", "/v1/keys/rotate", {"name": name}))[0] == expected
            assert (await send("DELETE", f"/v1/keys/{name}"))[0] == expected, name
        assert (await send("DELETE", "/v1/keys/mine"))[0] == 200
        _, groups_listed = await send("GET", "/v1/groups")
        assert [each["name"] for each in groups_listed["data"]] == ["research"]
        for path in ("/v1/config", "/metrics", "/v1/runs?caller=alice", "/v1/usage?caller=alice"):
            assert (await send("GET", path))[0] == 403, path
        assert (await gateway.send("GET", "/v1/keys", key="alice"))[0] == 403


@async_test(60)
async def test_a_person_of_a_group_makes_keys_for_itself_that_share_its_budget_and_end(tmp_path: Path) -> None:
    group = {"name": "research", "claim_values": ["researchers"], "allow": {"models": [MODEL]}}
    limits = {"key_budget": {"amount": 1.5, "period": "month"}, "drain_seconds": 0}
    async with serve_groups(tmp_path, [group], limits=limits) as (gateway, issuer):
        anna = issuer.token_with(sub="anna", groups=["researchers"])
        ben = issuer.token_with(sub="ben", groups=["researchers"])
        stranger = issuer.token_with(sub="eve", groups=["others"])

        async def create(key: str, **body: Any) -> tuple[int, Any]:
            return await gateway.send("POST", "/v1/keys", body, key=key)

        status, made = await create(anna, name="laptop")
        assert (status, made["owner"], made["group"], made["made_by"]) == (200, "jwt:anna", "research", "jwt:anna")
        latest = datetime.now(UTC) + timedelta(days=91)
        assert datetime.fromisoformat(made["expires"]) < latest
        for key, names in ((anna, ["laptop"]), (ben, [])):
            _, listed = await gateway.send("GET", "/v1/keys", key=key)
            assert [each["name"] for each in listed["data"]] == names
            assert listed["manages"] == "own"
        for body in (
            {"name": "x", "role": "operator"},
            {"name": "x", "group": "research"},
            {"name": "x", "expires": "2999-01-01T00:00:00Z"},
        ):
            assert (await create(anna, **body))[0] in (400, 403), body
        for key in (stranger, made["key"], "alice"):
            assert (await create(key, name="x"))[0] == 403
        for path in ("rotate", "update"):
            sent = {"name": "laptop", **({"paused": True} if path == "update" else {})}
            assert (await gateway.send("POST", f"/v1/keys/{path}", sent, key=ben))[0] == 404
        assert (await gateway.send("POST", "/v1/keys/update", {"name": "laptop", "expires": None}, key=anna))[0] == 400
        # One budget for the person, whichever key it uses.
        _, second = await create(anna, name="desktop")
        assert [(await ask(gateway, key))[0] for key in (made["key"], second["key"])] == [200, 200]
        status, message = await ask(gateway, second["key"])
        assert (status, message[:41]) == (429, "The owner of this key has spent its budge")
        assert (await ask(gateway, anna))[0] == 429
        assert (await ask(gateway, ben))[0] == 200
        for number in range(18):
            assert (await create(anna, name=f"key-{number}"))[0] == 200
        status, said = await create(anna, name="one-more")
        assert (status, said["error"]["code"]) == (409, "too_many_keys")
        assert (await gateway.send("DELETE", "/v1/keys/laptop", key=anna))[0] == 200
        assert (await ask(gateway, made["key"]))[0] == 401


@async_test(60)
async def test_agents_that_mcp_clients_ask_are_charged_to_the_group(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("Hi."), spend(MILLION, 0)])
    (tmp_path / "helper.yaml").write_bytes(b"{}")
    async with model.serve() as scripted:
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url, "price": PRICE}
        helper = {"name": "helper", "model": llm, "instructions": "Help."}
        (tmp_path / "helper.yaml").write_bytes(orjson.dumps(helper))
        group = {"name": "research", "budget": {"amount": 0.5, "period": "month"}}
        agents = [{"file": "helper.yaml"}]
        async with serve_groups(tmp_path, [group], agents=agents) as (gateway, _):
            session = await gateway.http_client("alice")
            headers = {"accept": "application/json, text/event-stream"}
            call = {"name": "ask_helper", "arguments": {"question": "Go"}}
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            async with session.post("/mcp", json=body, headers=headers) as answer:
                assert "Hi." in await answer.text()
            assert (await ask(gateway, "bob"))[0] == 429


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"keys": [{**KEYS[1], "group": "reserch"}, KEYS[0]]}, "keys[0].group", "there is no group 'reserch'"),
        ({"groups": [{"name": "research"}, {"name": "research"}]}, "groups[1].name", "this name is taken above"),
        ({"groups": [{"name": "research", "claim_values": ["a"]}]}, "groups[0].claim_values", "no claim"),
        ({"keys": [{**KEYS[0], "role": "keys"}]}, "keys[0].role", "the role 'keys' is about the keys of a group"),
        (
            {"groups": [{"name": "research", "budget": {"amount": 1, "period": "day"}}]},
            "groups[0].budget",
            "a budget needs the price of every model",
        ),
    ],
)
def test_a_file_with_groups_that_do_not_fit_is_refused(
    tmp_path: Path, changes: dict[str, Any], key: str, message: str
) -> None:
    file = tmp_path / "gateway.yaml"
    usual = {**gateway_config("http://127.0.0.1:1/v1", {}), "groups": [{"name": "research"}]}
    file.write_bytes(orjson.dumps({**usual, **changes}))
    with pytest.raises(ConfigError) as refused:
        load_gateway_file(file, environ={})
    assert any(key == each.key and message in each.message for each in refused.value.problems), refused.value.problems

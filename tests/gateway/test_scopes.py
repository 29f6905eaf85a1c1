"""What `allow` of a key, and of tokens, means: patterns, refusals, and work that outlives a change of the file."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import orjson
import pytest
from async_tests import async_test
from cryptography.hazmat.primitives.asymmetric import ec
from durable.crash_cases import wait_ended, wait_model_requests
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.gateway.auth.callers import hash_key
from holodeck.gateway.auth.scope import CallerScope
from holodeck.models.callers import Scope
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait

KEY = "hd-alice"
SECONDS = 120.0
ISSUER = "https://issuer.example"
REHEARSAL = {"provider": "rehearsal"}
LOOPBACK = {"allow": True, "allow_private_hosts": ["127.0.0.0/8"], "allow_insecure_hosts": ["127.0.0.1"]}


async def ask(gateway: RunningGateway, key: str = KEY, **body: Any) -> tuple[int, Any]:
    return await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": "Go", **body}, key=key)


def offered_tools(gateway: RunningGateway) -> set[str]:
    return {tool["function"]["name"] for tool in gateway.model_requests[-1].get("tools", ())}


def last_result(gateway: RunningGateway) -> str:
    return str(gateway.model_requests[-1]["messages"][-1]["content"])


def declare(label: str, **more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": label, "require_approval": "never", **more}


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(
    ("patterns", "allowed"),
    [
        (None, ["big", "big-old", "small"]),
        ([], []),
        (["big"], ["big"]),
        (["big*"], ["big", "big-old"]),
        (["Big*"], []),
        (["big*", "!*-old"], ["big"]),
        (["!*-old", "big*"], ["big"]),
        (["!big", "big"], []),
        (["!big*"], ["small"]),
        (["sm?ll", "[b]ig"], ["big", "small"]),
    ],
    ids=str,
)
@async_test(30)
async def test_patterns_allow_and_deny_by_names_and_globs(
    tmp_path: Path, patterns: list[str] | None, allowed: list[str]
) -> None:
    models = [{"name": name, "model": REHEARSAL} for name in ("big", "big-old", "small")]
    async with run_gateway(tmp_path, models=models, scopes={KEY: {"models": patterns}}) as gateway:
        _, listed = await gateway.send("GET", "/v1/models", key=KEY)
        assert [model["id"] for model in listed["data"]] == allowed


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(
    ("patterns", "offered"),
    [
        (["one.add"], ["add"]),
        (["one.a[du]d*", "two.echo"], ["add", "audio", "two__echo"]),
        (["one.weird.*"], ["weird-name-x-y"]),
        # Its name has a dot, and does not begin with that of the tool `name`.
        (["one.name*"], []),
        (["*.echo", "!two.*"], ["echo"]),
        (["two.echo", "one.echo"], ["echo", "two__echo"]),
        ([], []),
    ],
    ids=str,
)
@async_test(30)
async def test_tools_are_matched_by_the_names_of_their_servers_under_unchanged_names(
    tmp_path: Path, patterns: list[str], offered: list[str]
) -> None:
    scopes: dict[str, dict[str, Any]] = {KEY: {"tools": patterns}, "hd-free": {}}
    async with FaultyMCPServer() as one, FaultyMCPServer() as two:
        model = ScriptedModel(lambda _: say("Hi."))
        async with run_gateway(tmp_path, model, mcp={"one": one, "two": two}, scopes=scopes) as gateway:
            await ask(gateway, key="hd-free")
            assert set(offered) < offered_tools(gateway)
            assert (await ask(gateway))[0] == 200
            assert offered_tools(gateway) == set(offered)


@pytest.mark.proves("D-39")
@async_test(30)
async def test_a_server_without_an_allowed_tool_is_neither_started_nor_required(tmp_path: Path) -> None:
    async with FaultyMCPServer() as one, FaultyMCPServer(down=True) as down:
        servers = [
            {"name": name, "description": "d", "transport": "http", "url": server.url, "required": True}
            for name, server in (("one", one), ("down", down))
        ]
        scopes = {KEY: {"tools": ["one.*"]}, "hd-denied": {"tools": ["!down.*"]}, "hd-free": {}}
        model = ScriptedModel(lambda _: say("Hi."))
        async with run_gateway(tmp_path, model, mcp_servers=servers, scopes=scopes) as gateway:
            assert [(await ask(gateway, key=key))[0] for key in scopes] == [200, 200, 503]


@pytest.mark.proves("D-39")
@async_test(30)
async def test_a_call_of_a_tool_out_of_scope_that_a_model_invents_is_refused_with_words(tmp_path: Path) -> None:
    model = ScriptedModel([call("echo", text="x"), call("one__echo", text="x")], say("Then not."))
    async with FaultyMCPServer() as one:
        async with run_gateway(tmp_path, model, mcp={"one": one}, scopes={KEY: {"tools": ["!one.echo"]}}) as gateway:
            assert (await ask(gateway))[0] == 200
            assert "There is no tool" in last_result(gateway)
        assert not one.calls()


@pytest.mark.proves("D-39", "D-26")
@async_test(30)
async def test_a_declared_server_out_of_scope_is_answered_as_one_that_does_not_exist(tmp_path: Path) -> None:
    async with FaultyMCPServer() as one, FaultyMCPServer() as two:
        scopes = {KEY: {"servers": ["one"], "tools": ["!one.echo"]}}
        model = ScriptedModel(lambda _: say("Hi."))
        async with run_gateway(tmp_path, model, mcp={"one": one, "two": two}, scopes=scopes) as gateway:
            status, hidden = await ask(gateway, tools=[declare("two")])
            _, unknown = await ask(gateway, tools=[declare("six")])
            assert (status, json.dumps(hidden).replace("two", "six")) == (400, json.dumps(unknown))
            _, answer = await ask(gateway, tools=[declare("one")])
            listed = {tool["name"] for tool in answer["output"][0]["tools"]}
            assert "add" in listed
            assert "echo" not in listed
        assert not two.requests


@pytest.mark.proves("D-39", "D-27")
@async_test(30)
async def test_the_label_of_a_server_by_url_must_be_in_scope(tmp_path: Path) -> None:
    async with FaultyMCPServer() as one, FaultyMCPServer() as mine:
        scopes = {KEY: {"servers": ["own-*"]}}
        model = ScriptedModel(lambda _: say("Hi."))
        async with run_gateway(tmp_path, model, mcp={"one": one}, scopes=scopes, request_servers=LOOPBACK) as gateway:
            texts = []
            for label in ("one", "six"):
                status, refused = await ask(gateway, tools=[declare(label, server_url=mine.url)])
                assert (status, refused["error"]["param"]) == (400, "tools[0].server_label")
                texts.append(refused["error"]["message"].replace(label, "LABEL"))
            assert texts[0] == texts[1]
            assert not mine.requests
            assert (await ask(gateway, tools=[declare("own-tools", server_url=mine.url)]))[0] == 200
            assert "own-tools__add" in offered_tools(gateway)


@pytest.mark.proves("D-39")
@async_test(30)
async def test_a_hosted_tool_whose_target_is_out_of_scope_is_refused_as_one_that_is_not_mapped(tmp_path: Path) -> None:
    scopes = {KEY: {"tools": ["!one.echo"]}}
    async with FaultyMCPServer() as one:
        mapped = {"web_search": "one.echo"}
        async with run_gateway(tmp_path, mcp={"one": one}, scopes=scopes, builtin_tools=mapped) as gateway:
            refused = await ask(gateway, tools=[{"type": "web_search"}])
        async with run_gateway(tmp_path, mcp={"one": one}, scopes=scopes) as gateway:
            assert await ask(gateway, tools=[{"type": "web_search"}]) == refused
        assert refused[0] == 400


@pytest.mark.proves("D-39", "D-19")
@pytest.mark.parametrize(
    ("patterns", "is_readable"),
    [(["files.resource_link"], True), (["files.*", "!files.read_resource"], False), (["files.*", "!*.read_*"], False)],
    ids=str,
)
@async_test(30)
async def test_resources_of_an_allowed_server_are_readable_unless_reading_is_denied(
    tmp_path: Path, patterns: list[str], is_readable: bool
) -> None:
    model = ScriptedModel(call("resource_link"), call("read_resource", uri="test://far.pdf"), say("Done."))
    async with FaultyMCPServer() as files:
        async with run_gateway(tmp_path, model, mcp={"files": files}, scopes={KEY: {"tools": patterns}}) as gateway:
            assert (await ask(gateway))[0] == 200
        assert any(one.method == "resources/read" for one in files.requests) == is_readable


@pytest.mark.proves("D-39", "D-16")
@async_test(30)
async def test_an_approved_call_of_a_tool_that_is_out_of_scope_since_is_refused_with_words(tmp_path: Path) -> None:
    model = ScriptedModel(call("echo", text="x"), say("Then not."))
    tools = [declare("one", require_approval="always")]
    async with FaultyMCPServer() as one:
        async with run_gateway(tmp_path, model, mcp={"one": one}, scopes={KEY: {}}) as gateway:
            _, first = await ask(gateway, tools=tools)
            approval = first["output"][-1]
            assert approval["type"] == "mcp_approval_request"
        answer = {"type": "mcp_approval_response", "approval_request_id": approval["id"], "approve": True}
        body = {"input": [answer], "previous_response_id": first["id"], "tools": tools}
        async with run_gateway(tmp_path, model, mcp={"one": one}, scopes={KEY: {"tools": ["!one.echo"]}}) as gateway:
            status, second = await ask(gateway, **body)
            assert status == 200, second
            assert "does not allow it any more" in json.dumps(second["output"][0])
            assert "does not allow it any more" in last_result(gateway)
        assert not one.calls()


@pytest.mark.proves("D-39")
@async_test(30)
async def test_an_agent_has_fewer_tools_for_a_caller_with_a_scope(tmp_path: Path) -> None:
    scopes: dict[str, dict[str, Any]] = {KEY: {"tools": ["own.add"]}, "hd-free": {}}
    async with FaultyMCPServer() as own, ScriptedModel(lambda _: say("Hi.")).serve() as scripted:
        server = {"name": "own", "type": "mcp", "description": "d", "transport": "http", "url": own.url}
        llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": scripted.url}
        agent = {"name": "helper", "model": llm, "instructions": "Help.", "tools": [server]}
        (tmp_path / "agent.yaml").write_bytes(orjson.dumps(agent))
        async with run_gateway(tmp_path, agents=[{"file": "agent.yaml"}], scopes=scopes) as gateway:
            gateway.model = scripted
            assert (await ask(gateway, model="helper"))[0] == 200
            assert offered_tools(gateway) == {"add"}
            await ask(gateway, model="helper", key="hd-free")
            assert offered_tools(gateway) > {"add", "echo"}


@async_test(30)
async def test_a_request_without_a_model_uses_the_only_one_in_scope(tmp_path: Path) -> None:
    models = [{"name": name, "model": REHEARSAL} for name in ("big", "small")]
    scopes = {KEY: {"models": ["small"]}, "hd-all": {"models": ["*"]}}
    async with run_gateway(tmp_path, models=models, scopes=scopes) as gateway:
        status, answer = await gateway.send("POST", "/v1/responses", {"input": "Go"}, key=KEY)
        assert (status, answer["model"]) == (200, "small")
        assert (await gateway.send("POST", "/v1/responses", {"input": "Go"}, key="hd-all"))[0] == 400


class Identity:
    """An identity provider: a key pair with its public half in a file."""

    def __init__(self, folder: Path) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        (folder / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "k1"}]}))
        self.config = {"issuer": ISSUER, "audience": "holodeck", "jwks_file": "jwks.json"}

    def create_token(self, **claims: Any) -> str:
        usual = {"iss": ISSUER, "aud": "holodeck", "sub": "alice", "exp": time.time() + 600}
        return jwt.encode({**usual, **claims}, self._key, algorithm="ES256", headers={"kid": "k1"})


BY_GROUP = {
    "claim": "groups",
    "values": {"readers": {"models": ["small"]}, "writers": {"models": ["big*", "!big-old"]}, "all of us": {}},
}


@pytest.mark.proves("D-39")
@pytest.mark.parametrize(
    ("config", "claims", "allowed"),
    [
        ({}, {}, ["big", "big-old", "small"]),
        ({"allow": {"models": ["small"]}}, {"groups": ["writers"]}, ["small"]),
        ({"allow_by_claim": BY_GROUP}, {"groups": ["readers", "others"]}, ["small"]),
        ({"allow_by_claim": BY_GROUP}, {"groups": ["writers", "readers"]}, ["big", "small"]),
        ({"allow_by_claim": BY_GROUP}, {"groups": "readers"}, ["small"]),
        ({"allow_by_claim": BY_GROUP}, {"groups": "readers writers"}, []),
        ({"allow_by_claim": BY_GROUP}, {"groups": ["all of us"]}, ["big", "big-old", "small"]),
        ({"allow_by_claim": BY_GROUP}, {"groups": {"readers": True}}, []),
        ({"allow_by_claim": BY_GROUP}, {}, []),
        ({"allow_by_claim": BY_GROUP, "allow": {"models": ["big"]}}, {}, ["big"]),
        ({"allow_by_claim": BY_GROUP, "allow": {"models": ["big"]}}, {"groups": ["readers"]}, ["small"]),
        ({"allow_by_claim": BY_GROUP | {"claim": "scope"}}, {"scope": "openid readers"}, ["small"]),
    ],
    ids=lambda value: json.dumps(value).replace(json.dumps(BY_GROUP), "BY_GROUP"),
)
@async_test(30)
async def test_a_token_may_use_what_its_claims_allow(
    tmp_path: Path, config: dict[str, Any], claims: dict[str, Any], allowed: list[str]
) -> None:
    identity = Identity(tmp_path)
    models = [{"name": name, "model": REHEARSAL} for name in ("big", "big-old", "small")]
    async with run_gateway(tmp_path, models=models, jwt=identity.config | config) as gateway:
        _, listed = await gateway.send("GET", "/v1/models", key=identity.create_token(**claims))
        assert [model["id"] for model in listed["data"]] == allowed


@pytest.mark.proves("D-39", "D-29")
@async_test(30)
async def test_an_old_key_is_accepted_until_it_expires(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    keys = [
        {
            "name": name,
            "hash": hash_key(f"new-{name}"),
            "old_hash": hash_key(f"old-{name}"),
            "old_hash_expires": expires,
        }
        for name, expires in (
            ("alice", (now + timedelta(hours=1)).isoformat()),
            ("bob", (now - timedelta(seconds=1)).isoformat()),
        )
    ]
    file = write_gateway_file(tmp_path, "http://127.0.0.1:9", keys=keys)
    async with run_gateway_process(file) as gateway:
        names = ("new-alice", "old-alice", "new-bob", "old-bob")
        headers = [{"authorization": f"Bearer {name}"} for name in names]
        statuses = [(await gateway.send("GET", "/v1/models", None, each))[0] for each in headers]
    assert statuses == [200, 200, 200, 401]


def key_entry(**allow: Any) -> dict[str, Any]:
    return {"keys": [{"name": "alice", "hash": hash_key(KEY), "allow": allow}]}


@pytest.mark.proves("D-39", "D-32")
@pytest.mark.parametrize(
    ("narrowed", "message"),
    [
        ({"models": ["other"]}, "The model 'demo' does not exist here. There are none."),
        ({"servers": []}, "There is no MCP server 'one' here. There are none."),
        ({"tools": ["one.echo"]}, ""),
    ],
    ids=["model", "server", "tool"],
)
@async_test(SECONDS)
async def test_a_durable_run_goes_on_with_the_scope_that_its_key_has_now(
    tmp_path: Path, narrowed: dict[str, Any], message: str
) -> None:
    never = asyncio.Event()
    model = ScriptedModel(call("echo", text="x"), [wait(never)], [call("add", a=1, b=2)], say("Done."))
    async with FaultyMCPServer() as one, model.serve() as scripted:
        server = {"name": "one", "description": "d", "transport": "http", "url": one.url}
        more: dict[str, Any] = {"mcp_servers": [server], "background": {"durable": True}}
        headers = {"authorization": f"Bearer {KEY}"}
        async with run_gateway_process(write_gateway_file(tmp_path, scripted.url, **key_entry(), **more)) as first:
            body = {"model": "demo", "input": "hi", "background": True, "tools": [declare("one")]}
            _, begun, _ = await first.send("POST", "/v1/responses", body, headers)
            await wait_model_requests(scripted, 2)
            first.stop(signal.SIGKILL)
            await first.wait_exit()
        file = write_gateway_file(tmp_path, scripted.url, **key_entry(**narrowed), **more)
        async with run_gateway_process(file) as second:
            second.session.headers.update(headers)
            found = await wait_ended(second, begun["id"])
        assert not one.calls("add")
    if message:
        assert found["error"]["message"] == f"The response could not be gone on with: {message}"
        assert len(scripted.received) == 2
    else:
        assert found["status"] == "completed"
        offered = [{tool["function"]["name"] for tool in sent.json["tools"]} for sent in scripted.received]
        assert ["add" in names for names in offered] == [True, True, False, False]


@pytest.mark.proves("D-39", "D-32")
@pytest.mark.parametrize("is_narrowed", [False, True], ids=["kept", "narrowed"])
@async_test(SECONDS)
async def test_a_durable_run_of_a_token_has_the_scope_that_its_groups_have_now(
    tmp_path: Path, is_narrowed: bool
) -> None:
    identity = Identity(tmp_path)
    allowed: dict[str, Any] = {"groups": ["writers"]}

    def config(*models: str) -> dict[str, Any]:
        by_claim = {"claim": "groups", "values": {"writers": {"models": list(models)}, "others": {"models": ["x"]}}}
        return {"jwt": identity.config | {"allow_by_claim": by_claim}, "background": {"durable": True}}

    async with ScriptedModel([wait(asyncio.Event())], say("Hi.")).serve() as model:
        headers = {"authorization": f"Bearer {identity.create_token(**allowed)}"}
        async with run_gateway_process(write_gateway_file(tmp_path, model.url, **config("demo"))) as first:
            body = {"model": "demo", "input": "hi", "background": True}
            status, begun, _ = await first.send("POST", "/v1/responses", body, headers)
            assert status == 200, begun
            await wait_model_requests(model, 1)
            first.stop(signal.SIGKILL)
            await first.wait_exit()
        narrowed = config("other") if is_narrowed else config("demo", "more")
        async with run_gateway_process(write_gateway_file(tmp_path, model.url, **narrowed)) as second:
            second.session.headers.update(headers)
            found = await wait_ended(second, begun["id"])
        assert (found["status"], len(model.received)) == (("failed", 1) if is_narrowed else ("completed", 2))


@pytest.mark.proves("D-39")
@async_test(30)
async def test_a_call_that_waited_for_an_output_of_the_client_is_refused_once_it_is_out_of_scope(
    tmp_path: Path,
) -> None:
    model = ScriptedModel([call("get_time"), call("echo", text="x")], say("Then not."))
    get_time = {"type": "function", "name": "get_time", "parameters": {"type": "object", "properties": {}}}
    async with FaultyMCPServer() as one:
        async with run_gateway(tmp_path, model, mcp={"one": one}, scopes={KEY: {}}) as gateway:
            _, first = await ask(gateway, tools=[get_time])
            asked = next(item for item in first["output"] if item["type"] == "function_call")
            assert asked["name"] == "get_time"
            assert not one.calls()
        output = {"type": "function_call_output", "call_id": asked["call_id"], "output": "noon"}
        body = {"input": [output], "previous_response_id": first["id"], "tools": [get_time]}
        async with run_gateway(tmp_path, model, mcp={"one": one}, scopes={KEY: {"servers": []}}) as gateway:
            status, second = await ask(gateway, **body)
            assert (status, second["status"]) == (200, "completed")
            results = [
                message["content"] for message in gateway.model_requests[-1]["messages"] if message["role"] == "tool"
            ]
            assert "noon" in results
            assert any("does not allow it any more" in result for result in results)
        assert not one.calls()


@pytest.mark.proves("D-39")
@async_test(30)
async def test_a_background_response_has_the_scope_of_its_caller(tmp_path: Path) -> None:
    models = [{"name": name, "model": REHEARSAL} for name in ("big", "small")]
    scopes = {KEY: {"models": ["small"]}}
    async with run_gateway(tmp_path, models=models, scopes=scopes) as gateway:
        assert (await ask(gateway, model="big", background=True))[0] == 404
        assert (await ask(gateway, model="small", background=True))[0] == 200


@pytest.mark.proves("D-39")
def test_scopes_are_described_alike_only_where_they_are_compiled_from_the_same() -> None:
    one, two = Scope(tools=["a.*"]), Scope(servers=["a", "b"])
    both = CallerScope.of([one]).within(CallerScope.of([two]))
    scopes = [CallerScope.everything(), CallerScope.of([]), CallerScope.of([one]), CallerScope.of([two]), both]
    scopes += [CallerScope.of([one, two]), both.within(CallerScope.of([Scope(agents=[])]))]
    assert len({scope.digest() for scope in scopes}) == len(scopes)
    assert CallerScope.of([two]).within(CallerScope.of([one])).digest() == both.digest()
    assert CallerScope.of([Scope(tools=["a.*"])]).digest() == scopes[2].digest()

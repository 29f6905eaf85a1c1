"""An approval is for one call of one server and is used once: in a chain, in a conversation, or with nothing kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.changing_server import ChangingServer
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from openai import AsyncOpenAI, BadRequestError

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

GO = {"role": "user", "content": "Go"}


def _declared(label: str = "sums", **more: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": label, "require_approval": "always", **more}


async def _ask(stand: RunningGateway, given: Any, *tools: dict[str, Any], **body: Any) -> dict[str, Any]:
    tools = tools or (_declared(),)
    status, answer = await stand.send("POST", "/v1/responses", {"model": MODEL, "input": given, "tools": tools, **body})
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


def _types(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def _answer(response: dict[str, Any], *, approve: bool, **more: Any) -> dict[str, Any]:
    request_id = response["output"][-1]["id"]
    return {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": approve, **more}


def _told(stand: RunningGateway) -> list[str]:
    """What the model was last sent, message by message: a tool's words stand behind its call."""
    return [message["content"] or message["role"] for message in stand.model_requests[-1]["messages"]]


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_in_a_conversation_a_call_is_approved_by_the_next_request_and_runs_once(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        _, conversation = await stand.send("POST", "/v1/conversations", {})
        here = {"conversation": conversation["id"]}
        first = await _ask(stand, "Go", **here)
        assert _types(first) == ["mcp_list_tools", "mcp_approval_request"]
        second = await _ask(stand, [_answer(first, approve=True)], **here)
        assert _types(second) == ["mcp_call", "message"]
        assert _types(await _ask(stand, "Thanks", **here)) == ["message"]
        assert len(server.calls("add")) == 1
        assert _told(stand) == ["Go", "assistant", "3", "3.", "Thanks"]


@pytest.mark.proves("D-26", "D-16")
@pytest.mark.parametrize(
    ("given", "words"),
    [({"approve": False, "reason": "too large"}, "did not approve"), (None, "went on without approving")],
)
@async_test(30)
async def test_in_a_conversation_a_call_that_was_not_approved_is_over(
    tmp_path: Path, given: dict[str, Any] | None, words: str
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Then not."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        _, conversation = await stand.send("POST", "/v1/conversations", {})
        here = {"conversation": conversation["id"]}
        first = await _ask(stand, "Go", **here)
        await _ask(stand, "Go on" if given is None else [_answer(first, **given)], **here)
        await _ask(stand, "Bye", **here)
        assert [word for word in _told(stand) if words in word] == [_told(stand)[2]]
        late = {"model": MODEL, "input": [_answer(first, approve=True)], "tools": [_declared()], **here}
        status, error = await stand.send("POST", "/v1/responses", late)
        assert (status, error["error"]["code"]) == (400, "approval_request_not_found")
        assert not server.calls()


@pytest.mark.proves("D-26", "D-16")
@pytest.mark.parametrize("has_ids", [True, False])
@async_test(30)
async def test_a_client_that_sends_everything_again_has_no_call_made_again(tmp_path: Path, has_ids: bool) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), say("You are welcome."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await _ask(stand, [GO], store=False)
        given = [GO, *first["output"], _answer(first, approve=True)]
        second = await _ask(stand, given, store=False)
        made = [item if has_ids else {**item, "id": None} for item in second["output"]]
        given += [*made, {"role": "user", "content": "Thanks"}]
        assert _types(await _ask(stand, given, store=False)) == ["message"]
        assert len(server.calls("add")) == 1
        assert _told(stand) == ["Go", "assistant", "3", "3.", "Thanks"]


@pytest.mark.proves("D-26")
@async_test(30)
async def test_a_refusal_of_a_client_that_keeps_nothing_here_stands_behind_its_call(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Then not."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await _ask(stand, [GO], store=False)
        assert _types(await _ask(stand, [GO, *first["output"], _answer(first, approve=False)], store=False)) == [
            "message"
        ]
        assert [word.partition(";")[0] for word in _told(stand)] == [
            "Go",
            "assistant",
            "Error: The person did not approve this call",
        ]
        assert not server.calls()


@pytest.mark.proves("D-26", "D-27")
@pytest.mark.parametrize("store", [True, False])
@async_test(30)
async def test_an_approval_for_a_tool_of_one_server_runs_no_tool_of_that_name_at_another(
    tmp_path: Path, store: bool
) -> None:
    model = ScriptedModel(call("mine__add", a=1, b=2), say("3."))
    rules = {"allow": True, "allow_private_hosts": ["127.0.0.1"], "allow_insecure_hosts": ["127.0.0.1"]}
    async with (
        FaultyMCPServer() as sums,
        FaultyMCPServer() as other,
        run_gateway(tmp_path, model, mcp={"sums": sums}, request_servers=rules) as stand,
    ):
        mine = _declared("mine", server_url=other.url)
        first = await _ask(stand, [GO], mine, store=store)
        assert first["output"][-1]["server_label"] == "mine"
        yes = _answer(first, approve=True)
        given = [yes] if store else [GO, *first["output"], yes]
        before = {"previous_response_id": first["id"]} if store else {}
        second = await _ask(stand, given, _declared(), mine, store=store, **before)
        (made,) = [item for item in second["output"] if item["type"] == "mcp_call"]
        assert (made["server_label"], made["output"]) == ("mine", "3")
        assert (len(other.calls("add")), len(sums.calls("add"))) == (1, 0)


@pytest.mark.proves("D-26")
@pytest.mark.parametrize("store", [True, False])
@async_test(30)
async def test_a_person_may_approve_and_say_more_and_the_result_still_stands_behind_its_call(
    tmp_path: Path, store: bool
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await _ask(stand, [GO], store=store)
        given = [_answer(first, approve=True), {"role": "user", "content": "And be quick"}]
        given = given if store else [GO, *first["output"], *given]
        before = {"previous_response_id": first["id"]} if store else {}
        assert _types(await _ask(stand, given, store=store, **before)) == ["mcp_call", "message"]
        assert _told(stand) == ["Go", "assistant", "3", "And be quick"]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-26")
@pytest.mark.parametrize("approve", [True, False])
@async_test(30)
async def test_a_background_response_goes_on_from_an_approval_as_well(tmp_path: Path, approve: bool) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await _ask(stand, [GO], store=True)
        given = [GO, *first["output"], _answer(first, approve=approve)]
        queued = await _ask(stand, given, background=True)
        events = await stand.stream(f"/v1/responses/{queued['id']}?stream=true")
        assert events[-1]["response"]["status"] == "completed"
        assert _told(stand)[1:] == ["assistant", _told(stand)[2]]
        assert len(server.calls("add")) == approve


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_two_calls_may_be_approved_one_by_one_and_the_model_hears_of_both(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4)], say("3."), say("3 and 7."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await _ask(stand, "Go")
        *_, one, two = first["output"]
        for asked in (one, two):
            yes = {"type": "mcp_approval_response", "approval_request_id": asked["id"], "approve": True}
            assert _types(await _ask(stand, [yes], previous_response_id=first["id"])) == ["mcp_call", "message"]
        assert _told(stand) == ["Go", "assistant", "3", "7"]
        assert len(server.calls("add")) == 2


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_an_approved_call_whose_tool_is_gone_shows_as_a_failed_call_of_its_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("wipe"), say("It is gone."), say("Done."))
    entry = {"name": "sums", "type": "mcp", "description": "Sums.", "transport": "http"}
    async with ChangingServer("wipe", "other").serve() as server:
        servers = [entry | {"url": server.url}]
        async with run_gateway(tmp_path, model, mcp_servers=servers, admins=["root"]) as stand:

            async def ask(given: Any, **more: Any) -> dict[str, Any]:
                body = {"model": MODEL, "input": given, "tools": [_declared()], **more}
                status, answer = await stand.send("POST", "/v1/responses", body, key="root")
                assert status == 200, answer
                return dict(answer)

            async def have(*tools: str) -> None:
                server.tools[:] = tools
                status, _ = await stand.send("POST", "/v1/mcp/servers/sums/refresh", {}, key="root")
                assert status == 200

            first = await ask("Go")
            before = {"previous_response_id": first["id"]}
            await have("other")
            second = await ask([_answer(first, approve=True)], **before)
            failed = second["output"][0]
            assert (failed["type"], failed["status"], failed["server_label"], failed["name"]) == (
                *("mcp_call", "failed", "sums", "wipe"),
            )
            assert failed["approval_request_id"] == first["output"][-1]["id"]
            await have("wipe")
            third = await ask([_answer(first, approve=True)], **before)
            assert (third["output"][0]["type"], third["output"][0]["output"]) == ("mcp_call", "done")


@pytest.mark.proves("D-26", "D-37")
@async_test(30)
async def test_an_approved_call_goes_to_its_server_when_another_one_has_the_name_by_then(tmp_path: Path) -> None:
    model = ScriptedModel(call("wipe"), say("Done."))
    entry = {"type": "mcp", "description": "d", "transport": "http"}
    async with ChangingServer("other").serve() as early, ChangingServer("wipe").serve() as late:
        servers = [entry | {"name": "early", "url": early.url}, entry | {"name": "late", "url": late.url}]
        async with run_gateway(tmp_path, model, mcp_servers=servers, admins=["root"]) as stand:

            async def ask(given: Any, **more: Any) -> dict[str, Any]:
                tools = [{"type": "mcp", "server_label": label} for label in ("early", "late")]
                body = {"model": MODEL, "input": given, "tools": tools, **more}
                return dict((await stand.send("POST", "/v1/responses", body, key="root"))[1])

            first = await ask("Go")
            early.tools.append("wipe")
            await stand.send("POST", "/v1/mcp/servers/early/refresh", {}, key="root")
            second = await ask([_answer(first, approve=True)], previous_response_id=first["id"])
            assert (second["output"][0]["server_label"], second["output"][0]["output"]) == ("late", "done")
            names = [tool["function"]["name"] for tool in stand.model_requests[-1]["tools"]]
            assert names == ["other", "wipe", "late__wipe"]
        assert (early.calls, late.calls) == ([], ["wipe"])


@pytest.mark.proves("D-26", "D-29")
@async_test(30)
async def test_an_approval_is_valid_only_for_the_exact_request_of_the_same_caller(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    keys = ("alice", "bob")
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}, keys=keys) as stand:

        async def send(given: Any, key: str = "alice") -> tuple[int, Any]:
            body = {"model": MODEL, "input": given, "tools": [_declared()], "store": False}
            return await stand.send("POST", "/v1/responses", body, key=key)

        _, first = await send([GO])
        listed, asked = first["output"]
        yes = _answer(first, approve=True)
        made_up = {**asked, "id": "mcpr_1"}
        for changed in (
            {"arguments": '{"a":1,"b":2000}'},
            {"arguments": '{"a":1,"b":"2"}'},
            {"arguments": '{"a":1,"b":2.0000000000000000001}'},
            {"name": "echo"},
            {"server_label": "other"},
        ):
            status, error = await send([GO, listed, {**asked, **changed}, yes])
            assert (status, error["error"]["code"]) == (400, "approval_request_not_found"), changed
        status, error = await send([GO, listed, made_up, {**yes, "approval_request_id": "mcpr_1"}])
        assert (status, error["error"]["code"]) == (400, "approval_request_not_found")
        status, error = await send([GO, listed, asked, yes], "bob")
        assert (status, error["error"]["code"]) == (400, "approval_request_not_found")
        assert not server.calls()
        status, _ = await send([GO, listed, {**asked, "arguments": '{ "b": 2, "a": 1 }'}, yes])
        assert (status, len(server.calls("add"))) == (200, 1), "spaces are no change"


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_a_history_without_what_came_of_an_approved_call_can_be_gone_on_with(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), say("You are welcome."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await _ask(stand, [GO])
        given = [GO, *first["output"], _answer(first, approve=True)]
        second = await _ask(stand, given)
        assert _types(second) == ["mcp_call", "message"]
        given += [second["output"][-1], {"role": "user", "content": "Thanks"}]
        await _ask(stand, given)
        assert _told(stand) == ["Go", "assistant", "3", "3.", "Thanks"], "it is known here"
        assert len(server.calls("add")) == 1


@asynccontextmanager
async def _losing(url: str, words: bytes) -> AsyncIterator[str]:
    """A way to a gateway on which the answer to the first request with these words is lost."""
    host, port = url.removeprefix("http://").split(":")
    lost: list[bytes] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(host, int(port))
        asked = b""
        try:
            while words not in asked or len(asked) < _size(asked):
                asked += (piece := await reader.read(65536))
                if not piece:
                    return
            ours.write(asked)
            answer = await theirs.readuntil(b"\r\n\r\n")
            answer += await theirs.readexactly(_size(answer) - len(answer))
            if lost:
                writer.write(answer)
                await writer.drain()
            lost.append(answer)
        finally:
            ours.close()
            writer.close()

    async with await asyncio.start_server(carry, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def _size(message: bytes) -> int:
    """Of an HTTP message with its head."""
    head, _, _ = message.partition(b"\r\n\r\n")
    (length,) = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(head) + 4 + int(length)


@pytest.mark.proves("D-31", "D-16", "D-26")
@async_test(30)
async def test_a_stock_client_that_repeats_an_approval_by_itself_is_told_and_stops(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as stand:
        first = await _ask(stand, "Go")
        yes: Any = _answer(first, approve=True)
        async with (
            _losing(stand.url, b"mcp_approval_response") as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="hd-anybody", max_retries=5) as client,
        ):
            tools: Any = [_declared()]
            with pytest.raises(BadRequestError) as refused:
                await client.responses.create(model=MODEL, input=[yes], tools=tools, previous_response_id=first["id"])
        assert refused.value.code == "approval_request_used"
        assert len(server.calls("add")) == 1
        assert isinstance(refused.value.body, dict)
        taker = refused.value.body["message"].partition("the response ")[2].split()[0]
        _, kept = await stand.send("GET", f"/v1/responses/{taker}")
        assert _types(kept) == ["mcp_call", "message"], "the answer that was lost can be looked up"

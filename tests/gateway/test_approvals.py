"""An approval is for one call of one server and is used once: in a chain, in a conversation, or unstored."""

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


async def _ask(gateway: RunningGateway, input_items: Any, *tools: dict[str, Any], **body: Any) -> dict[str, Any]:
    tools = tools or (_declared(),)
    status, answer = await gateway.send(
        "POST", "/v1/responses", {"model": MODEL, "input": input_items, "tools": tools, **body}
    )
    assert status == 200, answer
    assert isinstance(answer, dict)
    return answer


def _types(response: dict[str, Any]) -> list[str]:
    return [item["type"] for item in response["output"]]


def _answer(response: dict[str, Any], *, approve: bool, **more: Any) -> dict[str, Any]:
    request_id = response["output"][-1]["id"]
    return {"type": "mcp_approval_response", "approval_request_id": request_id, "approve": approve, **more}


def _last_message_texts(gateway: RunningGateway) -> list[str]:
    """The messages of the last model request: the content of each, or its role if it has none."""
    return [message["content"] or message["role"] for message in gateway.model_requests[-1]["messages"]]


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_in_a_conversation_a_call_is_approved_by_the_next_request_and_runs_once(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, conversation = await gateway.send("POST", "/v1/conversations", {})
        here = {"conversation": conversation["id"]}
        first = await _ask(gateway, "Go", **here)
        assert _types(first) == ["mcp_list_tools", "mcp_approval_request"]
        second = await _ask(gateway, [_answer(first, approve=True)], **here)
        assert _types(second) == ["mcp_call", "message"]
        assert _types(await _ask(gateway, "Thanks", **here)) == ["message"]
        assert len(server.calls("add")) == 1
        assert _last_message_texts(gateway) == ["Go", "assistant", "3", "3.", "Thanks"]


@pytest.mark.proves("D-26", "D-16")
@pytest.mark.parametrize(
    ("decision", "text"),
    [({"approve": False, "reason": "too large"}, "did not approve"), (None, "went on without approving")],
)
@async_test(30)
async def test_in_a_conversation_a_call_that_was_not_approved_cannot_be_approved_later(
    tmp_path: Path, decision: dict[str, Any] | None, text: str
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Then not."), say("Bye."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        _, conversation = await gateway.send("POST", "/v1/conversations", {})
        here = {"conversation": conversation["id"]}
        first = await _ask(gateway, "Go", **here)
        await _ask(gateway, "Go on" if decision is None else [_answer(first, **decision)], **here)
        await _ask(gateway, "Bye", **here)
        assert [message for message in _last_message_texts(gateway) if text in message] == [
            _last_message_texts(gateway)[2]
        ]
        late = {"model": MODEL, "input": [_answer(first, approve=True)], "tools": [_declared()], **here}
        status, error = await gateway.send("POST", "/v1/responses", late)
        assert (status, error["error"]["code"]) == (400, "approval_request_not_found")
        assert not server.calls()


@pytest.mark.proves("D-26", "D-16")
@pytest.mark.parametrize("has_ids", [True, False])
@async_test(30)
async def test_a_client_that_resends_its_history_does_not_run_an_approved_call_again(
    tmp_path: Path, has_ids: bool
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), say("You are welcome."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, [GO], store=False)
        input_items = [GO, *first["output"], _answer(first, approve=True)]
        second = await _ask(gateway, input_items, store=False)
        made = [item if has_ids else {**item, "id": None} for item in second["output"]]
        input_items += [*made, {"role": "user", "content": "Thanks"}]
        assert _types(await _ask(gateway, input_items, store=False)) == ["message"]
        assert len(server.calls("add")) == 1
        assert _last_message_texts(gateway) == ["Go", "assistant", "3", "3.", "Thanks"]


@pytest.mark.proves("D-26")
@async_test(30)
async def test_a_refusal_in_an_unstored_request_is_sent_to_the_model_as_the_output_of_its_call(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Then not."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, [GO], store=False)
        assert _types(await _ask(gateway, [GO, *first["output"], _answer(first, approve=False)], store=False)) == [
            "message"
        ]
        assert [message.partition(";")[0] for message in _last_message_texts(gateway)] == [
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
        run_gateway(tmp_path, model, mcp={"sums": sums}, request_servers=rules) as gateway,
    ):
        mine = _declared("mine", server_url=other.url)
        first = await _ask(gateway, [GO], mine, store=store)
        assert first["output"][-1]["server_label"] == "mine"
        yes = _answer(first, approve=True)
        input_items = [yes] if store else [GO, *first["output"], yes]
        before = {"previous_response_id": first["id"]} if store else {}
        second = await _ask(gateway, input_items, _declared(), mine, store=store, **before)
        (made,) = [item for item in second["output"] if item["type"] == "mcp_call"]
        assert (made["server_label"], made["output"]) == ("mine", "3")
        assert (len(other.calls("add")), len(sums.calls("add"))) == (1, 0)


@pytest.mark.proves("D-26")
@pytest.mark.parametrize("store", [True, False])
@async_test(30)
async def test_an_approval_can_come_with_a_message_and_the_output_still_follows_its_call(
    tmp_path: Path, store: bool
) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, [GO], store=store)
        input_items = [_answer(first, approve=True), {"role": "user", "content": "And be quick"}]
        input_items = input_items if store else [GO, *first["output"], *input_items]
        before = {"previous_response_id": first["id"]} if store else {}
        assert _types(await _ask(gateway, input_items, store=store, **before)) == ["mcp_call", "message"]
        assert _last_message_texts(gateway) == ["Go", "assistant", "3", "And be quick"]
        assert len(server.calls("add")) == 1


@pytest.mark.proves("D-26")
@pytest.mark.parametrize("approve", [True, False])
@async_test(30)
async def test_a_background_response_continues_from_an_approval_response(tmp_path: Path, approve: bool) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Done."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, [GO], store=True)
        input_items = [GO, *first["output"], _answer(first, approve=approve)]
        queued = await _ask(gateway, input_items, background=True)
        events = await gateway.stream(f"/v1/responses/{queued['id']}?stream=true")
        assert events[-1]["response"]["status"] == "completed"
        assert _last_message_texts(gateway)[1:] == ["assistant", _last_message_texts(gateway)[2]]
        assert len(server.calls("add")) == approve


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_two_calls_can_be_approved_one_by_one_and_the_model_gets_both_outputs(tmp_path: Path) -> None:
    model = ScriptedModel([call("add", a=1, b=2), call("add", a=3, b=4)], say("3."), say("3 and 7."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, "Go")
        *_, one, two = first["output"]
        for approval_request in (one, two):
            yes = {"type": "mcp_approval_response", "approval_request_id": approval_request["id"], "approve": True}
            assert _types(await _ask(gateway, [yes], previous_response_id=first["id"])) == ["mcp_call", "message"]
        assert _last_message_texts(gateway) == ["Go", "assistant", "3", "7"]
        assert len(server.calls("add")) == 2


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_an_approved_call_of_a_removed_tool_is_a_failed_call_of_its_server(tmp_path: Path) -> None:
    model = ScriptedModel(call("wipe"), say("It is gone."), say("Done."))
    entry = {"name": "sums", "type": "mcp", "description": "Sums.", "transport": "http"}
    async with ChangingServer("wipe", "other").serve() as server:
        servers = [entry | {"url": server.url}]
        async with run_gateway(tmp_path, model, mcp_servers=servers, admins=["root"]) as gateway:

            async def ask(input_items: Any, **more: Any) -> dict[str, Any]:
                body = {"model": MODEL, "input": input_items, "tools": [_declared()], **more}
                status, answer = await gateway.send("POST", "/v1/responses", body, key="root")
                assert status == 200, answer
                return dict(answer)

            async def have(*tools: str) -> None:
                server.tools[:] = tools
                status, _ = await gateway.send("POST", "/v1/mcp/servers/sums/refresh", {}, key="root")
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
async def test_an_approved_call_goes_to_its_server_after_another_server_adds_the_same_tool_name(tmp_path: Path) -> None:
    model = ScriptedModel(call("wipe"), say("Done."))
    entry = {"type": "mcp", "description": "d", "transport": "http"}
    async with ChangingServer("other").serve() as early, ChangingServer("wipe").serve() as late:
        servers = [entry | {"name": "early", "url": early.url}, entry | {"name": "late", "url": late.url}]
        async with run_gateway(tmp_path, model, mcp_servers=servers, admins=["root"]) as gateway:

            async def ask(input_items: Any, **more: Any) -> dict[str, Any]:
                tools = [{"type": "mcp", "server_label": label} for label in ("early", "late")]
                body = {"model": MODEL, "input": input_items, "tools": tools, **more}
                return dict((await gateway.send("POST", "/v1/responses", body, key="root"))[1])

            first = await ask("Go")
            early.tools.append("wipe")
            await gateway.send("POST", "/v1/mcp/servers/early/refresh", {}, key="root")
            second = await ask([_answer(first, approve=True)], previous_response_id=first["id"])
            assert (second["output"][0]["server_label"], second["output"][0]["output"]) == ("late", "done")
            names = [tool["function"]["name"] for tool in gateway.model_requests[-1]["tools"]]
            assert names == ["other", "wipe", "late__wipe"]
        assert (early.calls, late.calls) == ([], ["wipe"])


@pytest.mark.proves("D-26", "D-29")
@async_test(30)
async def test_an_approval_is_valid_only_for_the_exact_request_of_the_same_caller(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    keys = ("alice", "bob")
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}, keys=keys) as gateway:

        async def send(input_items: Any, key: str = "alice") -> tuple[int, Any]:
            body = {"model": MODEL, "input": input_items, "tools": [_declared()], "store": False}
            return await gateway.send("POST", "/v1/responses", body, key=key)

        _, first = await send([GO])
        listed, approval_request = first["output"]
        yes = _answer(first, approve=True)
        made_up = {**approval_request, "id": "mcpr_1"}
        for changed in (
            {"arguments": '{"a":1,"b":2000}'},
            {"arguments": '{"a":1,"b":"2"}'},
            {"arguments": '{"a":1,"b":2.0000000000000000001}'},
            {"name": "echo"},
            {"server_label": "other"},
        ):
            status, error = await send([GO, listed, {**approval_request, **changed}, yes])
            assert (status, error["error"]["code"]) == (400, "approval_request_not_found"), changed
        status, error = await send([GO, listed, made_up, {**yes, "approval_request_id": "mcpr_1"}])
        assert (status, error["error"]["code"]) == (400, "approval_request_not_found")
        status, error = await send([GO, listed, approval_request, yes], "bob")
        assert (status, error["error"]["code"]) == (400, "approval_request_not_found")
        assert not server.calls()
        status, _ = await send([GO, listed, {**approval_request, "arguments": '{ "b": 2, "a": 1 }'}, yes])
        assert (status, len(server.calls("add"))) == (200, 1), "spaces are no change"


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_a_history_without_the_output_of_an_approved_call_can_be_continued(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."), say("You are welcome."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, [GO])
        input_items = [GO, *first["output"], _answer(first, approve=True)]
        second = await _ask(gateway, input_items)
        assert _types(second) == ["mcp_call", "message"]
        input_items += [second["output"][-1], {"role": "user", "content": "Thanks"}]
        await _ask(gateway, input_items)
        assert _last_message_texts(gateway) == ["Go", "assistant", "3", "3.", "Thanks"], (
            "the gateway has stored the output"
        )
        assert len(server.calls("add")) == 1


@asynccontextmanager
async def _lossy_proxy(url: str, marker: bytes) -> AsyncIterator[str]:
    """Run a proxy to a gateway that drops the answer to the first request that contains `marker`."""
    host, port = url.removeprefix("http://").split(":")
    lost: list[bytes] = []

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection(host, int(port))
        request = b""
        try:
            while marker not in request or len(request) < _size(request):
                request += (chunk := await reader.read(65536))
                if not chunk:
                    return
            ours.write(request)
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
    """The size of an HTTP message, head included."""
    head, _, _ = message.partition(b"\r\n\r\n")
    (length,) = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return len(head) + 4 + int(length)


@pytest.mark.proves("D-31", "D-16", "D-26")
@async_test(30)
async def test_a_stock_client_that_retries_an_approval_gets_an_error_and_stops(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("3."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, "Go")
        yes: Any = _answer(first, approve=True)
        async with (
            _lossy_proxy(gateway.url, b"mcp_approval_response") as url,
            AsyncOpenAI(base_url=f"{url}/v1", api_key="hd-anybody", max_retries=5) as client,
        ):
            tools: Any = [_declared()]
            with pytest.raises(BadRequestError) as refused:
                await client.responses.create(model=MODEL, input=[yes], tools=tools, previous_response_id=first["id"])
        assert refused.value.code == "approval_request_used"
        assert len(server.calls("add")) == 1
        assert isinstance(refused.value.body, dict)
        taker = refused.value.body["message"].partition("the response ")[2].split()[0]
        _, stored = await gateway.send("GET", f"/v1/responses/{taker}")
        assert _types(stored) == ["mcp_call", "message"], "the lost answer is stored"


@pytest.mark.proves("D-26", "D-16")
@async_test(30)
async def test_an_approval_or_a_tool_list_without_its_call_is_not_taken_for_a_plain_message(tmp_path: Path) -> None:
    model = ScriptedModel(call("add", a=1, b=2), say("Hello."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"sums": server}) as gateway:
        first = await _ask(gateway, "Go")
        body = {"model": MODEL, "input": [GO, _answer(first, approve=True)], "tools": [_declared()]}
        status, error = await gateway.send("POST", "/v1/responses", body)
        assert (status, error["error"]["code"]) == (400, "approval_request_not_found")
        assert _types(await _ask(gateway, [GO, first["output"][0]])) == ["message"]
        assert not server.calls("add")

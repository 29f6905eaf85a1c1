"""Every kind of background response continues after a crash as if there had been none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from durable.crash_cases import UNKNOWN, CrashCase, Script, SurvivedResponse, run_crash_cases, tool_answers
from gateway.gateway_process import GatewayProcess

from holodeck.testing import call, say, wait
from holodeck.testing.model.script import Turn

SECONDS = 600.0
PAUSE = 60.0  # longer than any machine takes to write the stream: it is killed within the call
PARTIAL_TEXT = "<partial text>"
LONG = "long line\n" * 4_000
MCP = {"type": "mcp", "server_label": "tools", "require_approval": "never"}
ASKING = {"type": "mcp", "server_label": "tools", "require_approval": "always"}
FUNCTION = {"type": "function", "name": "ask_user", "parameters": {"type": "object", "properties": {}}}


def calls(name: str, *texts: str, more: Turn = ()) -> Script:
    """All in one turn, and then an answer."""

    def script(messages: list[dict[str, Any]]) -> Turn:
        if messages[-1]["role"] != "tool":
            return [*(call("echo", text=f"{name} {text}") for text in texts), *(more if isinstance(more, list) else ())]
        return say("done")

    return script


def parallel() -> CrashCase:
    """Six calls at once; the first is finished and the others are on their way."""
    texts = [str(number) for number in range(6)]
    return CrashCase(name="<parallel>", point="call 1 after", script=calls("<parallel>", *texts))


def check_parallel(survivor: SurvivedResponse) -> None:
    assert sorted(survivor.executed) == sorted(set(survivor.executed)), "nothing twice"
    assert len(survivor.model_tool_answers) == 6
    for number, tool_answer in enumerate(survivor.model_tool_answers):
        if UNKNOWN not in tool_answer:
            assert tool_answer == f"<parallel> {number}", "each answer is that of its own call"
            assert str(number) in survivor.executed
    known = [answer for answer in survivor.model_tool_answers if UNKNOWN not in answer]
    assert known, "the one that was finished is known"


def declared() -> CrashCase:
    return CrashCase(
        name="<declared>", point="dispatch 1 after", script=calls("<declared>", "one", "two"), body={"tools": [MCP]}
    )


def check_declared(survivor: SurvivedResponse) -> None:
    kinds = [item["type"] for item in survivor.response["output"]]
    assert kinds == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert sorted(survivor.executed) == sorted(set(survivor.executed))
    assert any(UNKNOWN in tool_answer for tool_answer in survivor.model_tool_answers)


def declared_again() -> CrashCase:
    """The list of tools was sent, and the turn that followed was not stored."""
    return CrashCase(
        name="<listed>", point="turn 1 done", script=calls("<listed>", "one"), body={"tools": [MCP], "stream": True}
    )


def check_listed(survivor: SurvivedResponse) -> None:
    assert survivor.executed == ["one"]
    assert [item["type"] for item in survivor.response["output"]] == ["mcp_list_tools", "mcp_call", "message"]


def chained() -> CrashCase:
    async def first(served: GatewayProcess) -> Mapping[str, Any]:
        _, earlier, _ = await served.create_response("<chained>", store=True)
        return {"previous_response_id": earlier["id"]}

    async def then(served: GatewayProcess, survivor: SurvivedResponse) -> None:
        status, last, _ = await served.create_response("<chained>", previous_response_id=survivor.id)
        assert (status, last["status"]) == (200, "completed")

    script = calls("<chained>", "one")
    return CrashCase(name="<chained>", point="call 1 after", script=script, prepare=first, inspect=then)


def check_chained(survivor: SurvivedResponse) -> None:
    assert survivor.executed == ["one"] * 3, "once for each of three responses"
    assert survivor.model_tool_answers == ["<chained> one"] * 3


def in_conversation(point: str) -> CrashCase:
    """Items are added to a conversation once, whether or not the response was known to be finished."""
    name = f"<conversation {point}>"
    made: list[str] = []

    async def first(served: GatewayProcess) -> Mapping[str, Any]:
        _, conversation, _ = await served.send("POST", "/v1/conversations", {})
        made.append(conversation["id"])
        return {"conversation": conversation["id"]}

    async def then(served: GatewayProcess, survivor: SurvivedResponse) -> None:
        _, listed, _ = await served.send("GET", f"/v1/conversations/{made[0]}/items?order=asc&limit=100")
        kinds = [item["type"] for item in listed["data"]]
        assert kinds == ["message", "mcp_call", "message"]
        assert [item["id"] for item in listed["data"][1:]] == [item["id"] for item in survivor.response["output"]]

    return CrashCase(name=name, point=point, script=calls(name, "one"), prepare=first, inspect=then)


def check_conversation(survivor: SurvivedResponse) -> None:
    assert survivor.executed == ["one"]


def referring() -> CrashCase:
    async def first(served: GatewayProcess) -> Mapping[str, Any]:
        _, earlier, _ = await served.create_response("<referring>", store=True)
        return {
            "input": [{"type": "item_reference", "id": item["id"]} for item in earlier["output"]]
            + [{"role": "user", "content": "<referring>"}]
        }

    script = calls("<referring>", "one")
    return CrashCase(name="<referring>", point="turn 1 after", script=script, prepare=first)


def check_referring(survivor: SurvivedResponse) -> None:
    assert survivor.executed == ["one", "one"]
    assert survivor.model_tool_answers == ["<referring> one"] * 2, "the referenced item was sent, too"


def mixed() -> CrashCase:
    """One call of the gateway and one of the client in a turn: none is run, and both are pending."""
    script = calls("<mixed>", "one", more=[call("ask_user")])

    async def answer(served: GatewayProcess, survivor: SurvivedResponse) -> None:
        last_item = next(item for item in survivor.response["output"] if item["type"] == "function_call")
        output = {"type": "function_call_output", "call_id": last_item["call_id"], "output": "yes"}
        status, last, _ = await served.send(
            "POST",
            "/v1/responses",
            {"model": "demo", "previous_response_id": survivor.id, "input": [output], "tools": [FUNCTION]},
        )
        assert (status, last["status"]) == (200, "completed"), last

    return CrashCase(name="<mixed>", point="turn 1 after", script=script, body={"tools": [FUNCTION]}, inspect=answer)


def check_mixed(survivor: SurvivedResponse) -> None:
    assert survivor.executed == ["one"], "only after the client had answered"
    assert sorted(survivor.model_tool_answers) == ["<mixed> one", "yes"]


def approved() -> CrashCase:
    """A call that waits for an approval."""

    async def approve(served: GatewayProcess, survivor: SurvivedResponse) -> None:
        last_item = survivor.response["output"][-1]
        assert last_item["type"] == "mcp_approval_request"
        answer = {"type": "mcp_approval_response", "approval_request_id": last_item["id"], "approve": True}
        body = {"model": "demo", "previous_response_id": survivor.id, "input": [answer], "tools": [ASKING]}
        status, last, _ = await served.send("POST", "/v1/responses", body)
        assert (status, last["status"]) == (200, "completed"), last

    script = calls("<approved>", "one")
    return CrashCase(
        name="<approved>", point="finish 1 before", script=script, body={"tools": [ASKING]}, inspect=approve
    )


def check_approved(survivor: SurvivedResponse) -> None:
    assert survivor.executed == ["one"], "only after the approval"


def limited() -> CrashCase:
    script = calls("<limited>", "one", "two")
    return CrashCase(name="<limited>", point="call 1 after", script=script, body={"max_tool_calls": 1})


def check_limited(survivor: SurvivedResponse) -> None:
    assert survivor.executed == ["one"]
    assert survivor.model_tool_answers[0] == "<limited> one"
    assert "The limit of tool calls is reached" in survivor.model_tool_answers[1]


def cut() -> CrashCase:
    """A result that was too long for the model can be read on in after the crash."""

    def script(messages: list[dict[str, Any]]) -> Turn:
        match len(tool_answers(messages)):
            case 0:
                return call("echo", text=f"<cut> {LONG}")
            case 1:
                made = next(message for message in messages if message.get("tool_calls"))
                return call("read_result", id=made["tool_calls"][0]["id"], start_line=3_999, lines=1)
            case _:
                return say("done")

    return CrashCase(name="<cut>", point="call 1 after", script=script)


def check_cut(survivor: SurvivedResponse) -> None:
    assert len(survivor.executed) == 1
    assert "[cut: the first" in survivor.model_tool_answers[0]
    assert survivor.model_tool_answers[1].startswith("long line")


def half_sent() -> CrashCase:
    """A call at a server was announced and had no answer yet."""

    def script(messages: list[dict[str, Any]]) -> Turn:
        return say("done") if tool_answers(messages) else call("slow", seconds=PAUSE)

    point = "response.mcp_call.in_progress 1 after and dispatch 1 before"
    return CrashCase(name="<half told>", point=point, script=script, body={"tools": [MCP]})


def check_half_sent(survivor: SurvivedResponse) -> None:
    assert [item["type"] for item in survivor.response["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    assert survivor.response["output"][1]["status"] == "failed"
    assert UNKNOWN in survivor.model_tool_answers[0]


def partial_text() -> CrashCase:
    """The model was in the middle of a sentence, and begins another one."""
    never, times = asyncio.Event(), count()

    def script(messages: list[dict[str, Any]]) -> Turn:
        return say("All of it.") if next(times) else [say("Half of"), wait(never)]

    return CrashCase(name=PARTIAL_TEXT, point="response.output_text.delta 1 after", script=script)


def check_partial_text(survivor: SurvivedResponse) -> None:
    assert [item["content"][0]["text"] for item in survivor.response["output"]] == ["All of it."]
    deltas = [event["delta"] for event in survivor.events if event["type"] == "response.output_text.delta"]
    assert "".join(deltas) == "Half ofAll of it.", "sent text is not taken back, and another item begins"


def repeated() -> CrashCase:
    """A tool that may be run twice is, with the same key."""
    return CrashCase(name="<repeated>", point="call 1 done", script=calls("<repeated>", "one"))


def check_repeated(survivor: SurvivedResponse) -> None:
    assert survivor.executed == ["one", "one"]
    assert survivor.keys[0] == survivor.keys[1] != ""
    assert survivor.model_tool_answers == ["<repeated> one"]


FORMS = {
    half_sent: check_half_sent,
    partial_text: check_partial_text,
    parallel: check_parallel,
    declared: check_declared,
    declared_again: check_listed,
    chained: check_chained,
    referring: check_referring,
    mixed: check_mixed,
    approved: check_approved,
    limited: check_limited,
    cut: check_cut,
}
CONVERSATIONS = ["add_items 1 before", "add_items 1 after", "finish 1 after"]


@pytest.mark.proves("D-32", "D-16", "D-28")
@async_test(SECONDS)
async def test_every_form_of_a_response_survives(tmp_path: Path) -> None:
    cases = [form() for form in FORMS]
    checks = {case.name: check for case, check in zip(cases, FORMS.values(), strict=True)}
    cases += [in_conversation(point) for point in CONVERSATIONS]
    for number in range(3):
        (tmp_path / str(number)).mkdir()
    found: dict[str, SurvivedResponse] = {}
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_crash_cases(tmp_path / str(number), cases[number::2])) for number in range(2)]
        may_repeat = group.create_task(run_crash_cases(tmp_path / "2", [repeated()], idempotent_tools=["echo"]))
    check_repeated(may_repeat.result()["<repeated>"])
    for task in tasks:
        found |= task.result()
    assert len(found) == len(cases)
    for name, survivor in found.items():
        assert survivor.response["status"] == ("requires_action" if name == "<mixed>" else "completed"), (
            name,
            survivor.response,
        )
        checks.get(name, check_conversation)(survivor)
        survivor.check_stream()
        if name != PARTIAL_TEXT:
            survivor.check_once()

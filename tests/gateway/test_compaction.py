"""A long conversation is compacted: a model writes the summary of what is old, and the rest is kept."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from gateway.running_gateway import MODEL, RunningGateway, run_gateway
from openai.types.responses import ResponseCompactionItem

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say, wait
from holodeck.testing.model.script import Turn, spend, status

SUMMARY = "The user is Ada. She has a bicycle, number 77."
FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
THRESHOLD: Any = [{"type": "compaction", "compact_threshold": 2_000}]
ASKS_SUMMARY = "Write the summary of this conversation now."


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


def long_conversation(turns: int = 8) -> list[dict[str, Any]]:
    """Questions of a user, each with a call, its long output and an answer. About 1,000 tokens a turn."""
    items: list[dict[str, Any]] = []
    for number in range(turns):
        output = f"output {number} " + f"word{number} " * 600
        items += [
            message("user", f"Question {number}"),
            {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": f"c{number}", "output": output},
            message("assistant", f"Answer {number}"),
        ]
    return items


def summarizing_model(*turns: Turn) -> ScriptedModel:
    """A model that writes `SUMMARY` whenever it is asked for one, and otherwise plays the turns in their order."""
    rest = iter(turns)

    def answer(received: Any) -> Turn:
        if is_summary_request(received.json):
            return [say(SUMMARY), spend(500, 20)]
        return next(rest)

    return ScriptedModel(answer)


def is_summary_request(body: dict[str, Any]) -> bool:
    return ASKS_SUMMARY in str(body["messages"][-1]["content"])


def texts_of(body: dict[str, Any]) -> list[str]:
    """What a model was asked, message by message. A call is its id."""
    return [
        " ".join(each["id"] for each in entry["tool_calls"]) if entry.get("tool_calls") else str(entry["content"])
        for entry in body["messages"]
    ]


def answers_asked(gateway: RunningGateway) -> list[dict[str, Any]]:
    """The requests that the model got, without those for a summary."""
    return [body for body in gateway.model_requests if not is_summary_request(body)]


async def count(gateway: RunningGateway, items: list[Any]) -> int:
    _, counted = await gateway.send("POST", "/v1/responses/input_tokens", {"model": MODEL, "input": items})
    return int(counted["input_tokens"])


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_long_conversation_becomes_a_summary_and_its_recent_part(tmp_path: Path) -> None:
    history: Any = [message("developer", "Be brief."), *long_conversation()]
    async with run_gateway(tmp_path, summarizing_model(say("Yes."))) as gateway:
        client = await gateway.openai_client()
        compacted = await client.responses.compact(model=MODEL, input=history)
        assert (compacted.usage.input_tokens, compacted.usage.output_tokens) == (500, 20)
        *_, item = compacted.output
        assert isinstance(item, ResponseCompactionItem)
        window: Any = [item.to_dict(), message("user", "And now?")]
        await client.responses.create(model=MODEL, input=window)
        asked_for_summary, asked = gateway.model_requests
        tokens, left = await count(gateway, history), await count(gateway, [item.to_dict()])
    assert left <= tokens // 4
    transcript = texts_of(asked_for_summary)[-1]
    assert "Answer 2" in transcript
    assert "output 2 word2" in transcript
    assert "tools" not in asked_for_summary
    texts = texts_of(asked)
    assert texts[0] == "Be brief."
    assert texts[1].startswith("[Summary of the earlier conversation]")
    assert texts[1].endswith(SUMMARY)
    assert texts[2:] == [*(f"Question {number}" for number in range(8)), "Answer 7", "And now?"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_call_without_its_output_is_kept_by_a_compaction(tmp_path: Path) -> None:
    open_call = {"type": "function_call", "call_id": "open", "name": "look", "arguments": '{"at": 1}'}
    history = [*long_conversation(), message("user", "Look once more"), open_call]
    async with run_gateway(tmp_path, summarizing_model(say("Seen."))) as gateway:
        _, compacted = await gateway.send("POST", "/v1/responses/compact", {"model": MODEL, "input": history})
        output = {"type": "function_call_output", "call_id": "open", "output": "A lake."}
        body = {"model": MODEL, "input": [*compacted["output"], output], "tools": [FUNCTION]}
        code, answer = await gateway.send("POST", "/v1/responses", body)
        assert code == 200, answer
        assert texts_of(gateway.model_requests[-1])[-3:] == ["Look once more", "open", "A lake."]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_without_a_model_old_outputs_are_cut_and_the_reply_says_so(tmp_path: Path) -> None:
    model = ScriptedModel(status(400, {"error": {"message": "No."}}), say("Yes."))
    history = long_conversation()
    async with run_gateway(tmp_path, model) as gateway:
        session = await gateway.http_client()
        async with session.post("/v1/responses/compact", json={"model": MODEL, "input": history}) as reply:
            assert (reply.status, reply.headers["x-holodeck-compaction"]) == (200, "truncated")
            compacted = await reply.json()
        assert compacted["usage"]["total_tokens"] == 0
        left = await count(gateway, compacted["output"])
        assert left <= await count(gateway, history) // 4 + 100
        window = [*compacted["output"], message("user", "And now?")]
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": window})
    texts = texts_of(gateway.model_requests[-1])
    assert texts[0].startswith("[Summary of the earlier conversation]")
    assert texts[1:][-2:] == ["Answer 7", "And now?"]
    cut = next(text for text in texts if text.startswith("output 7 word7"))
    assert cut.endswith("[The rest of this output was cut.]")
    assert len(cut) < 500


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_second_compaction_summarizes_the_first_summary_as_well(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, summarizing_model(say("Yes."))) as gateway:
        path, window = "/v1/responses/compact", long_conversation()
        for _ in range(2):
            _, compacted = await gateway.send("POST", path, {"model": MODEL, "input": window})
            window = [*compacted["output"], *long_conversation(4)]
        window = [*compacted["output"], message("user", "And now?")]
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": window})
        _, again, asked = gateway.model_requests
    assert SUMMARY in texts_of(again)[-1]
    assert sum(SUMMARY in text for text in texts_of(asked)) == 1


@pytest.mark.proves("D-25")
@async_test(30)
async def test_the_operator_names_the_model_and_the_size_of_summaries(tmp_path: Path) -> None:
    async with ScriptedModel([say(SUMMARY), spend(70, 30)]).serve() as small, ScriptedModel().serve() as large:
        models = [
            {"name": name, "model": {"provider": "openai_compatible", "name": name, "endpoint": server.url}}
            for name, server in (("small", small), (MODEL, large))
        ]
        settings = {"model": "small", "target_tokens": 1_500}
        key_limits = {"drain_seconds": 0, "key": {"tokens_per_minute": 100}}
        async with run_gateway(tmp_path, models=models, compaction=settings, limits=key_limits) as gateway:
            body = {"model": MODEL, "input": long_conversation()}
            _, compacted = await gateway.send("POST", "/v1/responses/compact", body)
            assert compacted["usage"]["total_tokens"] == 100
            refused, _ = await gateway.send("POST", "/v1/responses/compact", body)
            _, metrics = await gateway.send("GET", "/metrics")
        assert (len(small.received), len(large.received)) == (1, 0)
    # The tokens of the summary count towards the limit of the caller.
    assert refused == 429
    assert b'holodeck_tokens_total{kind="input",model="demo"} 70.0' in metrics


@pytest.mark.proves("D-25", "D-28")
@pytest.mark.parametrize("keeps", ["responses", "a conversation", "items"])
@async_test(30)
async def test_a_context_over_its_threshold_is_compacted_and_the_chain_continues_from_there(
    tmp_path: Path, keeps: str
) -> None:
    async with run_gateway(tmp_path, summarizing_model(say("Fine."), say("Good."))) as gateway:
        client = await gateway.openai_client()
        history: Any = [*long_conversation(4), message("user", "How is it?")]
        next_question: Any = [message("user", "And the bicycle?")]
        place: dict[str, Any] = {"store": keeps == "responses"}
        if keeps == "a conversation":
            place = {"conversation": (await client.conversations.create()).id}
        first = await client.responses.create(
            model=MODEL,
            input=history,
            context_management=THRESHOLD,
            **place,
        )
        assert [item.type for item in first.output] == ["compaction", "message"]
        assert first.usage is not None
        assert first.usage.input_tokens >= 500
        if keeps == "responses":
            place["previous_response_id"] = first.id
        elif keeps == "items":
            next_question = [*history, *(item.to_dict() for item in first.output), *next_question]
        await client.responses.create(model=MODEL, input=next_question, **place)
        compacted, continued = map(texts_of, answers_asked(gateway))
    assert compacted[0].endswith(SUMMARY)
    assert compacted[-1] == "How is it?"
    assert not any("output 0" in text for text in compacted)
    assert continued == [*compacted, "Fine.", "And the bicycle?"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_websocket_continues_from_a_compaction_that_is_not_stored(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, summarizing_model(say("Old."), say("Fine."), say("Good."))) as gateway:
        async with (await gateway.openai_client()).responses.connect() as connection:
            body: dict[str, Any] = {"input": long_conversation(4)}
            for question in ("How is it?", "And the bicycle?", ""):
                await connection.response.create(model=MODEL, store=False, **body)
                while (event := await connection.recv()).type != "response.completed":
                    assert event.type != "error"
                body = {"input": question, "previous_response_id": event.response.id, "context_management": THRESHOLD}
        _, compacted, continued = map(texts_of, answers_asked(gateway))
    assert compacted[0].endswith(SUMMARY)
    assert continued == [*compacted, "Fine.", "And the bicycle?"]


@pytest.mark.proves("D-25", "D-28")
@async_test(30)
async def test_a_chain_of_stored_responses_begins_anew_with_a_compaction(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, summarizing_model(say("Old."), say("Fine."), say("Good."))) as gateway:
        client = await gateway.openai_client()
        history: Any = long_conversation(4)
        first = await client.responses.create(model=MODEL, input=history)
        second = await client.responses.create(
            model=MODEL, input="How is it?", previous_response_id=first.id, context_management=THRESHOLD
        )
        await client.responses.create(model=MODEL, input="And the bicycle?", previous_response_id=second.id)
        _, compacted, continued = map(texts_of, answers_asked(gateway))
    assert compacted[0].endswith(SUMMARY)
    assert continued == [*compacted, "Fine.", "And the bicycle?"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_context_below_its_threshold_is_sent_as_it_is(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Fine."))) as gateway:
        history = [*long_conversation(1), message("user", "How is it?")]
        body = {"model": MODEL, "input": history, "context_management": THRESHOLD}
        _, answer = await gateway.send("POST", "/v1/responses", body)
        assert [item["type"] for item in answer["output"]] == ["message"]
        assert any("output 0" in text for text in texts_of(gateway.model_requests[0]))


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_long_output_in_the_middle_of_a_run_is_compacted_before_the_next_turn(tmp_path: Path) -> None:
    long = call("echo", text="word " * 1_200)
    model = summarizing_model(long, long, say("Done."), say("Yes."), say("Yes."))
    async with FaultyMCPServer() as server, run_gateway(tmp_path, model, mcp={"tools": server}) as gateway:
        body = {"model": MODEL, "input": "Echo twice", "context_management": THRESHOLD, "stream": True}
        events = await gateway.stream("/v1/responses", body)
        assert len(server.calls()) == 2
        output = events[-1]["response"]["output"]
        question = message("user", "Sure?")
        carried = {"input": [message("user", "Echo twice"), *output, question]}
        for sent in ({"input": [question], "previous_response_id": events[-1]["response"]["id"]}, carried):
            await gateway.send("POST", "/v1/responses", {"model": MODEL, **sent})
    assert [item["type"] for item in output][-2:] == ["compaction", "message"]
    index = len(output) - 2
    assert [event["type"] for event in events if event.get("output_index") == index] == [
        "response.output_item.added",
        "response.output_item.done",
    ]
    # Text of the turn comes after the item, not before it.
    kinds = [(event["type"], event.get("output_index")) for event in events]
    assert kinds.index(("response.output_item.done", index)) < kinds.index(("response.output_text.delta", index + 1))
    *_, last, continued, again = map(texts_of, answers_asked(gateway))
    assert "Echo twice" in last
    assert any(SUMMARY in text for text in last)
    # The item has all that is kept of what was before it, and what comes after it stays.
    assert continued == again == [*last, "Done.", "Sure?"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_trigger_compacts_without_an_answer(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, summarizing_model(say("Yes."))) as gateway:
        history = long_conversation()
        body = {
            "model": MODEL,
            "input": [*history, {"type": "compaction_trigger"}],
            "tools": [FUNCTION],
            "store": False,
            "stream": True,
        }
        events = await gateway.stream("/v1/responses", body)
        (compaction,) = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert compaction["type"] == "compaction"
        assert events[-1]["type"] == "response.completed"
        assert not answers_asked(gateway)
        # As Codex goes on: with the messages of its user, the item, and the next question.
        users = [item for item in history if item.get("role") == "user"]
        window = [*users, compaction, message("user", "And now?")]
        await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": window})
        texts = texts_of(gateway.model_requests[-1])
    assert texts[0].endswith(SUMMARY)
    assert [text for text in texts if text.startswith("Question")] == [f"Question {number}" for number in range(8)]
    assert texts[-1] == "And now?"


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"input": [{"type": "compaction_trigger"}, message("user", "Hi")]}, "input[0]"),
        ("/v1/conversations", {"items": [{"type": "compaction_trigger"}]}, "items[0]"),
        (
            "/v1/responses",
            {"input": "Hi", "context_management": [{"type": "compaction", "compact_threshold": 10}]},
            "context_management[0].compact_threshold",
        ),
        ("/v1/responses", {"input": "Hi", "context_management": [{"type": "other"}]}, "context_management[0].type"),
        (
            "/v1/responses/compact",
            {"model": MODEL, "input": "Hi", "context_management": [{}]},
            "context_management[0].type",
        ),
    ],
)
@async_test(30)
async def test_a_wrong_request_for_a_compaction_is_refused(tmp_path: Path, path: str, body: Any, param: str) -> None:
    async with run_gateway(tmp_path) as gateway:
        code, answer = await gateway.send("POST", path, body)
        assert (code, answer["error"]["param"]) == (400, param)


@pytest.mark.proves("D-32")
@async_test(120)
async def test_a_durable_run_that_has_compacted_goes_on_from_its_summary_after_a_kill(tmp_path: Path) -> None:
    never = asyncio.Event()
    model = summarizing_model(call("echo", text="again"), [wait(never)], say("Done."))
    async with FaultyMCPServer() as mcp, model.serve() as scripted:
        entry = {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": mcp.url}
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[entry], background={"durable": True})
        body = {"model": MODEL, "input": long_conversation(4), "context_management": THRESHOLD, "background": True}
        async with run_gateway_process(file) as served:
            _, begun, _ = await served.send("POST", "/v1/responses", body)
            while len(scripted.received) < 3:  # noqa: ASYNC110 - another process sends the requests
                await asyncio.sleep(0.02)
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with run_gateway_process(file) as served:
            found = begun
            while found["status"] not in ("completed", "failed"):
                await asyncio.sleep(0.02)
                _, found, _ = await served.send("GET", f"/v1/responses/{begun['id']}")
    assert [item["type"] for item in found["output"]] == ["compaction", "mcp_call", "message"]
    bodies = [received.json for received in scripted.received]
    assert [is_summary_request(body) for body in bodies] == [True, False, False, False]
    assert texts_of(bodies[3]) == texts_of(bodies[2])
    assert any(SUMMARY in text for text in texts_of(bodies[3]))
    assert not any("output 0" in text for text in texts_of(bodies[3]))

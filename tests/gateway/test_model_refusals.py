"""A refusal of the model is a refusal in every API, and not an empty answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway
from gateway.wire.open_responses_contract import contract_problems
from pydantic import BaseModel

from holodeck.gateway.wire.response.replay import replay_events
from holodeck.testing import ScriptedModel, say
from holodeck.testing.model.script import Step, finish, raw

REFUSAL_PARTS = ("I will ", "not say that.")


class Recipe(BaseModel):
    steps: list[str]


def _refusal_turn() -> list[Step]:
    chunks = [{"choices": [{"index": 0, "delta": {"role": "assistant", "refusal": part}}]} for part in REFUSAL_PARTS]
    return [raw(*chunks), finish("stop")]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_refusal_is_a_content_part_of_its_own(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(_refusal_turn(), _refusal_turn(), say("Well."))) as gateway:
        client = await gateway.openai_client()
        parsed = await client.responses.parse(model=MODEL, input="How?", text_format=Recipe)
        (message,) = parsed.output
        assert message.type == "message"
        assert parsed.output_parsed is None
        assert message.content[0].to_dict() == {"type": "refusal", "refusal": "".join(REFUSAL_PARTS)}
        events = await gateway.stream("/v1/responses", {"model": MODEL, "input": "How?", "stream": True})
        response = events[-1]["response"]
        assert not contract_problems("ResponseResource", response)
        assert [event["delta"] for event in events if event["type"] == "response.refusal.delta"] == list(REFUSAL_PARTS)
        again = [orjson.loads(payload) for payload in replay_events(response)]
        assert [each["type"] for each in again if "delta" not in each["type"]] == [
            each["type"] for each in events if "delta" not in each["type"]
        ]
        body: dict[str, Any] = {"model": MODEL, "input": "Please", "previous_response_id": response["id"]}
        await gateway.send("POST", "/v1/responses", body)
        assert [each["content"] for each in gateway.model_requests[-1]["messages"]] == [
            "How?",
            "".join(REFUSAL_PARTS),
            "Please",
        ]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_chat_completion_has_a_refusal_in_its_refusal_field(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(_refusal_turn(), _refusal_turn())) as gateway:
        client = await gateway.openai_client()
        messages: Any = [{"role": "user", "content": "How?"}]
        whole = await client.chat.completions.create(model=MODEL, messages=messages)
        assert (whole.choices[0].message.content, whole.choices[0].message.refusal) == (None, "".join(REFUSAL_PARTS))
        stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]
        assert [delta.refusal for delta in deltas if delta.refusal] == list(REFUSAL_PARTS)
        assert not any(delta.content for delta in deltas)

"""A model that will not answer: the stock package sees a refusal, in every way in, and not an answer that is none."""

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

WORDS = ("I will ", "not say that.")


class Recipe(BaseModel):
    steps: list[str]


def _refuses() -> list[Step]:
    chunks = [{"choices": [{"index": 0, "delta": {"role": "assistant", "refusal": word}}]} for word in WORDS]
    return [raw(*chunks), finish("stop")]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_refusal_is_a_part_of_its_own(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(_refuses(), _refuses(), say("Well."))) as stand:
        client = await stand.openai_client()
        parsed = await client.responses.parse(model=MODEL, input="How?", text_format=Recipe)
        (message,) = parsed.output
        assert message.type == "message"
        assert parsed.output_parsed is None
        assert message.content[0].to_dict() == {"type": "refusal", "refusal": "".join(WORDS)}
        events = await stand.stream("/v1/responses", {"model": MODEL, "input": "How?", "stream": True})
        response = events[-1]["response"]
        assert not contract_problems("ResponseResource", response)
        assert [event["delta"] for event in events if event["type"] == "response.refusal.delta"] == list(WORDS)
        again = [orjson.loads(payload) for payload in replay_events(response)]
        assert [each["type"] for each in again if "delta" not in each["type"]] == [
            each["type"] for each in events if "delta" not in each["type"]
        ]
        body: dict[str, Any] = {"model": MODEL, "input": "Please", "previous_response_id": response["id"]}
        await stand.send("POST", "/v1/responses", body)
        assert [each["content"] for each in stand.model_requests[-1]["messages"]] == ["How?", "".join(WORDS), "Please"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_clients_of_the_older_api_see_it_where_they_look_for_it(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(_refuses(), _refuses())) as stand:
        client = await stand.openai_client()
        messages: Any = [{"role": "user", "content": "How?"}]
        whole = await client.chat.completions.create(model=MODEL, messages=messages)
        assert (whole.choices[0].message.content, whole.choices[0].message.refusal) == (None, "".join(WORDS))
        stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]
        assert [delta.refusal for delta in deltas if delta.refusal] == list(WORDS)
        assert not any(delta.content for delta in deltas)

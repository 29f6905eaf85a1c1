"""The local model without its extra or weights: errors that say what to install. With them: `make test-local`."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.lib.errors import ModelError
from holodeck.models.items import FunctionCall, FunctionCallOutput, ImageContent, TextContent, text_message
from holodeck.models.llm import LLM
from holodeck.models.model_io import ModelRequest, ToolSpec
from holodeck.models.provider import Provider
from holodeck.providers.factory import build_model_provider
from holodeck.providers.local.model import ChoiceParser, Local, build_answer_body, build_choice_body, has_result

READ = ToolSpec(
    name="read",
    description="Read a file",
    parameters={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
CALL = FunctionCall(call_id="c", name="read", arguments='{"path": "a"}')


def test_missing_weights_name_the_command_that_gets_them(tmp_path: Path) -> None:
    async def main() -> None:
        model = Local(folder=tmp_path)
        with pytest.raises(ModelError, match=r"holodeck model pull qwen2\.5-coder-0\.5b"):
            await anext(aiter(model.stream(ModelRequest(items=(text_message("user", "Hi"),)))))
        await model.close()

    asyncio.run(main())


def test_an_agent_file_chooses_the_weights_by_name(tmp_path: Path) -> None:
    async def main() -> None:
        model = build_model_provider(LLM(provider=Provider.LOCAL, name=str(tmp_path / "mine.gguf")), {})
        with pytest.raises(ModelError, match=r"There is no model file .*mine\.gguf"):
            await anext(aiter(model.stream(ModelRequest(items=(text_message("user", "Hi"),)))))
        await model.close()

    asyncio.run(main())


def test_a_missing_extra_names_the_command_that_installs_it(tmp_path: Path) -> None:
    weights = tmp_path / "w.gguf"
    weights.write_bytes(b"GGUF")
    code = f"""
import asyncio, logging, sys
logging.basicConfig()
sys.modules["xllamacpp"] = None
from holodeck.lib.errors import ModelError
from holodeck.models.model_io import ModelRequest
from holodeck.models.items import text_message
from holodeck.models.llm import LLM
from holodeck.models.provider import Provider
from holodeck.providers.factory import build_model_provider
from holodeck.providers.local.model import Local

async def main():
    try:
        await anext(aiter(Local(name={str(weights)!r}).stream(ModelRequest(items=(text_message("user", "Hi"),)))))
    except ModelError as error:
        print(error)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert "[local]'" in done.stdout, done.stderr
    assert "runs on this machine's processor" in done.stderr


def test_the_model_can_only_write_a_call_that_fits_or_a_reply() -> None:
    body = build_choice_body(ModelRequest(items=(text_message("user", "Read a.txt"),)), [READ], may_reply=True)
    call, reply = body["response_format"]["json_schema"]["schema"]["anyOf"]
    assert call["properties"] == {"tool": {"const": "read"}, "arguments": READ.parameters}
    assert list(reply["properties"]) == ["reply"]
    assert body["messages"][-1] == {"role": "user", "content": "Read a.txt"}
    forced = build_choice_body(ModelRequest(items=(text_message("user", "Read a.txt"),)), [READ], may_reply=False)
    assert len(forced["response_format"]["json_schema"]["schema"]["anyOf"]) == 1


def test_the_answer_is_written_from_the_result_in_a_prompt_without_tools() -> None:
    image = ImageContent(data="AAAA", mime_type="image/png")
    result = FunctionCallOutput(call_id="c", content=(TextContent(text="x" * 9_000), image), is_error=True)
    request = ModelRequest(items=(text_message("user", "Read a"), CALL, result), tools=(READ,), instructions="Be kind.")
    assert has_result(request.items)
    assert not has_result((*request.items, text_message("user", "And b?")))
    body = build_answer_body(request)
    assert "tools" not in body
    system, question, last_message = body["messages"]
    assert system["content"].startswith("Be kind.")
    assert question["content"] == "Read a"
    assert last_message["content"].startswith("(The tool read failed: xxx")
    assert len(last_message["content"]) < 2_100


def test_a_long_conversation_is_cut_at_its_beginning() -> None:
    items = tuple(text_message("user", f"{number} " + "word " * 100) for number in range(100))
    messages = build_answer_body(ModelRequest(items=items))["messages"]
    assert messages[-1]["content"].startswith("99 ")
    assert sum(len(message["content"]) for message in messages) < 10_000


@given(reply=st.text(max_size=60), cuts=st.lists(st.integers(0, 200), max_size=6), ascii_only=st.booleans())
def test_a_reply_is_streamed_as_it_is_written_wherever_it_is_cut(reply: str, cuts: list[int], ascii_only: bool) -> None:
    text = json.dumps({"reply": reply}, ensure_ascii=ascii_only)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    writing = ChoiceParser()
    streamed = "".join(writing.add(text[start:end]) for start, end in pairwise(edges))
    assert streamed == reply
    assert writing.parse_call() is None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('{"tool": "read", "arguments": {"path": "a"}}', "read"),
        ('Sure! {"tool": "read", "arguments": {}} done', "read"),
        ('{"tool": "read"', None),
        ('{"tool": 3, "arguments": {}}', None),
        ("[]", None),
    ],
)
def test_a_call_is_read_from_what_was_written(text: str, name: Any) -> None:
    writing = ChoiceParser()
    assert writing.add(text) == ""
    call = writing.parse_call()
    assert (call.name if call else None) == name

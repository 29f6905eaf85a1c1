"""A conversation that began at OpenAI: calls of its own tools are part of the history that the model reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import ScriptedModel, say

PNG = "iVBORw0KGgo="
ITEMS: list[tuple[dict[str, Any], list[str]]] = [
    (
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {
                "type": "search",
                "query": "tallest tower",
                "queries": ["tallest tower"],
                "sources": [{"type": "url", "url": "https://example.com/towers"}],
            },
        },
        ["web_search", "Query: tallest tower", "https://example.com/towers", "not part of this conversation"],
    ),
    (
        {
            "type": "web_search_call",
            "id": "ws_2",
            "status": "completed",
            "action": {"type": "find_in_page", "url": "https://example.com/page", "pattern": "828 m"},
        },
        ["Page: https://example.com/page", "Looked for: 828 m"],
    ),
    (
        {
            "type": "file_search_call",
            "id": "fs_1",
            "status": "completed",
            "queries": ["holidays"],
            "results": [{"file_id": "file_1", "filename": "rules.pdf", "score": 0.9, "text": "30 days a year."}],
        },
        ["file_search", "Query: holidays", "Result from rules.pdf: 30 days a year."],
    ),
    (
        {
            "type": "code_interpreter_call",
            "id": "ci_1",
            "status": "completed",
            "container_id": "cntr_1",
            "code": "print(6 * 7)",
            "outputs": [{"type": "logs", "logs": "42"}, {"type": "image", "url": "https://example.com/plot.png"}],
        },
        ["code_interpreter", "print(6 * 7)", "Output:\n42", "an image"],
    ),
    (
        {
            "type": "image_generation_call",
            "id": "ig_1",
            "status": "completed",
            "result": PNG,
            "revised_prompt": "A red fox",
            "size": "1024x1024",
        },
        ["image_generation", "Prompt: A red fox", "The user got the image"],
    ),
    (
        {"type": "web_search_call", "id": "ws_3", "status": "failed", "action": {"type": "search", "query": "x"}},
        ["web_search (failed)"],
    ),
]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(("item", "words"), ITEMS, ids=[item["id"] for item, _ in ITEMS])
@async_test(30)
async def test_the_model_reads_a_call_of_openais_own_tools_as_a_note(
    tmp_path: Path, item: dict[str, Any], words: list[str]
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Yes."))) as gateway:
        client = await gateway.openai_client()
        asked: Any = [
            {"role": "user", "content": "First question"},
            item,
            {"role": "assistant", "content": "First answer"},
            {"role": "user", "content": "And now?"},
        ]
        answer = await client.responses.create(model=MODEL, input=asked)
        assert answer.output_text == "Yes."
        roles = [message["role"] for message in gateway.model_requests[0]["messages"]]
        assert (roles[0], roles[1], roles[-1]) == ("user", "assistant", "user")
        sent = "\n".join(str(message["content"]) for message in gateway.model_requests[0]["messages"][1:-1])
        assert [word for word in words if word not in sent] == []
        assert PNG not in sent
        listed = await client.responses.input_items.list(answer.id, order="asc")
        assert listed.data[1].type == item["type"]
        assert listed.data[1].id == item["id"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_whole_conversation_of_openai_goes_on_here(tmp_path: Path) -> None:
    history: list[Any] = [
        {"role": "user", "content": "Which server has the tool?"},
        {
            "type": "mcp_list_tools",
            "id": "mcpl_1",
            "server_label": "deepwiki",
            "tools": [{"name": "ask", "input_schema": {"type": "object"}, "annotations": None, "description": None}],
        },
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "server_label": "deepwiki",
            "name": "ask",
            "arguments": '{"q":"x"}',
            "output": "deep",
            "error": None,
            "approval_request_id": None,
        },
        {
            "type": "computer_call",
            "id": "cu_1",
            "call_id": "call_cu",
            "status": "completed",
            "action": {"type": "screenshot"},
            "pending_safety_checks": [{"id": "sc_1", "code": "malicious_instructions", "message": "Beware."}],
        },
        {
            "type": "computer_call_output",
            "call_id": "call_cu",
            "acknowledged_safety_checks": [{"id": "sc_1", "code": "malicious_instructions", "message": "Beware."}],
            "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"},
        },
        *(item for item, _ in ITEMS),
        {"role": "user", "content": "Go on."},
    ]
    async with run_gateway(tmp_path, ScriptedModel(say("On."))) as gateway:
        client = await gateway.openai_client()
        answer = await client.responses.create(model=MODEL, input=history)
        assert answer.output_text == "On."
        sent = str(gateway.model_requests[0]["messages"])
        missing = [word for _, words in ITEMS for word in (*words, "deep") if word.replace("\n", "\\n") not in sent]
        assert missing == []
        assert PNG in sent, "the screenshot"


@pytest.mark.proves("D-25")
@async_test(30)
async def test_an_item_of_an_unknown_type_is_still_refused(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        body = {"model": MODEL, "input": [{"type": "mind_reading_call", "id": "mr_1"}]}
        status, refused = await gateway.send("POST", "/v1/responses", body)
        assert (status, refused["error"]["param"]) == (400, "input[0].type")
        assert "'web_search_call'" in refused["error"]["message"]

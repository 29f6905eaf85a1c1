"""One example of each reply, as a gateway with the rehearsal model gives it.

The page of the HTTP API shows them, and its tests run the requests and compare the replies.
"""

from __future__ import annotations

from typing import Any

_CREATED_AT = 1794886350
_ANSWER = (
    "[rehearsal] I only rehearse tool calls by fixed rules, and no tools are on offer here. "
    "Configure a model for answers."
)
_RESPONSE_ID = "resp_dccab09268026eef998e6c3ead8ce443"
_CONVERSATION_ID = "conv_ce54d9e88b0ab97a0d96a99db5a3c1bf"
_NO_CACHE = {"cached_tokens": 0, "cache_write_tokens": 0}

RESPONSE: dict[str, Any] = {
    "id": _RESPONSE_ID,
    "object": "response",
    "created_at": _CREATED_AT,
    "completed_at": _CREATED_AT,
    "status": "completed",
    "incomplete_details": None,
    "output": [
        {
            "id": "msg_91cc729d692bc7f7c1d4e7bc51a84d61",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": _ANSWER, "annotations": [], "logprobs": []}],
        }
    ],
    "error": None,
    "usage": {
        "input_tokens": 1,
        "input_tokens_details": _NO_CACHE,
        "output_tokens": 21,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 22,
    },
    "model": "demo",
    "previous_response_id": None,
    "instructions": None,
    "tools": [],
    "tool_choice": "auto",
    "truncation": "disabled",
    "parallel_tool_calls": True,
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "top_p": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "top_logprobs": 0,
    "temperature": 1.0,
    "reasoning": {"effort": None, "summary": None},
    "max_output_tokens": None,
    "max_tool_calls": None,
    "store": True,
    "background": False,
    "service_tier": "default",
    "metadata": {},
    "safety_identifier": None,
    "prompt_cache_key": None,
}
CANCELLED_RESPONSE = {
    **RESPONSE,
    "completed_at": None,
    "status": "cancelled",
    "incomplete_details": {"reason": "cancelled"},
    "output": [],
    "usage": None,
    "background": True,
}
DELETED_RESPONSE = {"id": _RESPONSE_ID, "object": "response", "deleted": True}
COMPACTED = {
    "id": "resp_c60ab8195b037721c2508eda238eaa1e",
    "object": "response.compaction",
    "created_at": _CREATED_AT,
    "output": [
        {
            "id": "msg_5d1c0a8fb7f8c2a9e8d7d3b1a4f60c11",
            "type": "message",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": "Hello"}],
        },
        {
            "id": "cmp_05c881fdb1a96d07ab3cf2b8a0b1e7a2",
            "type": "compaction",
            "encrypted_content": "hd2.Xv0wNQAAAAAAAABLjFAu-PuP4PwfdNQxUwfb9RKAQNzuHYmsSwJut8_g1JIJeTaoOGbCuWSyTjWB",
        },
    ],
    "usage": {
        "input_tokens": 0,
        "input_tokens_details": _NO_CACHE,
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    },
}
INPUT_TOKENS = {"object": "response.input_tokens", "input_tokens": 6}

CHAT_COMPLETION = {
    "id": "chatcmpl_3503467da23a1a67d36a465ca52f9f77",
    "created": _CREATED_AT,
    "model": "demo",
    "service_tier": "default",
    "system_fingerprint": None,
    "object": "chat.completion",
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": _ANSWER, "refusal": None, "annotations": []},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {
        "prompt_tokens": 1,
        "completion_tokens": 21,
        "total_tokens": 22,
        "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    },
}


def _build_refusal(path: str) -> dict[str, Any]:
    message = f"The model 'demo' has no {path}. Name one whose provider has it."
    return {"error": {"message": message, "type": "invalid_request", "code": "invalid_value", "param": "model"}}


NO_EMBEDDINGS = _build_refusal("/embeddings")
NO_COMPLETIONS = _build_refusal("/completions")

MESSAGE = {
    "id": "msg_8a1f0c5be0b3d2a97bb0c9f0e6f4d7a1",
    "type": "message",
    "role": "assistant",
    "model": "demo",
    "content": [{"type": "text", "text": _ANSWER, "citations": None}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {
        "input_tokens": 1,
        "cache_creation_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "cache_read_input_tokens": 0,
        "output_tokens": 21,
        "output_tokens_details": {"thinking_tokens": 0},
        "service_tier": "standard",
    },
}
MESSAGE_TOKENS = {"input_tokens": 6}

CONVERSATION: dict[str, Any] = {
    "id": _CONVERSATION_ID,
    "object": "conversation",
    "created_at": _CREATED_AT,
    "metadata": {"topic": "greetings"},
}
DELETED_CONVERSATION = {"id": _CONVERSATION_ID, "object": "conversation.deleted", "deleted": True}
SECOND_ITEM = {
    "id": "msg_0e32aa06db0d9cdd9cfaa5a2ad4a6596",
    "type": "message",
    "status": "completed",
    "role": "user",
    "content": [{"type": "input_text", "text": "How are you?"}],
}
_FIRST_ITEM = {
    **SECOND_ITEM,
    "id": "msg_e9bfeb8418bb84109f78caaf5088c48b",
    "content": [{"type": "input_text", "text": "Hello"}],
}


def _build_page(*items: dict[str, Any]) -> dict[str, Any]:
    ends = {"first_id": items[0]["id"], "last_id": items[-1]["id"], "has_more": False}
    return {"object": "list", "data": list(items), **ends}


INPUT_ITEMS = _build_page(_FIRST_ITEM)
ADDED_ITEMS = _build_page(SECOND_ITEM)
CONVERSATIONS = _build_page(CONVERSATION)
CONVERSATION_ITEMS = _build_page(SECOND_ITEM, _FIRST_ITEM)

MODEL: dict[str, Any] = {
    "id": "demo",
    "object": "model",
    "created": _CREATED_AT,
    "owned_by": "holodeck",
    "kind": "model",
    "description": None,
    "mcp_servers": [],
}
MODELS = {"object": "list", "data": [MODEL, {**MODEL, "id": "helper", "mcp_servers": ["memory"]}]}
METRICS = (
    "# HELP holodeck_in_flight Requests at this moment.\n# TYPE holodeck_in_flight gauge\nholodeck_in_flight 0.0\n"
)
HEALTH = {"status": "ok"}

MCP_CALL = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "search_nodes", "arguments": {"query": "Ada"}},
}
_FOUND = '{\n  "entities": [],\n  "relations": []\n}'
MCP_CALL_RESULT = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {
        "content": [{"type": "text", "text": _FOUND}],
        "structuredContent": {"entities": [], "relations": []},
    },
}
MCP_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
MCP_PONG = {"jsonrpc": "2.0", "id": 1, "result": {}}
MCP_LIST_CHANGED = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
RESOURCE_METADATA = {
    "resource": "https://gateway.example.com/mcp",
    "authorization_servers": ["https://login.example.com/"],
    "bearer_methods_supported": ["header"],
    "resource_name": "HoloDeck",
}

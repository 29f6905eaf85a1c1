"""Large examples of replies that routes declare, as a gateway with the rehearsal model gives them.

The page of the HTTP API shows them, and its tests run the requests and compare the replies. A small example stands in
the declaration itself.
"""

from __future__ import annotations

from typing import Any

from holodeck.gateway.api.models.create_message import ONE_TIER
from holodeck.gateway.api.models.create_response import RESPONSE_DEFAULTS
from holodeck.models.generation import TIER

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
    **RESPONSE_DEFAULTS,
    "model": "demo",
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
    TIER: RESPONSE_DEFAULTS[TIER],
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
        **ONE_TIER,
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

RUN_ID = "resp_5f2b8f1f4bb24d3f8f4a1d0a3a0a4d5e"
_TOKENS = {
    "input_tokens": 1,
    "output_tokens": 21,
    "cached_tokens": 0,
    "cache_write_tokens": 0,
    "reasoning_tokens": 0,
    "estimated_tokens": 0,
    "total_tokens": 22,
}
RUN: dict[str, Any] = {
    "id": RUN_ID,
    "object": "run",
    "caller": "local",
    "model": "demo",
    "status": "completed",
    "created_at": 1781000000.125,
    "completed_at": 1781000000.14,
    "seconds": 0.015,
    "background": False,
    "turns": 1,
    "tool_calls": 0,
    "tools": [],
    "servers": [],
    "usage": _TOKENS,
    "cost": None,
    "first_token_seconds": 0.009,
    "error": None,
    "incomplete_reason": None,
    "question": "Hello",
    "answer": "This is a rehearsal.",
    "previous_response_id": None,
    "conversation": None,
}
_SPAN: dict[str, Any] = {
    "id": "run",
    "parent": None,
    "kind": "run",
    "name": "run",
    "server": None,
    "tool": None,
    "call_id": None,
    "start": 0.0,
    "seconds": 0.015,
    "status": "ok",
    "first_token_seconds": 0.009,
    "usage": _TOKENS,
    "cost": None,
    "arguments": None,
    "output": None,
    "is_error": None,
    "error": None,
    "input_items": None,
    "output_items": None,
    "tools": None,
}
_TURN = {**_SPAN, "id": "turn_1", "parent": "run", "kind": "turn", "name": "turn 1", "start": 0.001, "seconds": 0.014}
_MODEL = {
    **_TURN,
    "id": "model_1",
    "parent": "turn_1",
    "kind": "model",
    "name": "model",
    "input_items": [0],
    "output_items": [1],
    "tools": ["echo"],
}
TRACE: dict[str, Any] = {
    "object": "run.trace",
    "run": RUN,
    "started_at": 1781000000.125,
    "instructions": None,
    "agent_instructions": "Be brief.",
    "agent_instructions_changed": False,
    "context": {"previous_response_id": None, "conversation": None, "items": 0},
    "items": [
        {"type": "message", "role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "text", "text": "This is a rehearsal."}]},
    ],
    "spans": [_SPAN, _TURN, _MODEL],
}

USAGE = {
    "start_time": 1780999200,
    "end_time": 1781002800,
    "requests": 1,
    "errors": 0,
    "input_tokens": 1,
    "cached_tokens": 0,
    "cache_write_tokens": 0,
    "output_tokens": 21,
    "reasoning_tokens": 0,
    "estimated_tokens": 0,
    "tool_calls": 0,
    "cost": None,
    "seconds_p50": 0.015,
    "seconds_p95": 0.0195,
    "first_token_seconds_p50": 0.005,
    "first_token_seconds_p95": 0.0095,
}

NO_USAGE = {
    **dict.fromkeys(USAGE, 0),
    **dict.fromkeys(("cost", "seconds_p50", "seconds_p95", "first_token_seconds_p50", "first_token_seconds_p95")),
    "start_time": 1780995600,
    "end_time": 1780999200,
}
"""The hour before that of `USAGE`."""

QUESTION: dict[str, Any] = {
    "id": "elic_5f2b8f1f4bb24d3f8f4a1d0a3a0a4d5e",
    "object": "elicitation",
    "response_id": "resp_5f2b8f1f4bb24d3f8f4a1d0a3a0a4d5e",
    "call_id": "mcp_0a4d5e8f4a1d0a3a5f2b8f1f4bb24d3f",
    "server_label": "bookings",
    "message": "For how many people?",
    "mode": "form",
    "requested_schema": {"type": "object", "properties": {"people": {"type": "integer"}}, "required": ["people"]},
    "created_at": 1781000000,
    "expires_at": 1781000600,
}

SERVER: dict[str, Any] = {
    "name": "memory",
    "object": "mcp_server",
    "description": "Remembers facts",
    "state": "connected",
    "transport": "stdio",
    "auth": None,
    "can_log_in": False,
    "needs_login": False,
    "era": "legacy",
    "protocol_version": "2025-11-25",
    "version": "memory-server 0.6.3",
    "tools": 9,
    "restarts": 0,
    "start_seconds": 1.2,
    "last_error": None,
    "stderr": "Knowledge Graph MCP Server running on stdio",
    "next_try_at": None,
    "warnings": [],
    "withheld": [],
    "calls": 0,
    "call_seconds_p50": None,
    "call_seconds_p95": None,
}
SERVER_TOOLS = {
    "object": "list",
    "data": [
        {
            "name": "create_entities",
            "title": "Create Entities",
            "description": "Create multiple new entities in the knowledge graph",
            "input_schema": {"type": "object", "properties": {"entities": {"type": "array"}}},
            "annotations": {},
        }
    ],
}
KEY: dict[str, Any] = {
    "object": "key",
    "name": "alice",
    "id": "qkzvhtwbarme",
    "role": None,
    "group": "research",
    "owner": None,
    "allow": {"models": ["small*"]},
    "limits": None,
    "budget": None,
    "expires": None,
    "paused": False,
    "old_hash_expires": None,
    "caller_id": "key:alice#qkzvhtwbarme",
    "source": "store",
    "made_at": 1780990000,
    "made_by": "key:ops#tmwqhcxeyabr",
}
CALLER: dict[str, Any] = {
    "object": "caller",
    "id": "key:alice#qkzvhtwbarme",
    "paused": False,
    "erasing": False,
    "erased_at": None,
    "changed_at": None,
    "changed_by": None,
    "last_used_at": 1781000000,
}
SPENDING: dict[str, Any] = {"spent": 4.25, "left": 15.75, "resets_at": 1782864000}
SESSION: dict[str, Any] = {
    "object": "session",
    "id": "ses_65a1f00c3c9f2b7d4e6a8b0c1d2e3f40a1",
    "kind": "console",
    "about": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
    "created_at": 1780990000,
    "expires_at": 1781033200,
    "is_current": False,
}
ME: dict[str, Any] = {
    "object": "caller",
    "id": "jwt:anna",
    "name": "Anna Example",
    "role": None,
    "group": "research",
    "session": {**SESSION, "is_current": True},
    "allow": [[{"models": ["small*"]}]],
    "budgets": [{"owner": "The group 'research'", "amount": 20, "period": "month", **SPENDING}],
}
AUTHORIZATION_SERVER: dict[str, Any] = {
    "issuer": "https://gateway.example.com",
    "authorization_endpoint": "https://gateway.example.com/oauth/authorize",
    "token_endpoint": "https://gateway.example.com/oauth/token",
    "revocation_endpoint": "https://gateway.example.com/oauth/revoke",
    "registration_endpoint": "https://gateway.example.com/oauth/register",
    "response_types_supported": ["code"],
    "grant_types_supported": ["authorization_code", "refresh_token"],
    "code_challenge_methods_supported": ["S256"],
    "token_endpoint_auth_methods_supported": ["none"],
    "client_id_metadata_document_supported": True,
    "authorization_response_iss_parameter_supported": True,
}
ACCESS_TOKEN: dict[str, Any] = {
    "access_token": "hdp-...",
    "token_type": "Bearer",
    "expires_in": 3600,
    "refresh_token": "hd2....",
}
GROUP: dict[str, Any] = {
    "object": "group",
    "name": "research",
    "allow": {"models": ["small*"]},
    "limits": None,
    "budget": {"amount": 20, "period": "month"},
    "claim_values": ["research-team"],
    "spending": SPENDING,
}
CONFIGURATION: dict[str, Any] = {
    "object": "configuration",
    "file": "/srv/holodeck/gateway.yaml",
    "settings": {"models": [{"name": "demo", "model": {"provider": "rehearsal"}}]},
    "agents": [],
    "warnings": [],
    "watches_files": True,
    "read_at": 1700000000,
    "problems": [],
    "restart_keys": [],
}

REDIRECT_URI = "https://gateway.example.com/v1/mcp/login/callback"
LOGIN: dict[str, Any] = {
    "object": "mcp_login",
    "server": "tickets",
    "status": "waiting",
    "authorization_url": "https://login.example.com/authorize?response_type=code&client_id=holodeck&state=...",
    "redirect_uri": REDIRECT_URI,
    "expires_at": 1700000300,
    "error": None,
}
LOGIN_OVER: dict[str, Any] = {**LOGIN, "authorization_url": None}

"""What each route does: its `Operation`, by method and path.

A route without an entry here, and an entry without a route, fail a test.
"""

from __future__ import annotations

from holodeck.gateway.endpoints.responses import MAX_SEQUENCE_NUMBER
from holodeck.gateway.http.error_codes import ErrorGroup
from holodeck.gateway.http.idempotency_key import MAX_KEY_CHARS
from holodeck.gateway.http.query import LIST_LIMIT, MAX_LIST_LIMIT
from holodeck.gateway.openapi.operations import examples, operator_operations
from holodeck.gateway.openapi.operations.elicitation_operations import ELICITATION_OPERATIONS
from holodeck.gateway.openapi.operations.login_operations import LOGIN_OPERATIONS
from holodeck.gateway.openapi.operations.mcp_operations import MCP_OPERATIONS
from holodeck.gateway.openapi.operations.operation import Operation
from holodeck.gateway.openapi.operations.run_operations import RUN_OPERATIONS
from holodeck.gateway.openapi.schemas.schema import boolean, choice, integer, string

_INPUT_ERRORS: tuple[ErrorGroup, ...] = ("fields", "input", "continuation", "servers", "model", "lookup", "storage")
_MESSAGES_ERRORS: tuple[ErrorGroup, ...] = ("fields", "continuation", "thread", "servers", "model", "run")
_HANDED_ON_ERRORS: tuple[ErrorGroup, ...] = ("fields", "model", "run")
_STORED_ERRORS: tuple[ErrorGroup, ...] = ("lookup", "storage")
_PAGE = {
    "order": choice(("asc", "desc"), "`desc`, the default, has the newest first."),
    "after": string("The id of the last item of the page before."),
    "limit": integer(f"Items of a page. Left out: {LIST_LIMIT}.", minimum=1, maximum=MAX_LIST_LIMIT),
}


TAGS = {
    "Responses": (
        "A response is one answer of the model, with the tool calls that it took.\n\n"
        "The same requests can be sent over a WebSocket: open `/v1/responses` with the `Authorization` header, and "
        "send each request as a text message (schema `SocketMessage`: the body of `POST /v1/responses` with "
        '`"type": "response.create"`). The events of the response come back as messages, each one JSON object '
        "(schema `ResponseEvent`). One response runs at a time, and further messages wait. A message that is refused "
        "is answered by an `error` message (schema `SocketError`), and the connection stays open. With "
        '`"store": false` a message can still continue the latest responses of its own connection.'
    ),
    "Chat completions": "The older API, with the same models and tools. Nothing is stored.",
    "Messages": (
        "Anthropic's Messages API, with the same models and tools. Nothing is stored. A key may be sent as "
        "`x-api-key`, and errors have the form of this API."
    ),
    "Embeddings and completions": (
        "Bodies that are handed on to the provider of a model as they are. A model of the file has these routes if its "
        "provider has them: `openai`, `azure_openai`, `ollama` and `openai_compatible`. Tools are not "
        "involved. The rehearsal model of these examples has none of them."
    ),
    "Conversations": "A conversation stores items. Responses that name it read and extend it.",
    "Runs and usage": (
        "What was asked, what it took and what it cost. A caller sees its own; an operator's key without a scope sees "
        "everything."
    ),
    "Models": "The models and agents of this gateway.",
    **operator_operations.TAGS,
    "MCP": (
        "The gateway as an MCP server, over streamable HTTP. `/mcp` has the tools, prompts and resources of all MCP "
        "servers, and the agents as tools; `/mcp/{server}` has those of one server. The messages are those of the "
        "Model Context Protocol, versions 2024-11-05 to 2026-07-28. Use an MCP client."
    ),
    "Operation": "Health, metrics, this document and the console.",
}
"""What belongs together, in the order of the document."""

OPERATIONS: dict[tuple[str, str], Operation] = {
    ("POST", "/v1/responses"): Operation(
        id="createResponse",
        tag="Responses",
        summary="Create a response",
        description=(
            "Asks the model, runs the tool calls that it makes, and returns the answer.\n\n"
            "With `stream` the reply is a stream of events, which ends with `data: [DONE]`. A client that disconnects "
            "ends the run. With `background` the reply is the queued response, and the run needs no client."
        ),
        body="CreateResponse",
        example_body={"model": "demo", "input": "Hello"},
        reply="Response",
        example=examples.RESPONSE,
        stream="ResponseEvent",
        headers={
            "Idempotency-Key": string(
                "A request that is sent again with the same key within 24 hours has the response of the first, and the "
                "header `idempotent-replayed: true`. Needs `store`.",
                max_length=MAX_KEY_CHARS,
                min_length=1,
            )
        },
        errors=(*_INPUT_ERRORS, "run", "idempotency"),
    ),
    ("POST", "/v1/responses/compact"): Operation(
        id="compactConversation",
        tag="Responses",
        summary="Compact a conversation",
        description=(
            "Returns one encrypted item, which holds the conversation in fewer tokens, after those of your messages "
            "that it keeps, which you can read. Send all of it at the beginning of your next input, instead of the "
            "items before.\n\n"
            "Recent items, your messages and open calls are kept as they are. A model writes a summary of the rest. "
            "If it cannot, old outputs are cut and the oldest items left out; the reply then has the header "
            "`x-holodeck-compaction: truncated`. A short conversation is kept whole."
        ),
        body="CompactConversation",
        example_body={"model": "demo", "input": "Hello"},
        reply="CompactedConversation",
        example=examples.COMPACTED,
        errors=_INPUT_ERRORS,
    ),
    ("POST", "/v1/responses/input_tokens"): Operation(
        id="countInputTokens",
        tag="Responses",
        summary="Count the tokens of a request",
        description="Estimates the input tokens of a request, with the tools that the model would be offered.",
        body="CreateResponse",
        example_body={"model": "demo", "input": "Hello"},
        reply="InputTokens",
        example=examples.INPUT_TOKENS,
        errors=_INPUT_ERRORS,
    ),
    ("POST", "/v1/messages"): Operation(
        id="createMessage",
        tag="Messages",
        summary="Create a message",
        description=(
            "Asks the model, runs the calls of the gateway's own tools, and returns the answer. Calls of the tools in "
            "`tools` come back as `tool_use` blocks, for you to run.\n\n"
            "With `stream` the reply is a stream of events, which ends with `message_stop` or `error`. A client that "
            "disconnects ends the run."
        ),
        body="CreateMessage",
        example_body={"model": "demo", "max_tokens": 1024, "messages": [{"role": "user", "content": "Hello"}]},
        reply="CreatedMessage",
        example=examples.MESSAGE,
        stream="MessageEvent",
        error="MessagesError",
        errors=_MESSAGES_ERRORS,
    ),
    ("POST", "/v1/messages/count_tokens"): Operation(
        id="countMessageTokens",
        tag="Messages",
        summary="Count the tokens of a message",
        description="Estimates the input tokens of a request, with the tools that the model would be offered.",
        body="CountMessageTokens",
        example_body={"model": "demo", "messages": [{"role": "user", "content": "Hello"}]},
        reply="MessageTokens",
        example=examples.MESSAGE_TOKENS,
        error="MessagesError",
        errors=_MESSAGES_ERRORS,
    ),
    ("POST", "/v1/embeddings"): Operation(
        id="createEmbeddings",
        tag="Embeddings and completions",
        summary="Create embeddings",
        description="The body and the reply are those of the provider, under the name that the model has here.",
        body="CreateEmbeddings",
        example_body={"model": "demo", "input": "Hello"},
        reply="object",
        example=examples.NO_EMBEDDINGS,
        errors=_HANDED_ON_ERRORS,
    ),
    ("POST", "/v1/completions"): Operation(
        id="createCompletion",
        tag="Embeddings and completions",
        summary="Complete a prompt",
        description=(
            "The body, the reply and the chunks of a stream are those of the provider, under the name that the model "
            "has here."
        ),
        body="CreateCompletion",
        example_body={"model": "demo", "prompt": "Hello"},
        reply="object",
        example=examples.NO_COMPLETIONS,
        stream="CompletionChunk",
        errors=_HANDED_ON_ERRORS,
    ),
    ("GET", "/v1/responses/{id}"): Operation(
        id="getResponse",
        tag="Responses",
        summary="Get a response",
        description=(
            "The current state of a stored response. With `stream`, its events: those of the past, and then those that "
            "follow until its end."
        ),
        query={
            "stream": boolean("True: the reply is a stream of events."),
            "starting_after": integer(
                "With `stream`: only events after this number.", minimum=-1, maximum=MAX_SEQUENCE_NUMBER
            ),
        },
        reply="Response",
        example=examples.RESPONSE,
        stream="ResponseEvent",
        errors=(*_STORED_ERRORS, "query", "limits"),
    ),
    ("DELETE", "/v1/responses/{id}"): Operation(
        id="deleteResponse",
        tag="Responses",
        summary="Delete a response",
        description="A response that is not finished is cancelled first.",
        reply="DeletedResponse",
        example=examples.DELETED_RESPONSE,
        errors=_STORED_ERRORS,
    ),
    ("POST", "/v1/responses/{id}/cancel"): Operation(
        id="cancelResponse",
        tag="Responses",
        summary="Cancel a background response",
        description="Returns the response. A finished one stays as it is. Only background responses can be cancelled.",
        reply="Response",
        example=examples.CANCELLED_RESPONSE,
        errors=(*_STORED_ERRORS, "fields"),
    ),
    ("GET", "/v1/responses/{id}/input_items"): Operation(
        id="listInputItems",
        tag="Responses",
        summary="List the input items of a response",
        description="A page of the items that the request of the response had.",
        query=_PAGE,
        reply="ItemList",
        example=examples.INPUT_ITEMS,
        errors=(*_STORED_ERRORS, "query"),
    ),
    ("POST", "/v1/chat/completions"): Operation(
        id="createChatCompletion",
        tag="Chat completions",
        summary="Create a chat completion",
        description=(
            "Asks the model, runs the calls of MCP tools that it makes, and returns one message. With `stream` the "
            "reply is a stream of chunks, which ends with `data: [DONE]`."
        ),
        body="CreateChatCompletion",
        example_body={"model": "demo", "messages": [{"role": "user", "content": "Hello"}]},
        reply="ChatCompletion",
        example=examples.CHAT_COMPLETION,
        stream="ChatEvent",
        errors=("fields", "continuation", "servers", "model", "run"),
    ),
    ("POST", "/v1/conversations"): Operation(
        id="createConversation",
        tag="Conversations",
        summary="Create a conversation",
        description="The body may be empty.",
        body="CreateConversation",
        is_body_required=False,
        example_body={"items": [{"role": "user", "content": "Hello"}], "metadata": {"topic": "greetings"}},
        reply="Conversation",
        example=examples.CONVERSATION,
        errors=("fields", "input", "storage"),
    ),
    ("GET", "/v1/conversations"): Operation(
        id="listConversations",
        tag="Conversations",
        summary="List conversations",
        description=(
            "A page of the caller's conversations without their items, by creation. An operator's key also lists only "
            "its own. OpenAI's API has no such route."
        ),
        query={
            "order": _PAGE["order"],
            "after": string("`last_id` of the page before."),
            "limit": integer(f"Conversations of a page. Left out: {LIST_LIMIT}.", minimum=1, maximum=MAX_LIST_LIMIT),
        },
        reply="ConversationList",
        example=examples.CONVERSATIONS,
        errors=("query", "storage"),
    ),
    ("GET", "/v1/conversations/{id}"): Operation(
        id="getConversation",
        tag="Conversations",
        summary="Get a conversation",
        description="The conversation without its items.",
        reply="Conversation",
        example=examples.CONVERSATION,
        errors=_STORED_ERRORS,
    ),
    ("POST", "/v1/conversations/{id}"): Operation(
        id="updateConversation",
        tag="Conversations",
        summary="Replace the metadata of a conversation",
        description="The items stay as they are.",
        body="UpdateConversation",
        example_body={"metadata": {"topic": "small talk"}},
        reply="Conversation",
        example={**examples.CONVERSATION, "metadata": {"topic": "small talk"}},
        errors=(*_STORED_ERRORS, "fields"),
    ),
    ("DELETE", "/v1/conversations/{id}"): Operation(
        id="deleteConversation",
        tag="Conversations",
        summary="Delete a conversation",
        description="Its items are deleted with it; its responses are not.",
        reply="DeletedConversation",
        example=examples.DELETED_CONVERSATION,
        errors=_STORED_ERRORS,
    ),
    ("POST", "/v1/conversations/{id}/items"): Operation(
        id="addItems",
        tag="Conversations",
        summary="Add items to a conversation",
        description="Returns the items with their ids.",
        body="AddItems",
        example_body={"items": [{"role": "user", "content": "How are you?"}]},
        reply="ItemList",
        example=examples.ADDED_ITEMS,
        errors=(*_STORED_ERRORS, "fields", "input"),
    ),
    ("GET", "/v1/conversations/{id}/items"): Operation(
        id="listItems",
        tag="Conversations",
        summary="List the items of a conversation",
        description="A page of the items.",
        query=_PAGE,
        reply="ItemList",
        example=examples.CONVERSATION_ITEMS,
        errors=(*_STORED_ERRORS, "query"),
    ),
    ("GET", "/v1/conversations/{id}/items/{item_id}"): Operation(
        id="getItem",
        tag="Conversations",
        summary="Get an item",
        description="One item of a conversation.",
        reply="StoredItem",
        example=examples.SECOND_ITEM,
        errors=_STORED_ERRORS,
    ),
    ("DELETE", "/v1/conversations/{id}/items/{item_id}"): Operation(
        id="deleteItem",
        tag="Conversations",
        summary="Delete an item",
        description="Returns the conversation.",
        reply="Conversation",
        example={**examples.CONVERSATION, "metadata": {"topic": "small talk"}},
        errors=_STORED_ERRORS,
    ),
    ("GET", "/v1/models"): Operation(
        id="listModels",
        tag="Models",
        summary="List the models",
        description="Models and agents, by the names that `model` can have.",
        reply="ModelList",
        example=examples.MODELS,
    ),
    ("GET", "/v1/models/{id}"): Operation(
        id="getModel",
        tag="Models",
        summary="Get a model",
        description="The name may contain slashes.",
        reply="Model",
        example=examples.MODEL,
        errors=("lookup",),
    ),
    ("GET", "/metrics"): Operation(
        id="getMetrics",
        tag="Operation",
        summary="Get the metrics",
        description="Counters, gauges and histograms in the text format of Prometheus, or in OpenMetrics for a client "
        "that accepts `application/openmetrics-text`. Needs an operator's key.",
        reply="string",
        media_type="text/plain",
        other_media_types=("application/openmetrics-text",),
        example=examples.METRICS,
    ),
    ("GET", "/healthz"): Operation(
        id="getHealth",
        tag="Operation",
        summary="Check that the process answers",
        description="For a supervisor that restarts a process which hangs.",
        reply="Health",
        example=examples.HEALTH,
    ),
    ("GET", "/readyz"): Operation(
        id="getReadiness",
        tag="Operation",
        summary="Check that the gateway can serve",
        description="For a load balancer. 503 without storage, and while the gateway shuts down. `failing` names tasks "
        "of the gateway that keep failing while it serves.",
        reply="Health",
        example=examples.HEALTH,
        errors=("drain",),
        unready_reply="Health",
    ),
    ("GET", "/openapi.json"): Operation(
        id="getDocument",
        tag="Operation",
        summary="Get this document",
        description="It has no secrets, and is the same for every caller.",
        reply="object",
        example=None,
    ),
    ("GET", "/"): Operation(
        id="getConsole",
        tag="Operation",
        summary="Get the console",
        description="The page for the browser. It speaks this API only, with the key that its reader enters.",
        reply="string",
        media_type="text/html",
        example=None,
        empty_replies={304: "As the `If-None-Match` header has it."},
    ),
    ("GET", "/console/{file}"): Operation(
        id="getConsoleFile",
        tag="Operation",
        summary="Get a file of the console",
        description="A script, style or picture that the page names.",
        reply="string",
        media_type="text/javascript",
        other_media_types=("text/css", "image/svg+xml"),
        example=None,
        empty_replies={304: "As the `If-None-Match` header has it."},
        errors=("lookup",),
    ),
    **operator_operations.OPERATOR_OPERATIONS,
    **LOGIN_OPERATIONS,
    **ELICITATION_OPERATIONS,
    **RUN_OPERATIONS,
    **MCP_OPERATIONS,
}

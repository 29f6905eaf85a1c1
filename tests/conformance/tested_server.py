"""The MCP server that the suite's server scenarios expect: tools, prompts and resources with fixed answers.

It stands behind a gateway, which is what the suite tests, and speaks both eras of MCP over stdio: in the legacy
one it asks its client by requests, in the modern one by results that require input. Each answer is what the description
of a scenario asks for.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

META = "io.modelcontextprotocol/"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
PAUSE = 0.05
"""Seconds between two messages of a call: what the suite's descriptions ask for."""

Object = dict[str, Any]


class RPCError(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


class InputRequiredError(Exception):
    """A modern call needs answers of the client."""

    def __init__(self, requests: Object, state: str | None = None) -> None:
        super().__init__("input required")
        self.result: Object = {"resultType": "input_required", "inputRequests": requests}
        if state is not None:
            self.result["requestState"] = state


def text(value: str) -> Object:
    return {"type": "text", "text": value}


def ask_form(message: str, properties: Object) -> Object:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


def ask_model(prompt: str, tokens: int) -> Object:
    messages = [{"role": "user", "content": text(prompt)}]
    return {"method": "sampling/createMessage", "params": {"messages": messages, "maxTokens": tokens}}


ASK_ROOTS: Object = {"method": "roots/list", "params": {}}


class Call:
    """One request, with the ways back to its client."""

    def __init__(self, server: TestedServer, params: Object) -> None:
        self._server = server
        self.params = params
        self.arguments: Object = params.get("arguments") or {}
        self.meta: Object = params.get("_meta") or {}
        self.is_modern = f"{META}protocolVersion" in self.meta
        self.answers: Object = params.get("inputResponses") or {}

    def capabilities(self) -> Object:
        found: Object = self.meta.get(f"{META}clientCapabilities") or {}
        return found if self.is_modern else self._server.client_capabilities

    def log(self, message: str) -> None:
        if not self.is_modern or f"{META}logLevel" in self.meta:
            self._server.notify("notifications/message", level="info", logger="tested", data=message)

    def progress(self, done: int, total: int) -> None:
        token = self.meta.get("progressToken")
        if token is not None:
            self._server.notify("notifications/progress", progressToken=token, progress=done, total=total)

    async def ask(self, key: str, request: Object) -> Object:
        """The answer of the client: by a request in the legacy era, by a result that requires input in the modern."""
        if not self.is_modern:
            return await self._server.request(request)
        if key not in self.answers:
            raise InputRequiredError({key: request})
        answer: Object = self.answers[key]
        return answer


def _elicited(answer: Object) -> Object:
    shown = f"action={answer['action']}, content={json.dumps(answer.get('content'))}"
    return {"content": [text(f"Elicitation completed: {shown}")]}


async def _log(call: Call) -> Object:
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        call.log(message)
        await asyncio.sleep(PAUSE)
    return {"content": [text("Logged")]}


async def _progress(call: Call) -> Object:
    for done in (0, 50, 100):
        call.progress(done, 100)
        await asyncio.sleep(PAUSE)
    return {"content": [text("Done")]}


async def _sample(call: Call) -> Object:
    answer = await call.ask("sampling", ask_model(call.arguments["prompt"], 100))
    return {"content": [text(f"LLM response: {answer['content']['text']}")]}


async def _elicit(call: Call) -> Object:
    fields = {
        "username": {"type": "string", "description": "User's response"},
        "email": {"type": "string", "description": "User's email address"},
    }
    answer = await call.ask("elicitation", ask_form(call.arguments["message"], fields))
    return {"content": [text(f"User response: action={answer['action']}, content={answer.get('content')}")]}


async def _elicit_defaults(call: Call) -> Object:
    fields = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return _elicited(await call.ask("defaults", ask_form("Defaults", fields)))


async def _elicit_enums(call: Call) -> Object:
    names = ["option1", "option2", "option3"]
    titled = [
        {"const": f"value{number}", "title": f"{word} Option"} for number, word in enumerate(("First", "Second"), 1)
    ]
    fields = {
        "untitledSingle": {"type": "string", "enum": names},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": names}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return _elicited(await call.ask("enums", ask_form("Enums", fields)))


async def _fail(call: Call) -> Object:
    return {"isError": True, "content": [text("This tool intentionally returns an error for testing")]}


async def _name(call: Call) -> Object:
    answer = await call.ask("user_name", ask_form("What is your name?", {"name": {"type": "string"}}))
    return {"content": [text(f"Hello, {answer['content']['name']}!")]}


async def _capital(call: Call) -> Object:
    answer = await call.ask("capital_question", ask_model("What is the capital of France?", 100))
    return {"content": [text(answer["content"]["text"])]}


async def _roots(call: Call) -> Object:
    answer = await call.ask("client_roots", ASK_ROOTS)
    return {"content": [text(", ".join(root["uri"] for root in answer["roots"]))]}


async def _state(call: Call) -> Object:
    question = {"confirm": ask_form("Please confirm", {"ok": {"type": "boolean"}})}
    if "confirm" not in call.answers:
        raise InputRequiredError(question, "state-1")
    if call.params.get("requestState") != "state-1":
        raise RPCError(-32602, "The state is not mine")
    return {"content": [text("state-ok")]}


async def _several(call: Call) -> Object:
    questions = {
        "user_name": ask_form("What is your name?", {"name": {"type": "string"}}),
        "greeting": ask_model("Generate a greeting", 50),
        "client_roots": ASK_ROOTS,
    }
    if not questions.keys() <= call.answers.keys():
        raise InputRequiredError(questions, "several-1")
    return {"content": [text("All answered")]}


async def _rounds(call: Call) -> Object:
    state = call.params.get("requestState")
    if state is None:
        raise InputRequiredError(
            {"step1": ask_form("Step 1: What is your name?", {"name": {"type": "string"}})}, "round-1"
        )
    if state == "round-1":
        fields = {"color": {"type": "string"}}
        raise InputRequiredError({"step2": ask_form("Step 2: What is your favorite color?", fields)}, "round-2")
    return {"content": [text("Both answered")]}


async def _only_declared(call: Call) -> Object:
    questions = {}
    if "elicitation" in call.capabilities():
        questions["form"] = ask_form("A form", {"ok": {"type": "boolean"}})
    if "sampling" in call.capabilities():
        questions["model"] = ask_model("A model", 10)
    if questions and not questions.keys() <= call.answers.keys():
        raise InputRequiredError(questions)
    return {"content": [text("Nothing to ask")]}


async def _need_sampling(call: Call) -> Object:
    if "sampling" not in call.capabilities():
        raise RPCError(-32021, "The client must support sampling", {"requiredCapabilities": {"sampling": {}}})
    return {"content": [text("It can")]}


async def _ask_in_stream(call: Call) -> Object:
    answer = await call.ask("stream", ask_form("Go on?", {"ok": {"type": "boolean"}}))
    return {"content": [text(str(answer.get("action")))]}


def _constant(*content: Object) -> Callable[[Call], Awaitable[Object]]:
    async def answer(call: Call) -> Object:
        return {"content": list(content)}

    return answer


def _resource(uri: str, kind: str, value: str) -> Object:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": value}}


_IMAGE: Object = {"type": "image", "data": PNG, "mimeType": "image/png"}
TOOLS: Mapping[str, Callable[[Call], Awaitable[Object]]] = {
    "test_simple_text": _constant(text("This is a simple text response for testing.")),
    "test_image_content": _constant(_IMAGE),
    "test_audio_content": _constant({"type": "audio", "data": WAV, "mimeType": "audio/wav"}),
    "test_embedded_resource": _constant(
        _resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ),
    "test_multiple_content_types": _constant(
        text("Multiple content types test:"),
        _IMAGE,
        _resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ),
    "test_tool_with_logging": _log,
    "test_logging_tool": _log,
    "test_tool_with_progress": _progress,
    "test_error_handling": _fail,
    "test_sampling": _sample,
    "test_elicitation": _elicit,
    "test_elicitation_sep1034_defaults": _elicit_defaults,
    "test_elicitation_sep1330_enums": _elicit_enums,
    "test_reconnection": _log,
    "test_streaming_elicitation": _ask_in_stream,
    "test_input_required_result_elicitation": _name,
    "test_input_required_result_sampling": _capital,
    "test_input_required_result_list_roots": _roots,
    "test_input_required_result_request_state": _state,
    "test_input_required_result_tampered_state": _state,
    "test_input_required_result_multiple_inputs": _several,
    "test_input_required_result_multi_round": _rounds,
    "test_input_required_result_capabilities": _only_declared,
    "test_missing_capability": _need_sampling,
    "test_custom_headers": _constant(text("Accepted")),
    "json_schema_2020_12_tool": _constant(text("Described")),
}
SCHEMAS: Mapping[str, Object] = {
    "test_sampling": {"properties": {"prompt": {"type": "string"}}, "required": ["prompt"]},
    "test_elicitation": {"properties": {"message": {"type": "string"}}, "required": ["message"]},
    "test_custom_headers": {"properties": {"region": {"type": "string", "x-mcp-header": "Region"}}},
    "json_schema_2020_12_tool": {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
            }
        },
        "properties": {
            "name": {"type": "string"},
            "address": {"$ref": "#/$defs/address"},
            "contactMethod": {"type": "string", "enum": ["phone", "email"]},
            "phone": {"type": "string"},
            "email": {"type": "string"},
        },
        "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
        "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
        "then": {"required": ["phone"]},
        "else": {"required": ["email"]},
        "additionalProperties": False,
    },
}
PROMPTS: list[Object] = [
    {"name": "test_simple_prompt", "description": "A simple prompt"},
    {
        "name": "test_prompt_with_arguments",
        "description": "A prompt with arguments",
        "arguments": [{"name": "arg1", "required": True}, {"name": "arg2", "required": True}],
    },
    {
        "name": "test_prompt_with_embedded_resource",
        "description": "A prompt with a resource",
        "arguments": [{"name": "resourceUri", "required": True}],
    },
    {"name": "test_prompt_with_image", "description": "A prompt with an image"},
    {"name": "test_input_required_result_prompt", "description": "A prompt that asks"},
]
RESOURCES: Mapping[str, Object] = {
    "test://static-text": {"mimeType": "text/plain", "text": "This is the content of the static text resource."},
    "test://static-binary": {"mimeType": "image/png", "blob": PNG},
    "test://watched-resource": {"mimeType": "text/plain", "text": "Watched"},
}


class TestedServer:
    """The server on one pair of pipes."""

    __test__ = False

    def __init__(self) -> None:
        self.client_capabilities: Object = {}
        self._added_tools: list[str] = []
        self._added_prompts: list[str] = []
        self._listeners: dict[int | str, Object] = {}
        self._answers: dict[str, asyncio.Future[Object]] = {}
        self._tasks: dict[int | str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=2**26)
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        while line := await reader.readline():
            message = json.loads(line)
            if "method" not in message:
                self._answers.pop(message["id"]).set_result(message["result"])
            elif "id" in message:
                self._tasks[message["id"]] = asyncio.create_task(self._answer(message))
            elif message["method"] == "notifications/cancelled":
                self._tasks[message["params"]["requestId"]].cancel()

    def notify(self, method: str, **params: Any) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, request: Object) -> Object:
        key = f"ask-{len(self._answers) + 1}"
        future = self._answers[key] = asyncio.get_running_loop().create_future()
        self._write({"jsonrpc": "2.0", "id": key, **request})
        answer: Object = await future
        return answer

    async def _answer(self, message: Object) -> None:
        params: Object = message.get("params") or {}
        call = Call(self, params)
        try:
            result = await self._handle(message["method"], message["id"], call)
        except InputRequiredError as required:
            result = required.result
        except RPCError as error:
            data = {} if error.data is None else {"data": error.data}
            described = {"code": error.code, "message": str(error), **data}
            self._write({"jsonrpc": "2.0", "id": message["id"], "error": described})
            return
        if call.is_modern:
            result = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **result}
        self._write({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _handle(self, method: str, request_id: int | str, call: Call) -> Object:
        if method == "subscriptions/listen" and call.is_modern:
            return await self._listen(request_id, call)
        handlers: Mapping[str, Callable[[Call], Awaitable[Object]]] = {
            "tools/call": self._call_tool,
            "prompts/get": self._get_prompt,
        }
        if method in handlers:
            return await handlers[method](call)
        own = self._answer_modern(method) if call.is_modern else self._answer_legacy(method, call)
        result = self._answer_both(method, call) if own is None else own
        if result is None:
            raise RPCError(-32601, f"Method not found: {method}")
        return result

    def _answer_modern(self, method: str) -> Object | None:
        return {"supportedVersions": ["2026-07-28"], **self._describe()} if method == "server/discover" else None

    def _answer_legacy(self, method: str, call: Call) -> Object | None:
        if method == "initialize":
            self.client_capabilities = call.params["capabilities"]
            return {"protocolVersion": "2025-11-25", **self._describe()}
        return {} if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe") else None

    def _answer_both(self, method: str, call: Call) -> Object | None:
        match method:
            case "tools/list":
                return {"tools": [self._describe_tool(name) for name in (*TOOLS, *_TRIGGERS, *self._added_tools)]}
            case "prompts/list":
                added = [{"name": name, "description": "Added"} for name in self._added_prompts]
                return {"prompts": [*PROMPTS, *added]}
            case "resources/list":
                listed = [
                    {"uri": uri, "name": uri.rpartition("/")[2], "description": uri, "mimeType": entry["mimeType"]}
                    for uri, entry in RESOURCES.items()
                ]
                return {"resources": listed}
            case "resources/templates/list":
                template = {"uriTemplate": "test://template/{id}/data", "name": "data", "description": "Data of an id"}
                return {"resourceTemplates": [{**template, "mimeType": "application/json"}]}
            case "resources/read":
                return self._read(str(call.params["uri"]))
            case "completion/complete":
                return {"completion": {"values": ["paris", "park", "party"], "total": 3, "hasMore": False}}
        return None

    def _describe(self) -> Object:
        changes = {"listChanged": True}
        return {
            "capabilities": {
                "tools": changes,
                "prompts": changes,
                "resources": {"subscribe": True, **changes},
                "logging": {},
                "completions": {},
            },
            "serverInfo": {"name": "tested", "version": "1"},
        }

    def _describe_tool(self, name: str) -> Object:
        schema = {"type": "object", "properties": {}, **SCHEMAS.get(name, {})}
        return {"name": name, "description": f"The tool {name}", "inputSchema": schema}

    async def _listen(self, request_id: int | str, call: Call) -> Object:
        wanted = call.params["notifications"]
        meta = {f"{META}subscriptionId": request_id}
        self.notify("notifications/subscriptions/acknowledged", notifications=wanted, _meta=meta)
        self._listeners[request_id] = wanted
        try:
            await asyncio.Event().wait()
        finally:
            del self._listeners[request_id]
        return {}

    async def _call_tool(self, call: Call) -> Object:
        name = call.params["name"]
        if name in _TRIGGERS:
            self._add(_TRIGGERS[name], call)
            return {"content": [text("Changed")]}
        if name in TOOLS:
            return await TOOLS[name](call)
        if name in self._added_tools:
            return {"content": [text("Added")]}
        raise RPCError(-32602, f"Unknown tool: {name}")

    def _add(self, area: str, call: Call) -> None:
        added = self._added_tools if area == "tools" else self._added_prompts
        added.append(f"added_{area}_{len(added)}")
        if not call.is_modern:
            self.notify(f"notifications/{area}/list_changed")
        for request_id, wanted in self._listeners.items():
            if wanted.get(f"{area}ListChanged"):
                self.notify(f"notifications/{area}/list_changed", _meta={f"{META}subscriptionId": request_id})

    async def _get_prompt(self, call: Call) -> Object:
        match call.params["name"]:
            case "test_simple_prompt":
                contents = [text("This is a simple prompt for testing.")]
            case "test_prompt_with_arguments":
                given = call.arguments
                contents = [text(f"Prompt with arguments: arg1='{given['arg1']}', arg2='{given['arg2']}'")]
            case "test_prompt_with_embedded_resource":
                uri = call.arguments["resourceUri"]
                embedded = _resource(uri, "text/plain", "Embedded resource content for testing.")
                contents = [embedded, text("Please process the embedded resource above.")]
            case "test_prompt_with_image":
                contents = [_IMAGE, text("Please analyze the image above.")]
            case "test_input_required_result_prompt":
                question = ask_form("What context should the prompt use?", {"context": {"type": "string"}})
                answer = await call.ask("user_context", question)
                contents = [text(f"Context: {answer['content']['context']}")]
            case name:
                raise RPCError(-32602, f"Unknown prompt: {name}")
        return {"messages": [{"role": "user", "content": content} for content in contents]}

    def _read(self, uri: str) -> Object:
        if uri in RESOURCES:
            return {"contents": [{"uri": uri, **RESOURCES[uri]}]}
        parts = uri.removeprefix("test://template/").split("/")
        if uri.startswith("test://template/") and parts[1:] == ["data"]:
            data = json.dumps({"id": parts[0], "templateTest": True, "data": f"Data for ID: {parts[0]}"})
            return {"contents": [{"uri": uri, "mimeType": "application/json", "text": data}]}
        raise RPCError(-32602, "Resource not found", {"uri": uri})

    def _write(self, message: Object) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


_TRIGGERS = {"test_trigger_tool_change": "tools", "test_trigger_prompt_change": "prompts"}


if __name__ == "__main__":
    asyncio.run(TestedServer().run())

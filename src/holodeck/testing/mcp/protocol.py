"""The server side of MCP in both eras: a function from a message to actions, without I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holodeck.testing.mcp.actions import Action, Listen, Message, Notify, Push, Reply, build_notification
from holodeck.testing.mcp.distortions import distort
from holodeck.testing.mcp.faults import REGEX_CHARS, Era, Fault
from holodeck.testing.mcp.tasks import EXTENSION, TaskBook, build_task_result
from holodeck.testing.mcp.tool_lists import (
    LISTS,
    REMOTE_SCHEMA_URL,
    RESOURCE_NOT_FOUND,
    Page,
    ResourceStore,
    complete,
    remote_schema_list,
)
from holodeck.testing.mcp.tools import (
    INSTRUCTIONS,
    INVALID_PARAMS,
    LEGACY_VERSIONS,
    MODERN_VERSION,
    SERVER_INFO,
    TASK_TOOLS,
    CallRefused,
    ToolCall,
    answer_call,
    list_prompt_entries,
    list_tool_entries,
    prompt_text,
    server_capabilities,
)

META = "io.modelcontextprotocol/"
METHOD_NOT_FOUND = -32601
INVALID_REQUEST = -32600
UNSUPPORTED_VERSION = -32022
MISSING_CAPABILITY = -32021
_TOPICS = {
    "toolsListChanged": "notifications/tools/list_changed",
    "promptsListChanged": "notifications/prompts/list_changed",
    "resourcesListChanged": "notifications/resources/list_changed",
}


@dataclass(kw_only=True)
class ServerSession:
    """State of one connection or session; in the stateless modern era there is one for all clients."""

    era: Era
    version: str | None = None
    """The newest version that a legacy server speaks."""
    ttl_ms: int = 0
    """Milliseconds for which a modern client may cache a list."""
    added_tools: list[str] = field(default_factory=list)
    """Names of tools added while the server runs; sessions may share the list."""
    redefined_tools: dict[str, Message] = field(default_factory=dict)
    """By name, fields of a tool's entry that replace the normal ones; sessions may share the mapping."""
    resources: ResourceStore = field(default_factory=ResourceStore)
    """What can be read; sessions may share it."""
    subscribed: set[str] = field(default_factory=set)
    """URIs of the resources that a legacy client has subscribed to."""
    is_initialized: bool = False
    client_capabilities: Message = field(default_factory=dict)
    schema_url: str = REMOTE_SCHEMA_URL
    """URL of the schema that a client must not fetch."""
    task_book: TaskBook = field(default_factory=TaskBook)
    """The tasks; sessions may share them."""
    _list_fault: Fault | None = None
    _call_fault: Fault | None = None

    def actions_for(self, message: Message, fault: Fault | None = None) -> list[Action]:
        """Return the actions for a request, changed by the fault; none for a notification or an answer."""
        if "method" not in message or "id" not in message:
            return []
        try:
            actions = self._answer(message, fault)
        except CallRefused as refusal:
            actions = [error_reply(message["id"], refusal.code, str(refusal))]
        return distort(fault, actions) if fault else actions

    def _answer(self, message: Message, fault: Fault | None) -> list[Action]:
        method, params = message["method"], message.get("params") or {}
        if self.era == "modern":
            self._check_modern(method, params)
        elif not self.is_initialized and method not in ("initialize", "ping", "server/discover"):
            raise CallRefused(INVALID_REQUEST, "The client has not initialized this session.")
        answer = self._methods().get(method)
        if answer is None:
            raise CallRefused(METHOD_NOT_FOUND, f"Method not found: {method}")
        if method == "tools/list":
            self._list_fault = fault
        self._call_fault = fault
        return answer(message["id"], params)

    def _methods(self) -> dict[str, Callable[[int | str, Message], list[Action]]]:
        shared = {
            "tools/list": self._list_tools,
            "tools/call": self._call_tool,
            "prompts/list": self._list_prompts,
            "prompts/get": self._get_prompt,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read_resource,
            "completion/complete": self._complete,
            "tasks/get": self._get_task,
            "tasks/cancel": self._cancel_task,
        }
        if self.era == "modern":
            return {
                **shared,
                "server/discover": self._discover,
                "subscriptions/listen": self._listen,
                "tasks/update": self._update_task,
            }
        return {
            **shared,
            "tasks/result": self._get_task_result,
            "initialize": self._initialize,
            "ping": self._reply_empty,
            "logging/setLevel": self._reply_empty,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }

    def _check_modern(self, method: str, params: Message) -> None:
        meta = params.get("_meta") or {}
        version = meta.get(f"{META}protocolVersion")
        if method == "initialize" or (version is not None and version != MODERN_VERSION):
            raise CallRefused(UNSUPPORTED_VERSION, "Unsupported protocol version")
        if version is None or f"{META}clientCapabilities" not in meta:
            raise CallRefused(INVALID_PARAMS, "_meta needs protocolVersion and clientCapabilities.")
        self.client_capabilities = meta[f"{META}clientCapabilities"]

    def _reply(self, request: int | str, result: Message, *, cacheable: bool = False) -> Reply:
        if self.era == "modern":
            extra: Message = {"resultType": "complete", "_meta": {f"{META}serverInfo": SERVER_INFO}}
            if cacheable:
                extra |= {"ttlMs": self.ttl_ms, "cacheScope": "private"}
            result = {**extra, **result}
        return Reply({"jsonrpc": "2.0", "id": request, "result": result})

    @property
    def _has_tasks(self) -> bool:
        """False for a server of a version before tasks, which runs all tools directly."""
        return self.era == "modern" or self.version in (None, LEGACY_VERSIONS[-1])

    def _reply_empty(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, {})]

    def _initialize(self, request: int | str, params: Message) -> list[Action]:
        known = LEGACY_VERSIONS[: LEGACY_VERSIONS.index(self.version) + 1] if self.version else LEGACY_VERSIONS
        requested = params.get("protocolVersion")
        self.is_initialized, self.client_capabilities = True, params.get("capabilities") or {}
        result = {
            "protocolVersion": requested if requested in known else known[-1],
            "capabilities": server_capabilities(self.era, has_tasks=self._has_tasks),
            "serverInfo": SERVER_INFO,
            "instructions": INSTRUCTIONS,
        }
        return [self._reply(request, result)]

    def _discover(self, request: int | str, params: Message) -> list[Action]:
        result = {
            "supportedVersions": [MODERN_VERSION],
            "capabilities": server_capabilities(self.era, has_tasks=self._has_tasks),
            "instructions": INSTRUCTIONS,
        }
        return [self._reply(request, result, cacheable=True)]

    def _listen(self, request: int | str, params: Message) -> list[Action]:
        requested = params.get("notifications") or {}
        granted: Message = {topic: True for topic in _TOPICS if requested.get(topic)}
        methods = frozenset(_TOPICS[topic] for topic in granted)
        watched = [uri for uri in requested.get("resourceSubscriptions") or () if self.resources.find_contents(uri)]
        if watched:
            granted["resourceSubscriptions"] = watched
        ack = build_notification(
            "notifications/subscriptions/acknowledged",
            notifications=granted,
            _meta={f"{META}subscriptionId": request},
        )
        return [Notify(ack), Listen(request, methods, frozenset(watched))]

    def _subscribe(self, request: int | str, params: Message) -> list[Action]:
        self._require_contents(params)
        self.subscribed.add(str(params["uri"]))
        return [self._reply(request, {})]

    def _unsubscribe(self, request: int | str, params: Message) -> list[Action]:
        self.subscribed.discard(str(params.get("uri")))
        return [self._reply(request, {})]

    def _list_tools(self, request: int | str, params: Message) -> list[Action]:
        own = [
            {**entry, **self.redefined_tools.get(str(entry["name"]), {})}
            for entry in list_tool_entries(self.era, self.added_tools)
        ]
        pages: Page | None = LISTS.get(self._list_fault) if self._list_fault else None
        if self._list_fault is Fault.REMOTE_REF:
            pages = remote_schema_list(self.schema_url)
        page = pages(own, params.get("cursor")) if pages else {"tools": own}
        return [self._reply(request, page, cacheable=True)]

    def _list_prompts(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, {"prompts": list_prompt_entries()}, cacheable=True)]

    def _get_prompt(self, request: int | str, params: Message) -> list[Action]:
        name = str(params.get("name"))
        text = prompt_text(name, params.get("arguments") or {})
        if text is None:
            raise CallRefused(INVALID_PARAMS, f"Unknown prompt or missing argument: {name}")
        content = {"role": "user", "content": {"type": "text", "text": text}}
        return [self._reply(request, {"description": name, "messages": [content]})]

    def _list_resources(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, {"resources": self.resources.list_entries()}, cacheable=True)]

    def _list_templates(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, {"resourceTemplates": self.resources.list_templates()}, cacheable=True)]

    def _read_resource(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, {"contents": self._require_contents(params)}, cacheable=True)]

    def _require_contents(self, params: Message) -> list[Message]:
        uri = str(params.get("uri"))
        contents = self.resources.find_contents(uri)
        if contents is None:
            code = INVALID_PARAMS if self.era == "modern" else RESOURCE_NOT_FOUND
            raise CallRefused(code, f"Unknown resource: {uri}")
        return contents

    def _complete(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, complete(params))]

    def _call_tool(self, request: int | str, params: Message) -> list[Action]:
        name = str(params.get("name"))
        if name not in {each["name"] for each in list_tool_entries(self.era, self.added_tools)} and not name.startswith(
            "tool_"
        ):
            raise CallRefused(INVALID_PARAMS, f"Unknown tool: {name}")
        if name == "structured" and self._list_fault is Fault.SLOW_SCHEMA_REGEX:
            slow_result: dict[str, Any] = {"content": [], "structuredContent": {"total": "a" * REGEX_CHARS}}
            return [self._reply(request, slow_result)]
        if name == "grow":
            self.added_tools.append(f"grown_{len(self.added_tools) + 1}")
        call = ToolCall(
            id=request,
            name=name,
            arguments=params.get("arguments") or {},
            params=params,
            era=self.era,
            client=self.client_capabilities,
            reply=lambda result: self._reply(request, result),
        )
        if name in TASK_TOOLS:
            return [call.reply(self._start_task(call))]
        actions = answer_call(call)
        if name == "release":
            actions = [*self.task_book.release(self.era), *actions]
        if self._call_fault is Fault.UNASKED_TASK and isinstance(actions[-1], Reply):
            task = self.task_book.create(name, {}, actions[-1].message["result"])
            return [call.reply({"resultType": "task", **task.describe(self.era)})]
        return actions

    def _start_task(self, call: ToolCall) -> Message:
        """Return the answer to a call of a tool that runs as a task: the task, or its result at once."""
        is_required = TASK_TOOLS[call.name] == "required" and self._has_tasks
        if self.era == "legacy":
            if "task" in call.params:
                return {"task": self.task_book.create(call.name, call.arguments).describe(self.era)}
            if is_required:
                raise CallRefused(METHOD_NOT_FOUND, f"The tool '{call.name}' runs only as a task.")
        elif is_required:
            if EXTENSION not in self.client_capabilities.get("extensions", {}):
                raise CallRefused(MISSING_CAPABILITY, "Missing required client capability")
            return {"resultType": "task", **self.task_book.create(call.name, call.arguments).describe(self.era)}
        return build_task_result(call.arguments)

    def _get_task(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, self.task_book.get(params, self.era))]

    def _get_task_result(self, request: int | str, params: Message) -> list[Action]:
        task = self.task_book.require(params)
        if task.status == "input_required":
            return self.task_book.ask_client(task, lambda result: self._reply(request, result))
        if task.status == "working":
            raise CallRefused(INVALID_PARAMS, "The task has not ended.")
        related = {"_meta": {f"{META}related-task": {"taskId": task.id}}}
        return [self._reply(request, {**task.build_result(), **related})]

    def _update_task(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, self.task_book.update(params))]

    def _cancel_task(self, request: int | str, params: Message) -> list[Action]:
        return [self._reply(request, self.task_book.cancel(params, self.era))]


def error_reply(request: int | str | None, code: int, message: str) -> Reply:
    """Return a JSON-RPC error; for an unsupported version with the supported ones."""
    details: Message = {"code": code, "message": message}
    if code == UNSUPPORTED_VERSION:
        details["data"] = {"supported": [MODERN_VERSION], "requested": "unknown"}
    return Reply({"jsonrpc": "2.0", "id": request, "error": details})


def notification_of(push: Push, subscription: int | str | None = None) -> Message:
    """Return the notification of a push, marked with the id of the subscription, if any."""
    params = {**(push.params or {}), **({} if push.uri is None else {"uri": push.uri})}
    if subscription is None:
        return build_notification(push.method, **params)
    return build_notification(push.method, **params, _meta={f"{META}subscriptionId": subscription})

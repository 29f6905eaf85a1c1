"""Everything that an MCP client sees of `server-everything`: each feature is used once, and recorded by its name.

The same script runs against the server itself and against HoloDeck in front of it. What differs by nature between two
runs (times of day, random ids and log levels) is replaced before it is recorded. Notifications are waited for.
"""

from __future__ import annotations

import asyncio
import base64
import re
import warnings
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import mcp
import mcp_types as types
from mcp import Client
from mcp.client import Transport
from mcp.client.session import ClientRequestContext
from mcp.client.subscriptions import Subscription
from mcp.shared.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from pydantic import BaseModel

MODERN = "2026-07-28"
TEXT_RESOURCE = "demo://resource/dynamic/text/1"
FILE_NAME = "hello.txt.gz"
FILE_RESOURCE = f"demo://resource/session/{FILE_NAME}"
DATA = "data:text/plain;base64," + base64.b64encode(b"hello").decode()
# Tools that the server adds only when it knows what its client can do.
CONDITIONAL_TOOLS = frozenset({"trigger-sampling-request", "trigger-elicitation-request", "trigger-url-elicitation"})

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("echo", {"message": "grüß dich, 世界"}),
    ("get-annotated-message", {"messageType": "success", "includeImage": True}),
    ("get-annotated-message", {"messageType": "error"}),
    ("get-annotated-message", {"messageType": "debug"}),
    ("get-resource-links", {"count": 3}),
    ("get-resource-reference", {"resourceType": "Text", "resourceId": 1}),
    ("get-resource-reference", {"resourceType": "Blob", "resourceId": 2}),
    ("get-structured-content", {"location": "New York"}),
    ("get-sum", {"a": 2, "b": 3.5}),
    ("get-tiny-image", {}),
    ("trigger-sampling-request", {"prompt": "2 + 2?", "maxTokens": 50}),
    ("trigger-elicitation-request", {}),
    ("trigger-url-elicitation", {"url": "https://example.com/", "message": "Please open", "elicitationId": "7"}),
    ("get-roots-list", {}),
    ("trigger-url-elicitation", {"url": "https://example.com/", "elicitationId": "8", "errorPath": True}),
    # Errors of each kind.
    ("get-resource-reference", {"resourceType": "Text", "resourceId": -1}),
    ("get-sum", {"a": "two", "b": 3}),
    ("no-such-tool", {}),
)
PROMPTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("simple-prompt", {}),
    ("args-prompt", {"city": "Lisbon", "state": "Estremadura"}),
    ("completable-prompt", {"department": "Sales", "name": "Eve"}),
    ("resource-prompt", {"resourceType": "Text", "resourceId": "1"}),
    ("args-prompt", {}),
    ("resource-prompt", {"resourceType": "Nothing", "resourceId": "1"}),
    ("no-such-prompt", {}),
)
_PROMPT = types.PromptReference(type="ref/prompt", name="completable-prompt")
_TEMPLATE = types.ResourceTemplateReference(type="ref/resource", uri="demo://resource/dynamic/text/{resourceId}")
COMPLETIONS: tuple[tuple[Any, dict[str, str], dict[str, str] | None], ...] = (
    (_PROMPT, {"name": "department", "value": "S"}, None),
    (_PROMPT, {"name": "name", "value": ""}, {"department": "Sales"}),
    (_TEMPLATE, {"name": "resourceId", "value": "4"}, None),
    (types.PromptReference(type="ref/prompt", name="no-such-prompt"), {"name": "name", "value": ""}, None),
)
RESOURCES = (TEXT_RESOURCE, "demo://resource/dynamic/blob/2", "demo://resource/dynamic/text/none", "demo://nothing")

Record = dict[str, Any]
# Times of day, and random ids.
_VARYING = re.compile(r"\d{1,2}:\d\d:\d\d(\s?[AP]M)?|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class RecordingClient:
    """A client that answers every question of the server, and notes what it is told and asked."""

    def __init__(self) -> None:
        self.questions: list[Any] = []
        self.roots = [types.Root(uri="file:///home/ada", name="ada")]
        self._notifications: list[dict[str, Any]] = []
        self._arrived = asyncio.Event()

    def open(self, transport: Transport, mode: str) -> Client:
        """A client that is not connected yet."""
        return Client(
            transport,
            mode=mode,
            read_timeout_seconds=60,
            sampling_callback=self._sample,
            elicitation_callback=self._elicit,
            list_roots_callback=self._list_roots,
            logging_callback=self._log,
            message_handler=self._handle_message,
            log_level="debug",
        )

    def note(self, method: str, params: dict[str, Any]) -> None:
        self._notifications.append({"method": method, "params": params})
        self._arrived.set()

    async def wait_notification(self, method: str, **wanted: Any) -> dict[str, Any]:
        """The first notification of this kind that has these parameters; what came before it is forgotten."""
        while True:
            for index, each in enumerate(self._notifications):
                if each["method"] == method and wanted.items() <= each["params"].items():
                    del self._notifications[: index + 1]
                    return each
            self._arrived.clear()
            await self._arrived.wait()

    def take_logged(self) -> list[Any]:
        """The texts of the log messages so far."""
        return [each["params"]["data"] for each in self._notifications if each["method"] == "notifications/message"]

    async def _handle_message(self, message: Any) -> None:
        if isinstance(message, BaseModel) and not isinstance(message, types.LoggingMessageNotification):
            dumped = message.model_dump(mode="json", by_alias=True, exclude_none=True)
            self.note(str(dumped.get("method")), dumped.get("params") or {})

    async def _log(self, params: types.LoggingMessageNotificationParams) -> None:
        self.note("notifications/message", params.model_dump(mode="json", by_alias=True, exclude_none=True))

    async def _sample(
        self, context: ClientRequestContext, params: types.CreateMessageRequestParams
    ) -> types.CreateMessageResult:
        self.questions.append(_dump(params))
        content = types.TextContent(type="text", text="Four, of course.")
        return types.CreateMessageResult(role="assistant", model="test", content=content, stop_reason="endTurn")

    async def _elicit(self, context: ClientRequestContext, params: types.ElicitRequestParams) -> types.ElicitResult:
        self.questions.append(_dump(params))
        if isinstance(params, types.ElicitRequestURLParams):
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"name": "Ada", "check": True, "integer": 7})

    async def _list_roots(self, context: ClientRequestContext) -> types.ListRootsResult:
        self.note("roots/list", {})
        return types.ListRootsResult(roots=self.roots)


async def record_features(transport: Transport, mode: str, *, is_shared: bool = False) -> Record:
    """Use every feature of the server behind this transport, and return what the client saw, by feature.

    `is_shared`: the server may have other clients as well, so its words outside of a call are not waited for.
    """
    recording = RecordingClient()
    with warnings.catch_warnings():
        # The legacy era is deprecated by its authors, and is what this server speaks.
        warnings.simplefilter("ignore", mcp.MCPDeprecationWarning)
        async with recording.open(transport, mode) as client:
            tour = _Tour(client, recording, is_shared=is_shared)
            await tour.run()
            return tour.record


class _Tour:
    """One run of the script."""

    def __init__(self, client: Client, recording: RecordingClient, *, is_shared: bool) -> None:
        self.record: Record = {}
        self._is_shared = is_shared
        self._client = client
        self._recording = recording
        self._is_modern = client.protocol_version >= MODERN

    async def run(self) -> None:
        self._record_handshake()
        async with AsyncExitStack() as stack:
            if self._is_modern:
                listening = await stack.enter_async_context(
                    self._client.listen(
                        tools_list_changed=True, resources_list_changed=True, resource_subscriptions=[TEXT_RESOURCE]
                    )
                )
                reading = asyncio.create_task(self._read_events(listening))
                stack.callback(reading.cancel)
            await self._record_tools()
            await self._record_calls()
            await self._record_prompts()
            await self._record_resources()
            await self._record_progress()
            await self._record_cancellation()
            await self._record_updates()
            await self._record_log()
            await self._record_roots_change()

    def _record_handshake(self) -> None:
        client = self._client
        self.record["protocol version"] = client.protocol_version
        self.record["server info"] = _dump(client.server_info)
        self.record["instructions"] = client.instructions
        for name, value in _dump(client.server_capabilities).items():
            self.record[f"capability {name}"] = value

    async def _record_tools(self) -> None:
        tools = await self._list_tools()
        while not tools.keys() >= CONDITIONAL_TOOLS:
            await self._recording.wait_notification("notifications/tools/list_changed")
            tools = await self._list_tools()
        for name, tool in tools.items():
            self.record[f"tool {name}"] = tool

    async def _list_tools(self) -> dict[str, Any]:
        listed = await self._client.list_tools(cache_mode="bypass")
        return {tool.name: _dump(tool) for tool in listed.tools}

    async def _record_calls(self) -> None:
        for name, arguments in CALLS:
            if name == "get-roots-list" and "tool get-roots-list" not in self.record:
                continue
            self._recording.questions.clear()
            outcome = await self._try(self._client.call_tool, name, arguments)
            self.record[f"call {name} {arguments}"] = outcome
            if self._recording.questions:
                self.record[f"questions of {name}"] = list(self._recording.questions)
        environ = await self._client.call_tool("get-env", {})
        self.record["call get-env"] = [block.type for block in environ.content]

    async def _record_prompts(self) -> None:
        for prompt in (await self._client.list_prompts()).prompts:
            self.record[f"prompt {prompt.name}"] = _dump(prompt)
        for name, arguments in PROMPTS:
            self.record[f"get {name} {arguments}"] = await self._try(self._client.get_prompt, name, arguments)
        for ref, argument, context in COMPLETIONS:
            found = await self._try(self._client.complete, ref, argument, context)
            self.record[f"complete {_dump(ref)} {argument}"] = found

    async def _record_resources(self) -> None:
        for resource in (await self._client.list_resources()).resources:
            self.record[f"resource {resource.uri}"] = _dump(resource)
            self.record[f"read {resource.uri}"] = await self._try(self._client.read_resource, str(resource.uri))
        for template in (await self._client.list_resource_templates()).resource_templates:
            self.record[f"template {template.uri_template}"] = _dump(template)
        for uri in RESOURCES:
            self.record[f"read {uri}"] = await self._try(self._client.read_resource, uri)
        arguments = {"name": FILE_NAME, "data": DATA, "outputType": "resourceLink"}
        self.record["call gzip"] = await self._try(self._client.call_tool, "gzip-file-as-resource", arguments)
        await self._recording.wait_notification("notifications/resources/list_changed")
        listed = await self._client.list_resources(cache_mode="bypass")
        self.record["added resource"] = [_dump(each) for each in listed.resources if FILE_NAME in str(each.uri)]
        self.record["read added"] = await self._try(self._client.read_resource, FILE_RESOURCE)

    async def _record_progress(self) -> None:
        seen: list[Any] = []

        async def note(progress: float, total: float | None, message: str | None) -> None:
            seen.append([progress, total, message])

        arguments = {"duration": 0.2, "steps": 4}
        self.record["call of 4 steps"] = _dump(
            await self._client.call_tool("trigger-long-running-operation", arguments, progress_callback=note)
        )
        self.record["progress"] = seen

    async def _record_cancellation(self) -> None:
        begun = asyncio.Event()

        async def note(progress: float, total: float | None, message: str | None) -> None:
            begun.set()

        arguments = {"duration": 600, "steps": 6000}
        call = asyncio.create_task(
            self._client.call_tool("trigger-long-running-operation", arguments, progress_callback=note)
        )
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        self.record["cancelled"] = call.cancelled()
        self.record["call after a cancelled one"] = _dump(await self._client.call_tool("echo", {"message": "there"}))

    async def _record_updates(self) -> None:
        """Updates of a watched resource, begun and ended by the tool that toggles them."""
        if not self._is_modern:
            self.record["subscribe"] = await self._try(self._client.subscribe_resource, TEXT_RESOURCE)
        begun = await self._try(self._client.call_tool, "toggle-subscriber-updates", {})
        self.record["update"] = await self._recording.wait_notification("notifications/resources/updated")
        ended = await self._try(self._client.call_tool, "toggle-subscriber-updates", {})
        self.record["toggled updates"] = [begun, ended]
        if not self._is_modern:
            self.record["unsubscribe"] = await self._try(self._client.unsubscribe_resource, TEXT_RESOURCE)

    async def _record_log(self) -> None:
        """Log messages: one during a call in both eras; above the chosen level only, which only the legacy one has."""
        if not self._is_modern:
            self.record["set level"] = await self._try(self._client.set_logging_level, "debug")
        begun = await self._try(self._client.call_tool, "toggle-simulated-logging", {})
        logged = await self._recording.wait_notification("notifications/message")
        ended = await self._try(self._client.call_tool, "toggle-simulated-logging", {})
        self.record["toggled logging"] = [begun, ended]
        self.record["logged"] = sorted(logged["params"])
        if self._is_modern or self._is_shared:
            return
        # Each subscription is logged at the level `info`.
        await self._client.set_logging_level("error")
        self._recording.take_logged()
        await self._client.subscribe_resource("demo://resource/dynamic/text/2")
        self.record["logged below the level"] = [
            text for text in self._recording.take_logged() if "text/2" in str(text)
        ]
        await self._client.set_logging_level("info")
        await self._client.subscribe_resource("demo://resource/dynamic/text/3")
        text = "Received Subscribe Resource request for URI: demo://resource/dynamic/text/3 "
        logged = await self._recording.wait_notification("notifications/message", data=text)
        self.record["logged at the level"] = logged["params"]

    async def _record_roots_change(self) -> None:
        if self._is_modern or "tool get-roots-list" not in self.record:
            return
        self._recording.roots = [types.Root(uri="file:///home/eve", name="eve")]
        await self._client.send_roots_list_changed()
        await self._recording.wait_notification("roots/list")
        await self._recording.wait_notification(
            "notifications/message", data="Roots updated: 1 root(s) received from client"
        )
        self.record["roots after a change"] = await self._try(self._client.call_tool, "get-roots-list", {})

    async def _read_events(self, listening: Subscription) -> None:
        """Note the events of a modern subscription as the notifications that they are in the legacy era."""
        async for event in listening:
            match event:
                case ResourceUpdated():
                    self._recording.note("notifications/resources/updated", {"uri": event.uri})
                case ResourcesListChanged():
                    self._recording.note("notifications/resources/list_changed", {})
                case ToolsListChanged():
                    self._recording.note("notifications/tools/list_changed", {})
                case PromptsListChanged():
                    self._recording.note("notifications/prompts/list_changed", {})

    async def _try(self, ask: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        try:
            return _dump(await ask(*arguments))
        except mcp.MCPError as error:
            return {"error": _normalize(error.error.model_dump(mode="json", exclude_none=True))}


def _dump(model: BaseModel | None) -> Any:
    dumped = None if model is None else model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _normalize(dumped)


def _normalize(value: Any) -> Any:
    match value:
        case str():
            return _VARYING.sub("<varying>", value)
        case list():
            return [_normalize(each) for each in value]
        case dict():
            # What this server has as base64 is a text with a time in it.
            return {
                key: _normalize(base64.b64decode(each).decode() if key == "blob" and _is_text(each) else each)
                for key, each in value.items()
            }
    return value


def _is_text(blob: str) -> bool:
    return base64.b64decode(blob).isascii()

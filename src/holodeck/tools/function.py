"""Python functions of the agent's project as tools.

A function is found by file and name. A coroutine function runs on the event loop; any other runs in a thread of its
own, so that it cannot block the loop. Whatever the function raises becomes the result of the call.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from holodeck.lib.errors import ExecutionError
from holodeck.lib.escape import replace_surrogates
from holodeck.lib.record import record
from holodeck.models.items import AudioContent, BinaryContent, ContentBlock, ImageContent, TextContent
from holodeck.models.model_io import ToolSpec
from holodeck.models.tool import FunctionTool
from holodeck.tools.executor import ToolCall, ToolExecutor, ToolKind, ToolResult
from holodeck.tools.project_code import PROJECT_ERRORS, import_file, register_code

_CONTENT_TYPES = (TextContent, ImageContent, AudioContent, BinaryContent)


@record
class _LoadedFunction:
    tool: FunctionTool
    function: Callable[..., Any]
    spec: ToolSpec


class FunctionExecutor(ToolExecutor):
    """Executes functions of the project. Their files are imported by `import_files`, or on first use.

    `code` has the hash of every Python file that may be imported; None: every file may be, whatever it contains.
    """

    def __init__(self, tools: Sequence[FunctionTool], folder: Path, code: Mapping[Path, str] | None = None) -> None:
        self._tools = tuple(tools)
        self._folder = folder
        self._code = code
        self._loaded: dict[str, _LoadedFunction] | None = None
        self._failure = ""

    @property
    def kind(self) -> ToolKind:
        return ToolKind.FUNCTION

    def has_same_definition(self, other: FunctionExecutor) -> bool:
        """Return whether two executors have the same functions, of files with the same content."""
        own, others = (self._tools, self._folder, self._code), (other._tools, other._folder, other._code)
        return own == others

    def import_files(self) -> None:
        """Import the files now, before the first request: importing a large library takes seconds.

        Raises `ExecutionError`; every later use of the executor then raises the same error.
        """
        try:
            self._load()
        except ExecutionError as error:
            self._failure = str(error)
            raise

    async def specs(self) -> Sequence[ToolSpec]:
        """Return the functions as tools. Raises `ExecutionError` when a file of the project cannot be imported."""
        return tuple(item.spec for item in self._load().values())

    def can_execute(self, name: str) -> bool:
        return any(tool.name == name for tool in self._tools)

    async def execute(self, call: ToolCall) -> ToolResult:
        item = self._load().get(call.name)
        if item is None:
            return ToolResult.failure(call.call_id, f"There is no function '{call.name}'.")
        return await execute_function(call, item.function, call.arguments, limit=item.tool.request_timeout)

    def _load(self) -> dict[str, _LoadedFunction]:
        if self._failure:
            raise ExecutionError(self._failure)
        if self._loaded is None:
            self._loaded = {tool.name: self._load_function(tool) for tool in self._tools}
        return self._loaded

    def _load_function(self, tool: FunctionTool) -> _LoadedFunction:
        # Python looks a file up by its name: with `..` in it, it has several.
        path = Path(os.path.normpath(self._folder.absolute() / tool.file))
        if self._code is not None:
            register_code(path.parent, self._code)
        function = getattr(import_file(path), tool.function, None)
        if not callable(function):
            raise ExecutionError(f"{tool.file} has no function '{tool.function}' (tool '{tool.name}').")
        description = tool.description or inspect.getdoc(function) or ""
        parameters = tool.parameters if tool.parameters is not None else _build_parameters_schema(function, tool)
        spec = ToolSpec(name=tool.name, description=description, parameters=parameters)
        return _LoadedFunction(tool=tool, function=function, spec=spec)


async def execute_function(
    call: ToolCall, function: Callable[..., Any], arguments: Mapping[str, Any], *, limit: float
) -> ToolResult:
    """Run a function for a call. An error of it, or a run over `limit` seconds, is the result."""
    clock = asyncio.timeout(limit)
    try:
        async with clock:
            content = _to_content(await call_function(function, **arguments))
    except PROJECT_ERRORS as error:
        if clock.expired():
            reason = f"The function '{call.name}' took longer than {limit:g} seconds."
        else:
            reason = f"The function '{call.name}' failed: {type(error).__name__}: {error}"
        return ToolResult.failure(call.call_id, replace_surrogates(reason))
    name = getattr(function, "__name__", call.name)
    return ToolResult(call_id=call.call_id, content=content, metadata={"function": name})


def _build_parameters_schema(function: Callable[..., Any], tool: FunctionTool) -> Mapping[str, Any]:
    import pydantic

    try:
        adapter: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(function)  # type: ignore[arg-type] # it takes functions
        return adapter.json_schema()
    except pydantic.errors.PydanticUserError as error:
        raise ExecutionError(
            f"The arguments of '{tool.function}' in {tool.file} cannot be described: add 'parameters' to tool "
            f"'{tool.name}', or type hints to the function."
        ) from error


async def call_function(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Call a function of the program: a coroutine function in the event loop, any other in a thread of its own."""
    if inspect.iscoroutinefunction(function):
        return await function(*args, **kwargs)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def run_function() -> None:
        value, failure = None, None
        try:
            value = context.run(function, *args, **kwargs)
        except BaseException as error:
            # A future does not accept StopIteration as its exception.
            is_plain = isinstance(error, PROJECT_ERRORS) and not isinstance(error, StopIteration)
            failure = error if is_plain else RuntimeError(type(error).__name__)
        # RuntimeError: the loop is closed, and no task awaits the future.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(_resolve_future, future, value, failure)

    # A daemon thread per call, not a pool: a function that never returns takes no worker from other calls and does
    # not delay the exit of the process.
    threading.Thread(target=run_function, name="function", daemon=True).start()
    value = await future
    # A decorator may hide that a function is a coroutine function.
    return await value if inspect.isawaitable(value) else value


def _resolve_future(future: asyncio.Future[Any], value: Any, failure: BaseException | None) -> None:
    # The caller was cancelled or ran out of time.
    if future.done():
        return
    if failure is None:
        future.set_result(value)
    else:
        future.set_exception(failure)


def _to_content(value: Any) -> tuple[ContentBlock, ...]:
    if isinstance(value, _CONTENT_TYPES):
        return (value,)
    if isinstance(value, list | tuple) and value and all(isinstance(item, _CONTENT_TYPES) for item in value):
        return tuple(value)
    if value is None or value == "":
        return (TextContent(text="(the function gave an empty answer)"),)
    if isinstance(value, str):
        return (TextContent(text=replace_surrogates(value)),)
    if isinstance(value, bytes):
        return (BinaryContent(data=value),)
    try:
        return (TextContent(text=orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS).decode()),)
    except TypeError:
        return (TextContent(text=_to_json_or_text(value)),)


def _to_json_or_text(value: Any) -> str:
    """Return JSON of what pydantic can serialize, such as its models; of any other value the text that its type has.

    Raises `TypeError` for a value whose text would only be its address.
    """
    import pydantic_core

    try:
        return pydantic_core.to_json(value).decode()
    except pydantic_core.PydanticSerializationError:
        kind = type(value)
        if not any({"__str__", "__repr__"} & vars(each).keys() for each in kind.__mro__ if each is not object):
            raise TypeError(
                f"it returned {kind.__name__}, which has no form in JSON. Return a text, a dataclass or a model."
            ) from None
        return replace_surrogates(str(value))

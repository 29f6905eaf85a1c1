"""Python functions of a program as tools: `@tool` describes one, `FunctionToolExecutor` runs those of one run.

The name, the description and the JSON Schema come from the signature and the docstring. Arguments of a call are
converted to the types of the signature before the function is called.
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar, overload

import pydantic

from holodeck.agents.context import AnyContext
from holodeck.agents.tools.signature import read_signature, to_named_callable
from holodeck.lib.errors import ConfigError
from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.models.model_io import ToolSpec
from holodeck.models.tool import DEFAULT_REQUEST_TIMEOUT
from holodeck.tools.executor import ToolCall, ToolExecutor, ToolKind, ToolResult

P = ParamSpec("P")
R = TypeVar("R")

# What model APIs accept as the name of a function.
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_TOOL_NAME_CHARS}}}")


class Tool(Generic[P, R]):
    """A Python function that the model may call. Calling the object calls the function."""

    def __init__(
        self,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float = DEFAULT_REQUEST_TIMEOUT,
    ) -> None:
        """Make a tool of a function. Raises `ConfigError` for one that a model cannot call.

        - `name`: for the model. Absent: that of the function.
        - `description`: for the model. Absent: the docstring, without its parts about parameters.
        - `timeout`: seconds of one call.
        """
        if not callable(function):
            raise ConfigError(f"{function!r} is no tool: give a function.")
        # First: it copies attributes of the function, which may have the names of those below.
        functools.update_wrapper(self, function)
        self.function = function
        self._callable, own_name = to_named_callable(function)
        self.name = _check_name(own_name if name is None else name, function)
        self.timeout = timeout
        if not timeout > 0:
            raise ConfigError(f"The 'timeout' of the tool '{self.name}' must be more than 0 seconds.")
        if inspect.isgeneratorfunction(self._callable) or inspect.isasyncgenfunction(self._callable):
            raise ConfigError(f"The tool '{self.name}' is a generator, which has no result: return a list.")
        signature = read_signature(function, self.name)
        self.description = signature.description if description is None else description
        self.argument_types = signature.types
        self._context_name, self._arguments = signature.context_name, signature.arguments
        self.spec = ToolSpec(name=self.name, description=self.description, parameters=signature.schema)

    def __get__(self, instance: object, owner: type | None = None) -> Tool[..., R]:
        """Return the tool of an instance, where `@tool` stands before a method."""
        if instance is None:
            return self
        method: Callable[..., R] = types.MethodType(self.function, instance)
        return Tool(method, name=self.name, description=self.description, timeout=self.timeout)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    @property
    def takes_context(self) -> bool:
        """Whether the function gets the `RunContext`."""
        return self._context_name is not None

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    async def execute(self, call: ToolCall, context: AnyContext) -> ToolResult:
        """Run the function for a call of the model. Whatever it raises becomes the result."""
        from holodeck.tools.function import execute_function

        try:
            arguments = self._arguments.validate_python(dict(call.arguments))
        except pydantic.ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
            return ToolResult.failure(call.call_id, f"The arguments of '{self.name}' are wrong: {problems}")
        if self._context_name is not None:
            arguments[self._context_name] = context
        return await execute_function(call, self._callable, arguments, limit=self.timeout)


def _check_name(name: str, function: object) -> str:
    if not name:
        raise ConfigError("A lambda has no name: give it one with tool(name=...), or write a function.")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"'{name}' cannot be the name of a tool ({function!r}): models accept letters, digits, '_' and '-', "
            f"at most {MAX_TOOL_NAME_CHARS}."
        )
    return name


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *, name: str | None = None, description: str | None = None, timeout: float = DEFAULT_REQUEST_TIMEOUT
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float = DEFAULT_REQUEST_TIMEOUT,
) -> Tool[P, R] | Callable[[Callable[P, R]], Tool[P, R]]:
    """Make a function a tool: `@tool`, or `@tool(name="find", timeout=5)`. A coroutine function may be one, too."""
    build = functools.partial(Tool[P, R], name=name, description=description, timeout=timeout)
    return build if function is None else build(function)


class FunctionToolExecutor(ToolExecutor):
    """Executes the function tools of one run."""

    def __init__(self, tools: Sequence[Tool[..., Any]], build_context: Callable[[str], AnyContext]) -> None:
        """`build_context`: builds the context of a call, given its id."""
        self._tools = {each.name: each for each in tools}
        self._specs = tuple(each.spec for each in tools)
        self._build_context = build_context

    @property
    def kind(self) -> ToolKind:
        return ToolKind.FUNCTION

    async def specs(self) -> Sequence[ToolSpec]:
        return self._specs

    def can_execute(self, name: str) -> bool:
        return name in self._tools

    async def execute(self, call: ToolCall) -> ToolResult:
        return await self._tools[call.name].execute(call, self._build_context(call.call_id))

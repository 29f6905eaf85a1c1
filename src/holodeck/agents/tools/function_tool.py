"""Python functions of a program as tools: `@tool` describes one, `FunctionToolExecutor` runs those of one run.

The name, the description and the JSON Schema come from the signature and the docstring. Arguments of a call are
converted to the types of the signature before the function is called.

The description for the model, its name, its description and the JSON Schema of its arguments, come from the signature,
the type hints and the docstring (in the style of Google, NumPy, reST or Epydoc).
"""

from __future__ import annotations

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import (
    Annotated,
    Any,
    Generic,
    NotRequired,
    ParamSpec,
    Required,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import pydantic
import pydantic_core
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from holodeck.agents.hooks import AnyContext, RunContext
from holodeck.lib.errors import ConfigError
from holodeck.lib.limits import MAX_TOOL_NAME_CHARS
from holodeck.lib.record import record
from holodeck.models.model_io import ToolSpec
from holodeck.models.tool import DEFAULT_REQUEST_TIMEOUT
from holodeck.tools.executor import ToolCall, ToolExecutor, ToolKind, ToolResult
from holodeck.tools.mcp.names import normalize_tool_name

P = ParamSpec("P")
R = TypeVar("R")

# What model APIs accept as the name of a function.
_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_TOOL_NAME_CHARS}}}")
Arguments = pydantic.TypeAdapter[dict[str, Any]]
_CALL = "__call__"
_NAMELESS = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
)


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
        self.name = check_tool_name(own_name if name is None else name, function)
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


def check_tool_name(name: str, function: object) -> str:
    """Return the name of a tool. Raises `ConfigError` for one that models do not accept."""
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


@record
class Signature:
    """A function as models and calls see it."""

    description: str
    """The docstring without the parts about parameters and the result."""
    types: Mapping[str, Any]
    """The types of the arguments, by their names."""
    context_name: str | None
    """The parameter that gets the `RunContext`; None if there is none."""
    arguments: Arguments
    """Converts the arguments of a call."""
    schema: Mapping[str, Any]
    """JSON Schema of the arguments."""


def to_named_callable(function: Callable[..., Any]) -> tuple[Callable[..., Any], str]:
    """Return what a call calls, and the name for models; an empty name if the function has none.

    An object with `__call__` has the name of its class, a `functools.partial` that of its function.
    """
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", None)
    if isinstance(name, str):
        return function, "" if name == "<lambda>" else normalize_tool_name(name)
    # The bound method of an object shows whether it is a coroutine function.
    called: Callable[..., Any] = function if isinstance(function, functools.partial) else getattr(inner, _CALL)
    return called, normalize_tool_name(type(inner).__name__)


def read_signature(function: Callable[..., Any], name: str) -> Signature:
    """Read a function. Raises `ConfigError` for one whose arguments a model cannot give. `name`: in the errors."""
    about, documented = _read_docstring(function)
    context_name: str | None = None
    fields: dict[str, Any] = {}
    kinds: dict[str, Any] = {}
    hints = _read_hints(function, name)
    for parameter in _list_parameters(function, name):
        kind = hints.get(parameter.name, Any)
        if kind is RunContext or get_origin(kind) is RunContext:
            context_name = parameter.name
            continue
        if parameter.kind in _NAMELESS:
            raise ConfigError(
                f"The tool '{name}' has the parameter '{parameter}', which a model cannot give by its name. "
                "Give every parameter a name, and no '/' after it."
            )
        kinds[parameter.name] = kind
        fields[parameter.name] = _describe_field(parameter, kind, documented.get(parameter.name))
    try:
        adapter = _build_adapter(fields)
        schema = _build_schema(adapter)
    except (pydantic.errors.PydanticUserError, pydantic_core.SchemaError) as error:
        reason = getattr(error, "message", str(error))
        raise ConfigError(f"The arguments of the tool '{name}' cannot be described to a model: {reason}") from None
    return Signature(description=about, types=kinds, context_name=context_name, arguments=adapter, schema=schema)


def _list_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        raise ConfigError(f"The tool '{name}' has no signature: write a function that calls it.") from None
    # What a partial has fixed is not for the model.
    fixed = function.keywords if isinstance(function, functools.partial) else {}
    return [each for each in parameters.values() if each.name not in fixed]


def _read_hints(function: Callable[..., Any], name: str) -> dict[str, Any]:
    """Return the types of the parameters. That of the result is not evaluated: it need not exist at run time."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    if inspect.isclass(inner):
        inner = inner.__init__
    elif not inspect.isroutine(inner):
        inner = getattr(type(inner), _CALL)
    inner = inspect.unwrap(inner)
    annotations = {key: hint for key, hint in getattr(inner, "__annotations__", {}).items() if key != "return"}
    try:
        return get_type_hints(
            types.SimpleNamespace(__annotations__=annotations),
            globalns=getattr(inner, "__globals__", {}),
            include_extras=True,
        )
    except NameError as error:
        raise ConfigError(
            f"The tool '{name}' has a type that is not known at run time: {error}. Define or import it at the top of "
            "its module, and not only for type checkers."
        ) from None


def _describe_field(parameter: inspect.Parameter, kind: Any, documented: str | None) -> Any:
    metadata = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    is_described = any(isinstance(each, FieldInfo) and each.description for each in metadata)
    about: dict[str, Any] = {"description": documented} if documented and not is_described else {}
    if parameter.default is inspect.Parameter.empty:
        return Required[Annotated[kind, pydantic.Field(**about)]]
    # A default without a form in JSON is not shown. The function has it all the same.
    with suppress(pydantic_core.PydanticSerializationError, ValueError):
        about["json_schema_extra"] = {"default": pydantic_core.to_jsonable_python(parameter.default)}
    return NotRequired[Annotated[kind, pydantic.Field(**about)]]


def _build_adapter(fields: Mapping[str, Any]) -> Arguments:
    # Not a model: the names of parameters may be those of a model's own attributes, such as `copy`.
    build_dict: Any = TypedDict
    arguments = build_dict("Arguments", dict(fields))
    arguments.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=False)
    return pydantic.TypeAdapter(arguments)


class _UntitledSchema(GenerateJsonSchema):
    """Leaves out the titles of fields, which only repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _build_schema(arguments: Arguments) -> dict[str, Any]:
    schema = arguments.json_schema(schema_generator=_UntitledSchema)
    del schema["title"]
    return schema


def _read_docstring(function: Callable[..., Any]) -> tuple[str, Mapping[str, str]]:
    """Return the text without its sections, and the descriptions of parameters by their names."""
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    text = inspect.getdoc(inner) or ""
    if not text:
        return "", {}
    import docstring_parser

    parsed = docstring_parser.parse(text)
    documented = {each.arg_name: " ".join((each.description or "").split()) for each in parsed.params}
    return (parsed.description or text).strip(), documented

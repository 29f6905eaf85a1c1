"""Functions as tools: what the model is told about them, and what they get when it calls them."""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal, Optional
from uuid import UUID

import pydantic
import pytest
from agents import future_annotations
from agents.served_agent import output_of
from async_tests import async_test

from holodeck import Agent, ConfigError, RunContext, Tool, tool
from holodeck.models.items import BinaryContent, FunctionCallOutput, ImageContent, TextContent
from holodeck.testing import ScriptedModel, call, say


async def call_tool(function: Callable[..., Any], deps: object = None, /, **arguments: Any) -> FunctionCallOutput:
    """The output that the model gets for a call of a function."""
    name = function.name if isinstance(function, Tool) else Tool(function).name
    model = ScriptedModel(call(name, **arguments), say("done"))
    await Agent(model, tools=[function], deps_type=object).run("Go", deps=deps)
    output = model.requests[1].items[-1]
    assert isinstance(output, FunctionCallOutput)
    return output


def text_of(output: FunctionCallOutput) -> str:
    block = output.content[0]
    assert isinstance(block, TextContent)
    return block.text


def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    return dict(Tool(function).spec.parameters)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Pen(pydantic.BaseModel):
    color: Color
    width: float = 0.5


@dataclass
class Box:
    pens: list[Pen]


# Arguments


def pack(
    box: Box,
    day: date,
    at: datetime | None,
    size: Literal["small", "large"],
    key: UUID,
    folder: Path = Path("/tmp"),
    pause: timedelta = timedelta(seconds=1),
    note: Optional[str] = None,  # noqa: UP045 - users write it so
) -> str:
    """Pack a box."""
    kinds = [type(each).__name__ for each in (box, box.pens[0], box.pens[0].color, day, at, key, folder, pause)]
    return " ".join([*kinds, size, str(note)])


@async_test
async def test_arguments_have_the_types_of_the_signature() -> None:
    output = await call_tool(
        pack,
        box={"pens": [{"color": "red"}]},
        day="2030-01-02",
        at="2030-01-02T03:04:05Z",
        size="small",
        key="12345678-1234-5678-1234-567812345678",
    )
    assert text_of(output) == "Box Pen Color date datetime UUID PosixPath timedelta small None"


def test_the_schema_has_types_defaults_and_no_titles_of_fields() -> None:
    schema = schema_of(pack)
    assert schema["required"] == ["box", "day", "at", "size", "key"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["day"] == {"format": "date", "type": "string"}
    assert schema["properties"]["size"] == {"enum": ["small", "large"], "type": "string"}
    assert schema["properties"]["note"]["default"] is None
    assert schema["properties"]["pause"]["default"] == "PT1S"
    assert schema["properties"]["folder"]["default"] == "/tmp"
    assert schema["$defs"]["Pen"]["properties"]["width"] == {"default": 0.5, "type": "number"}


@async_test
async def test_wrong_arguments_are_explained_to_the_model() -> None:
    output = await call_tool(pack, box={"pens": [{"color": "green"}]})
    assert output.is_error
    for part in ('"size" is a required property', '"green" is not one of'):
        assert part in text_of(output)

    def remind(day: date) -> None:
        """Remind."""

    output = await call_tool(remind, day="tomorrow")
    assert output.is_error
    assert "The arguments of 'remind' are wrong: day: Input should be a valid date" in text_of(output)


def test_annotations_may_describe_and_limit() -> None:
    def buy(count: Annotated[int, pydantic.Field(description="How many", ge=1)], why: str = "fun") -> None:
        """Buy.

        Args:
            count: Not this text.
            why: The reason.
        """

    properties = schema_of(buy)["properties"]
    assert properties["count"] == {"description": "How many", "minimum": 1, "type": "integer"}
    assert properties["why"] == {"default": "fun", "description": "The reason.", "type": "string"}


@async_test
async def test_parameters_may_have_the_names_of_attributes_of_models() -> None:
    def odd(copy: str, json: str, model_config: str, schema: str, self_: str, _private: str = "p") -> str:
        """Odd names."""
        return " ".join([copy, json, model_config, schema, self_, _private])

    names = ("copy", "json", "model_config", "schema", "self_")
    assert text_of(await call_tool(odd, **{name: name for name in names})) == "copy json model_config schema self_ p"


@async_test
async def test_annotations_that_are_texts_are_resolved() -> None:
    properties = schema_of(future_annotations.send)["properties"]
    assert set(properties) == {"to", "urgent"}
    assert properties["urgent"]["description"] == "At once?"
    output = await call_tool(future_annotations.send, "deps", to={"street": "Elm"}, urgent=True)
    assert not output.is_error
    with pytest.raises(ConfigError, match="'hidden' has a type that is not known at run time: name 'Decimal'"):
        Tool(future_annotations.hidden)


def test_parameters_without_types_take_anything() -> None:
    def show(thing, count=3):  # type: ignore[no-untyped-def]
        return f"{thing} {count}"

    assert schema_of(show)["properties"] == {"thing": {}, "count": {"default": 3}}


# Kinds of functions


class Shop:
    """A shop."""

    def __init__(self) -> None:
        self.name = "own attribute"
        self.spec = "another"

    def price(self, product: str) -> str:
        """Price of a product."""
        return f"{product}: 1"

    async def stock(self, product: str) -> str:
        """Stock of a product."""
        return f"{product}: 7"

    @tool(name="sell_it")
    def sell(self, product: str) -> str:
        """Sell a product."""
        return f"{self.name} sold {product}"

    @staticmethod
    def open_hours(day: str) -> str:
        """Opening hours."""
        return day

    @classmethod
    def describe(cls, word: str) -> str:
        """Describe."""
        return cls.__name__ + word

    async def __call__(self, question: str) -> str:
        """Ask the shop."""
        return f"asked {question}"


def hide_coroutine(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@hide_coroutine
async def decorated(word: str) -> str:
    """A coroutine function behind a plain wrapper."""
    return word


def add(a: int, b: int, c: int = 0) -> int:
    """Add numbers."""
    return a + b + c


SHOP = Shop()


@pytest.mark.parametrize(
    ("function", "name", "arguments", "answer"),
    [
        (SHOP.price, "price", {"product": "tea"}, "tea: 1"),
        (SHOP.stock, "stock", {"product": "tea"}, "tea: 7"),
        (SHOP.sell, "sell_it", {"product": "tea"}, "own attribute sold tea"),
        (Shop.open_hours, "open_hours", {"day": "Monday"}, "Monday"),
        (Shop.describe, "describe", {"word": "!"}, "Shop!"),
        (SHOP, "Shop", {"question": "how"}, "asked how"),
        (decorated, "decorated", {"word": "hi"}, "hi"),
        (functools.partial(add, b=2), "add", {"a": 1}, "3"),
        (functools.partial(functools.partial(add, 1), c=5), "add", {"b": 1}, "7"),
        (functools.partial(SHOP.stock), "stock", {"product": "tea"}, "tea: 7"),
        (tool(name="double")(lambda number: number * 2), "double", {"number": 4}, "8"),
        (tool(tool(add)), "add", {"a": 1, "b": 1}, "2"),
    ],
)
@async_test
async def test_everything_that_can_be_called_is_a_tool(
    function: Callable[..., Any], name: str, arguments: dict[str, Any], answer: str
) -> None:
    described = function if isinstance(function, Tool) else Tool(function)
    assert described.name == name
    assert set(described.spec.parameters["properties"]) >= set(arguments)
    assert text_of(await call_tool(function, **arguments)) == answer


def test_what_a_partial_has_fixed_is_not_for_the_model() -> None:
    assert set(schema_of(functools.partial(add, b=2))["properties"]) == {"a", "c"}


def test_a_tool_can_be_called_by_the_program() -> None:
    assert tool(add)(1, b=2) == 3
    assert SHOP.sell("tea") == "own attribute sold tea"


# Descriptions

GOOGLE = """Find a thing.

Looks everywhere.

Args:
    what: The thing
        to find.

Returns:
    Where it is.
"""
NUMPY = """Find a thing.

Looks everywhere.

Parameters
----------
what : str
    The thing to find.

Returns
-------
str
    Where it is.
"""
REST = """Find a thing.

Looks everywhere.

:param what: The thing to find.
:returns: Where it is.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, REST], ids=["google", "numpy", "rest"])
def test_the_docstring_is_read_in_each_style(text: str) -> None:
    def find(what: str) -> str:
        return what

    find.__doc__ = text
    described = Tool(find)
    assert described.description == "Find a thing.\n\nLooks everywhere."
    assert described.spec.parameters["properties"]["what"]["description"] == "The thing to find."


def test_a_tool_needs_no_docstring_and_may_be_given_a_description() -> None:
    def plain(what: str) -> str:
        return what

    assert Tool(plain).description == ""
    assert Tool(plain, description="Given.").spec.description == "Given."


# Results


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (Pen(color=Color.RED), '{"color":"red","width":0.5}'),
        ([Pen(color=Color.RED)], '[{"color":"red","width":0.5}]'),
        (Box(pens=[]), '{"pens":[]}'),
        (Color.BLUE, '"blue"'),
        (date(2030, 1, 2), '"2030-01-02"'),
        ({1}, "[1]"),
        (None, "(the function gave an empty answer)"),
        ("text", "text"),
        (1.5, "1.5"),
    ],
)
@async_test
async def test_results_become_text(value: object, answer: str) -> None:
    def give() -> object:
        return value

    assert text_of(await call_tool(give)) == answer


@async_test
async def test_bytes_and_images_reach_the_model_as_such() -> None:
    def draw() -> ImageContent:
        return ImageContent(data="aGk=", mime_type="image/png")

    def dump() -> bytes:
        return b"hi"

    assert (await call_tool(draw)).content == (ImageContent(data="aGk=", mime_type="image/png"),)
    assert (await call_tool(dump)).content == (BinaryContent(data=b"hi"),)


@async_test
async def test_an_error_of_the_function_is_told_to_the_model() -> None:
    def fail() -> None:
        raise ValueError("no paper")

    output = await call_tool(fail)
    assert (output.is_error, text_of(output)) == (True, "The function 'fail' failed: ValueError: no paper")


# What is refused


class NotForModels:
    """No schema describes it."""


def needs_object(thing: NotForModels) -> None:
    """Cannot be called by a model."""


def test_functions_that_a_model_cannot_call_are_refused() -> None:
    def many(*words: str) -> None: ...
    def named(**words: str) -> None: ...
    def by_position(word: str, /) -> None: ...
    def generator() -> Any:
        yield 1

    for function in (many, named, by_position):
        with pytest.raises(ConfigError, match="which a model cannot give by its name"):
            Tool(function)
    with pytest.raises(ConfigError, match="is a generator"):
        Tool(generator)
    with pytest.raises(ConfigError, match="'needs_object' cannot be described"):
        Tool(needs_object)
    with pytest.raises(ConfigError, match="A lambda has no name"):
        Tool(lambda: None)
    with pytest.raises(ConfigError, match="is no tool"):
        Tool("text")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="is no tool"):
        Agent("rehearsal", tools=[3])  # type: ignore[list-item]
    with pytest.raises(ConfigError, match="must be more than 0 seconds"):
        Tool(add, timeout=0)


def test_names_are_those_that_models_accept() -> None:
    for name in ("with space", "x" * 65, ""):
        with pytest.raises(ConfigError, match="name"):
            Tool(add, name=name)

    assert Tool(build_function("größe")).name == "gr--e"
    assert len(Tool(build_function("x" * 70)).name) == 64


def build_function(name: str) -> Callable[[], None]:
    def function() -> None: ...

    function.__name__ = name
    return function


def test_a_context_is_not_an_argument_of_the_model() -> None:
    def spend(context: RunContext[int], amount: int) -> int:
        """Spend money."""
        return context.deps - amount

    assert set(schema_of(spend)["properties"]) == {"amount"}


@async_test
async def test_a_result_without_a_form_in_json_is_an_error_that_says_so() -> None:
    class Handle:
        """Has neither JSON nor a text of its own."""

    def open_handle() -> Handle:
        return Handle()

    model = ScriptedModel(call("open_handle"), say("It failed."))
    await Agent(model, tools=[open_handle]).run("Open it")
    told = output_of(model.requests[1])
    assert "it returned Handle, which has no form in JSON. Return a text, a dataclass or a model." in told
    assert "0x" not in told

"""The rehearsal model: the right tool, arguments from the request and no others, and texts that say what was done."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from holodeck.models.items import (
    FunctionCall,
    FunctionCallOutput,
    ImageContent,
    Item,
    Message,
    TextContent,
    text_message,
)
from holodeck.models.model_io import CallDelta, ModelAnswer, ModelEvent, ModelRequest, TextDelta, ToolChoice, ToolSpec
from holodeck.providers.base import ModelProvider
from holodeck.providers.rehearsal.model import Rehearsal
from holodeck.providers.rehearsal.ranking import shortlist_tools

FIXTURES = Path(__file__).parent / "fixtures"
CASES: list[dict[str, Any]] = yaml.safe_load((FIXTURES / "requests.yaml").read_text())
TOOLS = tuple(
    ToolSpec(name=tool["name"], description=tool["description"], parameters=tool["inputSchema"])
    for offered in json.loads((FIXTURES / "mcp_tools.json").read_text()).values()
    for tool in offered
)
OTHERS = yaml.safe_load((FIXTURES / "other_tools.yaml").read_text())
OTHER_TOOLS = tuple(ToolSpec(**tool) for tool in OTHERS["tools"])
OTHER_CASES: list[dict[str, Any]] = OTHERS["requests"]
RIGHT_TOOL = 0.9
RIGHT_SHORTLIST = 0.9


def _events(*items: Item | str, tools: tuple[ToolSpec, ...] = TOOLS, **options: Any) -> list[ModelEvent]:
    async def collect() -> list[ModelEvent]:
        model: ModelProvider = Rehearsal()
        whole = tuple(text_message("user", item) if isinstance(item, str) else item for item in items)
        events = [event async for event in model.stream(ModelRequest(items=whole, tools=tools, **options))]
        await model.close()
        await model.close()
        return events

    return asyncio.run(collect())


def _answer(*items: Item | str, tools: tuple[ToolSpec, ...] = TOOLS, **options: Any) -> ModelAnswer:
    last = _events(*items, tools=tools, **options)[-1]
    assert isinstance(last, ModelAnswer)
    return last


def _calls(answered: ModelAnswer) -> list[tuple[str, dict[str, Any]]]:
    return [(item.name, json.loads(item.arguments)) for item in answered.items if isinstance(item, FunctionCall)]


def _text(answered: ModelAnswer) -> str:
    return "".join(item.text for item in answered.items if isinstance(item, Message))


def _result(answered: ModelAnswer, text: str, *, is_error: bool = False) -> list[Item]:
    """What the engine adds after it has made the calls."""
    outputs = [
        FunctionCallOutput(call_id=item.call_id, content=(TextContent(text=text),), is_error=is_error)
        for item in answered.items
        if isinstance(item, FunctionCall)
    ]
    return [*answered.items, *outputs]


def _chosen(case: dict[str, Any]) -> str:
    answered = _answer(case["say"])
    calls, text = _calls(answered), _text(answered)
    if calls:
        return calls[0][0]
    return text.split("`")[1] if "I would call `" in text else "none"


def test_it_chooses_the_right_tool_of_51_for_nine_requests_of_ten() -> None:
    right = sum(_chosen(case) == case["tool"] for case in CASES)
    assert right / len(CASES) >= RIGHT_TOOL


def test_the_shortlist_of_three_has_the_right_tool_nine_times_of_ten() -> None:
    cases = [case for case in CASES if case["tool"] != "none"]
    right = sum(case["tool"] in [tool.name for tool in shortlist_tools(case["say"], TOOLS, 3)] for case in cases)
    assert right / len(cases) >= RIGHT_SHORTLIST


@pytest.mark.parametrize("case", [case for case in CASES if "asks" in case], ids=lambda case: str(case["say"]))
def test_it_asks_for_what_the_request_does_not_say(case: dict[str, Any]) -> None:
    answered = _answer(case["say"])
    assert not _calls(answered)
    assert _text(answered).startswith(f"[rehearsal] I would call `{case['tool']}`")
    assert all(f"`{name}`" in _text(answered) for name in case["asks"])


@pytest.mark.parametrize(
    ("tools", "cases"), [(TOOLS, CASES), (OTHER_TOOLS, OTHER_CASES)], ids=["six servers", "others"]
)
def test_every_argument_of_every_call_is_in_the_expected_ones(
    tools: tuple[ToolSpec, ...], cases: list[dict[str, Any]]
) -> None:
    for case in cases:
        for name, arguments in _calls(_answer(case["say"], tools=tools)):
            if name == case["tool"] and "with" in case:
                assert arguments.items() <= case["with"].items(), case["say"]


@pytest.mark.parametrize("case", OTHER_CASES, ids=lambda case: str(case["say"]))
def test_tools_of_other_kinds_are_called_with_what_the_request_says(case: dict[str, Any]) -> None:
    answered = _answer(case["say"], tools=OTHER_TOOLS)
    if "with" in case:
        assert _calls(answered) == [(case["tool"], case["with"])]
    else:
        assert not _calls(answered)
        assert all(f"`{name}`" in _text(answered) for name in case.get("asks", ()))


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_a_tool_that_is_only_named_is_never_called_with_something_made_up(tool: ToolSpec) -> None:
    answered = _answer(f"Please use {tool.name}", tool_choice=ToolChoice(name=tool.name))
    required = tool.parameters.get("required", [])
    assert not required or not _calls(answered)
    assert all(arguments == {} for _, arguments in _calls(answered))


def test_a_result_is_reported_with_its_own_text() -> None:
    first_answer = _answer("What is 17 plus 25?")
    final = _answer("What is 17 plus 25?", *_result(first_answer, "The sum of 17 and 25 is 42."))
    assert _text(final) == "[rehearsal] `get-sum` answered: The sum of 17 and 25 is 42."
    assert final.finish == "stop"


def test_a_long_result_is_cut_and_says_by_how_much() -> None:
    first_answer = _answer("Read the file /data/notes.txt")
    text = _text(_answer("Read the file /data/notes.txt", *_result(first_answer, "word " * 5000)))
    assert len(text) < 2000
    assert "more characters)" in text


def test_an_image_is_reported_as_one() -> None:
    call = FunctionCall(call_id="c", name="get-tiny-image", arguments="{}")
    output = FunctionCallOutput(call_id="c", content=(ImageContent(data="AAAA", mime_type="image/png"),))
    assert "(an image, image/png)" in _text(_answer("Show me the tiny image", call, output))


def test_an_error_is_shown_as_one_and_the_call_is_not_repeated() -> None:
    first_answer = _answer("Read the file /data/gone.txt, then list /data")
    final = _answer("Read the file /data/gone.txt, then list /data", *_result(first_answer, "ENOENT", is_error=True))
    assert not _calls(final)
    assert "`read_text_file` failed: ENOENT" in _text(final)


@pytest.mark.parametrize("request_", ["Sum a=2 b=3", "Sum b=3, a=2"])
def test_a_value_that_the_request_names_goes_to_that_parameter(request_: str) -> None:
    assert _calls(_answer(request_)) == [("get-sum", {"a": 2, "b": 3})]


def test_a_call_that_is_written_out_is_made_as_it_is_written() -> None:
    spec = {"who": {"type": "string"}, "how": {"type": "object"}}
    greet = ToolSpec(name="greet", parameters={"type": "object", "properties": spec, "required": ["who"]})
    arguments = {"who": "Ada and then Bob", "how": {"loud": True}}
    asked = _answer(f"Call greet with {json.dumps(arguments)}.", tools=(greet,))
    assert _calls(asked) == [("greet", arguments)]
    assert not _calls(_answer('Call greet with {"how": {}}', tools=(greet,))), "nobody is named"


def test_two_requests_in_one_question_are_two_calls_one_after_the_other() -> None:
    request = "Add 2 and 3 and then tell me the time in Tokyo"
    first = _answer(request)
    assert _calls(first) == [("get-sum", {"a": 2, "b": 3})]
    second = _answer(request, *_result(first, "5"))
    assert _calls(second) == [("get_current_time", {"timezone": "Asia/Tokyo"})]
    final = _text(_answer(request, *_result(first, "5"), *_result(second, "12:00")))
    assert "5" in final
    assert "12:00" in final


def test_the_second_half_refers_to_what_the_first_half_named() -> None:
    request = "Create the folder /data/new and then list it"
    first = _answer(request)
    assert _calls(first) == [("create_directory", {"path": "/data/new"})]
    assert _calls(_answer(request, *_result(first, "ok"))) == [("list_directory", {"path": "/data/new"})]
    request = 'Write "hi" to x.txt and then read it'
    first = _answer(request)
    assert _calls(first) == [("write_file", {"path": "x.txt", "content": "hi"})]
    assert _calls(_answer(request, *_result(first, "ok"))) == [("read_text_file", {"path": "x.txt"})]


def test_one_question_about_two_places_is_two_calls_at_once_or_in_turn() -> None:
    request = "What time is it in Tokyo and in London?"
    expected = [("get_current_time", {"timezone": zone}) for zone in ("Asia/Tokyo", "Europe/London")]
    assert _calls(_answer(request)) == expected
    first = _answer(request, parallel_tool_calls=False)
    assert _calls(first) == expected[:1]
    assert _calls(_answer(request, *_result(first, "x"), parallel_tool_calls=False)) == expected[1:]


def test_the_answer_to_its_question_completes_the_call() -> None:
    first_answer = _answer("What time is it?")
    assert _calls(_answer("What time is it?", *first_answer.items, "Paris")) == [
        ("get_current_time", {"timezone": "Europe/Paris"})
    ]
    first_answer = _answer("Save a file /data/todo.txt")
    assert _calls(_answer("Save a file /data/todo.txt", *first_answer.items, "buy milk and eggs")) == [
        ("write_file", {"path": "/data/todo.txt", "content": "buy milk and eggs"})
    ]


def test_without_a_fitting_tool_it_says_what_it_has() -> None:
    text = _text(_answer("What is the capital of France?", tools=TOOLS[:3]))
    assert text.startswith("[rehearsal]")
    assert all(f"`{tool.name}`" in text for tool in TOOLS[:3])
    assert "no tools" in _text(_answer("Hello", tools=()))


def test_a_question_never_changes_anything() -> None:
    for question in (
        "When was /data/a.txt created?",
        "Who moved /data/a.txt to /b?",
        'What would "x" in /a.txt delete?',
    ):
        assert not {name for name, _ in _calls(_answer(question))} & {"create_directory", "write_file", "move_file"}


def test_tool_choice_is_respected_in_every_form() -> None:
    request = "What time is it in Tokyo?"
    none = _answer(request, tool_choice=ToolChoice(mode="none"))
    assert not _calls(none)
    assert "`get_current_time`" in _text(none)
    named = _answer('Tokyo says "hi"', tool_choice=ToolChoice(name="echo"))
    assert _calls(named) == [("echo", {"message": "hi"})]
    allowed = _answer(request, tool_choice=ToolChoice(allowed=("echo", "get-sum")))
    assert "get_current_time" not in [name for name, _ in _calls(allowed)]
    required = _answer("Hm, environment", tool_choice=ToolChoice(mode="required"))
    assert [name for name, _ in _calls(required)] == ["get-env"]


def test_deltas_are_small_and_add_up_to_the_answer() -> None:
    events = _events("Hello!")
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(deltas) > 3
    assert isinstance(events[-1], ModelAnswer)
    assert "".join(deltas) == _text(events[-1])
    assert events[-1].usage.output_tokens == len(_text(events[-1]).split(" "))
    assert events[-1].usage.input_tokens == 1
    assert events[-1].model == "rehearsal"

    events = _events("What time is it in Tokyo?")
    fragments = [event for event in events if isinstance(event, CallDelta)]
    assert fragments[0].name == "get_current_time"
    assert json.loads("".join(event.arguments for event in fragments)) == {"timezone": "Asia/Tokyo"}
    assert fragments[0].call_id
    assert [type(event) for event in events].count(ModelAnswer) == 1


def test_fields_behind_references_are_found() -> None:
    place = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    parameters = {"properties": {"place": {"$ref": "#/$defs/Place"}}, "required": ["place"], "$defs": {"Place": place}}
    weather = ToolSpec(name="weather", description="Weather forecast of a place", parameters=parameters)
    assert _calls(_answer("What is the weather in Lisbon?", tools=(weather,))) == [
        ("weather", {"place": {"city": "Lisbon"}})
    ]
    assert "`place.city`" in _text(_answer("How is the weather?", tools=(weather,)))


def test_an_answer_that_must_fit_a_schema_does_or_says_that_it_cannot() -> None:
    first_answer = _answer("What is 17 plus 25?")
    done = ("What is 17 plus 25?", *_result(first_answer, "The sum is 42."))
    one_text = {"type": "object", "properties": {"answer": {"type": "string"}}, "required": ["answer"]}
    fitted = json.loads(_text(_answer(*done, response_format=one_text)))
    assert fitted == {"answer": "[rehearsal] `get-sum` answered: The sum is 42."}
    number = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]}
    assert json.loads(_text(_answer(*done, response_format=number))) == {"sum": 42}
    both = {
        "type": "object",
        "properties": {"at": {"format": "date"}, "x": {"type": "object"}},
        "required": ["at", "x"],
    }
    assert "does not fit the format" in _text(_answer(*done, response_format=both))


def test_max_tokens_cuts_the_answer_and_says_so() -> None:
    answered = _answer("Hello!", max_tokens=5)
    assert answered.finish == "length"
    assert len(_text(answered).split()) == 5


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"type": "object"},
        {"properties": None, "required": "x"},
        {"type": "object", "properties": {"a": True, "b": {"anyOf": []}, "c": {"enum": []}}, "required": ["a", "b"]},
        {"type": "array", "items": {"type": "string"}},
        {"type": "object", "properties": {"": {"type": ["null"]}}, "required": [""]},
    ],
    ids=str,
)
def test_an_odd_schema_is_no_crash(parameters: dict[str, Any]) -> None:
    tool = ToolSpec(name="odd", description="An odd tool", parameters=parameters)
    assert _answer("Use the odd tool with 3 things", tools=(tool,)).items


ODD_REQUESTS = [
    "",
    "\0",
    "?" * 50_000,
    "and then " * 2_000,
    "/" * 10_000,
    '"' * 9_999,
    "add " + "9" * 9_000,
    "search " + "\n" * 9_000,
    "- " * 5_000,
    "a." * 5_000,
    "x and " * 1_000,
]


@pytest.mark.parametrize("request_text", ODD_REQUESTS, ids=lambda text: text[:9])
def test_an_odd_request_is_no_crash(request_text: str) -> None:
    assert _answer(request_text).items
    assert _answer(text_message("assistant", "hi")).items

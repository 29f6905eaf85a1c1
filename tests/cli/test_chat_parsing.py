"""The pure parts of a chat: which Markdown is finished, what arguments a person gave, what an answer means."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holodeck.cli.chat.slash_commands import parse_prompt_arguments
from holodeck.cli.output.ask_user import form_fields
from holodeck.cli.output.markdown import finished_blocks

_LINES = st.sampled_from(["", "text", "# title", "- one", "  more", "```", "```python", "~~~", "````", "x = 1"])


@given(st.lists(_LINES, max_size=20).map("\n".join))
def test_nothing_is_lost_or_shown_twice_however_an_answer_arrives(text: str) -> None:
    shown, tail = "", ""
    for char in text:
        done, tail = finished_blocks(tail + char)
        shown += done
    assert shown + tail == text


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("one\n\ntwo", "one\n\n"),
        ("one\n\n", ""),
        ("- one\n\n  still one\n\nnext", "- one\n\n  still one\n\n"),
        ("```\na\n\nb", ""),
        ("```\na\n\nb\n```\n\nafter", "```\na\n\nb\n```\n\n"),
        ("~~~\n```\n\nx\n~~~\n\nafter", "~~~\n```\n\nx\n~~~\n\n"),
    ],
)
def test_a_block_is_finished_when_the_next_one_has_begun(text: str, done: str) -> None:
    assert finished_blocks(text)[0] == done


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("", ["code"], {}),
        ("it's = fine", ["code"], {"code": "it's = fine"}),
        ("code=x", ["code"], {"code": "x"}),
        ('Oslo "two words" and more', ["city", "topic"], {"city": "Oslo", "topic": "two words and more"}),
        ("topic=rain Oslo", ["city", "topic"], {"city": "Oslo", "topic": "rain"}),
        ("a=b", ["city", "topic"], {"city": "a=b"}),
        ("don't panic", ["city", "topic"], {"city": "don't", "topic": "panic"}),
    ],
)
def test_arguments_of_a_prompt_are_passed_by_name_or_in_order(
    text: str, names: list[str], expected: dict[str, str]
) -> None:
    assert parse_prompt_arguments(text, names) == expected


@pytest.mark.parametrize(("text", "names"), [("x", []), ("a=1 b=2 c", ["a", "b"])])
def test_an_argument_too_many_is_an_error_in_words(text: str, names: list[str]) -> None:
    with pytest.raises(ValueError, match="argument"):
        parse_prompt_arguments(text, names)


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        ({"type": "string"}, "Ada", "Ada"),
        ({"type": "integer"}, "7", 7),
        ({"type": "number"}, "7.5", 7.5),
        ({"type": "boolean"}, "No", False),
        ({"type": "string", "enum": ["red", "blue"]}, "red", "red"),
        ({"type": "string", "oneOf": [{"const": "r", "title": "Red"}]}, "r", "r"),
        ({"type": "array", "items": {"enum": ["a", "b", "c"]}}, "a, c", ["a", "c"]),
    ],
)
def test_typed_text_is_converted_to_the_type_that_the_server_requests(schema: Any, typed: str, value: Any) -> None:
    (field,) = form_fields({"requestedSchema": {"properties": {"it": schema}, "required": ["it"]}})
    assert field.is_required
    assert field.parse(typed) == value


@pytest.mark.parametrize(
    ("schema", "typed"),
    [({"type": "integer"}, "7.5"), ({"type": "boolean"}, "maybe"), ({"enum": ["a"]}, "b"), ({"type": "string"}, "")],
)
def test_an_answer_of_the_wrong_type_repeats_the_question(schema: Any, typed: str) -> None:
    (field,) = form_fields({"requestedSchema": {"properties": {"it": schema}}})
    with pytest.raises(ValueError, match=r"^(Please|An answer)"):
        field.parse(typed)

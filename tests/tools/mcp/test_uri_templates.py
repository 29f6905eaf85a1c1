"""URI templates of servers: which URIs fit, and which variable of an unfinished URI is being typed."""

from __future__ import annotations

import pytest

from holodeck.lib.net.uri_template import find_typed_variable, match_template


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("test://plain", "test://plain", {}),
        ("test://{a}", "test://x", {"a": "x"}),
        ("test://{a}/{b}", "test://x/y", {"a": "x", "b": "y"}),
        ("test://{a}.txt", "test://x.y.txt", {"a": "x.y"}),
        ("file://{+path}", "file:///a/b", {"path": "/a/b"}),
        ("test://{a}{/b}", "test://x/y", {"a": "x", "b": "y"}),
        ("test://{a}{/b}", "test://x", {"a": "x", "b": ""}),
        ("test://s{?q}", "test://s?q=1", {"q": "1"}),
        ("test://s{?q}", "test://s", {"q": ""}),
        ("test://{a*}/{b:3}", "test://x/y", {"a": "x", "b": "y"}),
    ],
)
def test_a_uri_that_a_template_makes_gives_the_values(template: str, uri: str, values: dict[str, str]) -> None:
    assert match_template(template, uri) == values


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("test://plain", "test://plainer"),
        ("test://{a}", "test://"),
        ("test://{a}", "test://x/y"),
        ("test://{a}", "other://x"),
        ("test://{a}/end", "test://x/other"),
        ("test://s{?q}", "test://s/q"),
        ("test://{a}{b}" * 1_000, "test://" + "x" * 8_000),
    ],
)
def test_any_other_uri_does_not_fit(template: str, uri: str) -> None:
    assert match_template(template, uri) is None


@pytest.mark.parametrize(
    ("start", "name", "value", "following", "others"),
    [
        ("test://", "topic", "", "/", {}),
        ("test://pl", "topic", "pl", "/", {}),
        ("test://plans/", "page", "", "", {"topic": "plans"}),
        ("test://plans/1", "page", "1", "", {"topic": "plans"}),
    ],
)
def test_the_variable_that_is_being_typed_is_found(
    start: str, name: str, value: str, following: str, others: dict[str, str]
) -> None:
    variable = find_typed_variable("test://{topic}/{page}", start)
    assert variable is not None
    assert (variable.name, variable.value, variable.following, variable.others) == (name, value, following, others)


@pytest.mark.parametrize("start", ["tes", "other://x", "test://plans/1/2"])
def test_a_uri_of_another_form_is_in_no_variable(start: str) -> None:
    assert find_typed_variable("test://{topic}/{page}", start) is None

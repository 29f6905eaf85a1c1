"""Schemas that models accept: always a plain object without references, and the arguments find their way back."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, get_args

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holodeck.models.model_io import ToolSpec
from holodeck.providers.tool_schemas.adapt import AdaptedTool, adapt_tool
from holodeck.providers.tool_schemas.rules import SchemaRulesName

DIALECTS: tuple[SchemaRulesName, ...] = get_args(SchemaRulesName)
FIXTURE = json.loads((Path(__file__).parent / "fixtures" / "mcp_tools.json").read_text())
REAL = [tool for offered in FIXTURE.values() for tool in offered]


def _adapted(parameters: Any, dialect: SchemaRulesName = "openai", description: str = "") -> AdaptedTool:
    return adapt_tool(ToolSpec(name="t", description=description, parameters=parameters), dialect)


def _keywords(schema: Any) -> set[str]:
    """Every keyword that is used as one, not as the name of a property."""
    found: set[str] = set()
    if isinstance(schema, list):
        return found.union(*map(_keywords, schema))
    if isinstance(schema, dict):
        for key, value in schema.items():
            found.add(key)
            if key in {"properties", "patternProperties", "dependentSchemas"}:
                found |= _keywords(list(value.values()))
            elif key not in {"enum", "const", "default", "examples"}:
                found |= _keywords(value)
    return found


def _is_plain_object(schema: Any) -> None:
    jsonschema_rs.meta.validate(schema)
    assert schema["type"] == "object"
    assert isinstance(schema["properties"], dict)
    assert not _keywords(schema) & {"$ref", "$dynamicRef", "$defs", "definitions", "$schema", "$id"}


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("tool", REAL, ids=lambda tool: str(tool["name"]))
def test_the_tools_of_real_servers_become_plain_objects(tool: dict[str, Any], dialect: SchemaRulesName) -> None:
    before = copy.deepcopy(tool["inputSchema"])
    adapted = _adapted(tool["inputSchema"], dialect, tool["description"])
    _is_plain_object(adapted.spec.parameters)
    assert tool["inputSchema"] == before
    assert set(adapted.spec.parameters["properties"]) == set(before.get("properties", {}))


def test_a_schema_that_needs_nothing_is_not_changed() -> None:
    plain = {"type": "object", "properties": {"a": {"type": "string", "description": "x"}}, "required": ["a"]}
    for dialect in ("openai", "anthropic", "generic"):
        adapted = _adapted(plain, dialect)
        assert adapted.spec.parameters == plain
        assert adapted.changes == ()


def test_references_are_inlined_with_the_annotations_beside_them() -> None:
    schema = {
        "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
        "type": "object",
        "properties": {"from": {"$ref": "#/$defs/Place", "description": "Start"}, "to": {"$ref": "#/$defs/Place"}},
    }
    adapted = _adapted(schema)
    assert adapted.spec.parameters["properties"]["from"]["description"] == "Start"
    assert adapted.spec.parameters["properties"]["to"]["properties"] == {"city": {"type": "string"}}
    assert adapted.changes == ("inlined: a reference at /properties/from", "inlined: a reference at /properties/to")


def test_a_schema_that_contains_itself_is_cut_and_says_so() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "v": {"type": "integer"}}}
    adapted = _adapted({"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}})
    _is_plain_object(adapted.spec.parameters)
    assert any("contains itself" in change for change in adapted.changes)
    _is_plain_object(_adapted({"type": "object", "properties": {"me": {"$ref": "#"}}}).spec.parameters)


@pytest.mark.parametrize(
    "reference", ["https://example.com/s.json", "other.json#/a", "#/$defs/none", "#anchor", "file:///x"]
)
def test_a_reference_to_elsewhere_is_never_followed(reference: str) -> None:
    adapted = _adapted({"type": "object", "properties": {"a": {"$ref": reference, "description": "d"}}})
    assert adapted.spec.parameters["properties"]["a"] == {"description": "d"}
    assert adapted.is_looser


@pytest.mark.parametrize("dialect", ["openai", "openai_strict", "anthropic"])
def test_alternatives_at_the_root_are_wrapped_and_unwrapped(dialect: SchemaRulesName) -> None:
    by_id = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    by_name = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    adapted = _adapted({"anyOf": [by_id, by_name]}, dialect)
    _is_plain_object(adapted.spec.parameters)
    assert not {"anyOf", "oneOf", "allOf"} & set(adapted.spec.parameters)
    assert adapted.restore({"arguments": {"id": 3}}) == {"id": 3}
    assert adapted.restore({"name": "x"}) == {"name": "x"}
    assert "wrapped: the arguments are in 'arguments' at /" in adapted.changes


def test_all_of_plain_objects_is_one_object() -> None:
    parts = [{"properties": {"a": {"type": "string"}}, "required": ["a"]}, {"properties": {"b": {"type": "integer"}}}]
    schema = _adapted({"type": "object", "allOf": parts}).spec.parameters
    assert set(schema["properties"]) == {"a", "b"}
    assert schema["required"] == ["a"]


@pytest.mark.parametrize(
    "parameters", [None, True, False, {}, {"type": "object"}, {"type": "string"}, [], {"type": ["object", "null"]}]
)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_odd_roots_become_objects(parameters: Any, dialect: SchemaRulesName) -> None:
    adapted = _adapted(parameters, dialect)
    _is_plain_object(adapted.spec.parameters)
    assert isinstance(adapted.restore({}), dict)


def test_names_that_a_provider_refuses_come_back_as_they_were() -> None:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            "user name": {"type": "string"},
            "user_name": {"type": "string"},
            "größe": {"type": "object", "properties": {"$x": {}}},
        },
        "required": ["user name"],
    }
    adapted = _adapted(schema, "anthropic")
    names = list(adapted.spec.parameters["properties"])
    assert all(name.isascii() and " " not in name for name in names)
    assert adapted.spec.parameters["required"] == [names[0]]
    original = adapted.restore({names[0]: "a", "user_name": "b", names[2]: {"_x": 1}})
    assert original == {"user name": "a", "user_name": "b", "größe": {"$x": 1}}
    assert _adapted(schema, "generic").spec.parameters["properties"].keys() == schema["properties"].keys()


def test_strict_mode_requires_everything_and_takes_null_back_out() -> None:
    schema = {
        "type": "object",
        "title": "Search",
        "properties": {
            "q": {"type": "string", "minLength": 1},
            "limit": {"type": "integer", "minimum": 1, "default": 10},
            "sort": {"enum": ["a", "b"]},
            "note": {"type": ["string", "null"]},
            "where": {"type": "object", "properties": {"x": {"type": "number"}}},
        },
        "required": ["q"],
    }
    adapted = _adapted(schema, "openai_strict")
    strict = adapted.spec.parameters
    assert adapted.spec.strict
    assert strict["required"] == ["q", "limit", "sort", "note", "where"]
    assert strict["additionalProperties"] is False
    assert strict["properties"]["limit"] == {"type": ["integer", "null"]}
    assert strict["properties"]["sort"] == {"enum": ["a", "b", None], "type": ["string", "null"]}
    assert adapted.restore({"q": "x", "limit": None, "sort": None, "note": None, "where": {"x": None}}) == {
        "q": "x",
        "note": None,
        "where": {},
    }


@pytest.mark.parametrize(
    "inner",
    [{}, {"type": "object"}, {"type": "object", "additionalProperties": {"type": "string"}}, {"type": "array"}, True],
    ids=str,
)
def test_what_strict_mode_cannot_say_is_offered_without_it(inner: Any) -> None:
    adapted = _adapted({"type": "object", "properties": {"free": inner}}, "openai_strict")
    assert not adapted.spec.strict
    assert any(change.startswith("not strict: ") for change in adapted.changes)
    assert adapted.restore({"free": {"a": 1}}) == {"free": {"a": 1}}


def test_a_description_that_is_too_long_is_shortened() -> None:
    adapted = _adapted({"type": "object", "properties": {"a": {"description": "x" * 9_000}}}, description="y" * 9_000)
    assert len(adapted.spec.description) == 1024
    assert len(adapted.spec.parameters["properties"]["a"]["description"]) == 1024
    assert len(adapted.changes) == 2


def test_a_huge_enumeration_is_left_out() -> None:
    adapted = _adapted(
        {"type": "object", "properties": {"a": {"type": "string", "enum": [str(n) for n in range(9999)]}}}
    )
    assert adapted.spec.parameters["properties"]["a"] == {"type": "string"}


def test_a_schema_that_multiplies_is_bounded() -> None:
    definitions: dict[str, Any] = {"d0": {"type": "string"}}
    for level in range(1, 30):
        inner = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"type": "object", "properties": {"a": inner, "b": inner, "c": inner}}
    for dialect in DIALECTS:
        adapted = _adapted(
            {"type": "object", "properties": {"x": {"$ref": "#/$defs/d29"}}, "$defs": definitions}, dialect
        )
        assert len(json.dumps(adapted.spec.parameters)) < 1_000_000
        assert adapted.is_looser


def test_old_spellings_are_translated() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
            "pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}], "additionalItems": False},
            "bad": {"type": "any", "required": True},
        },
    }
    adapted = _adapted(schema, "generic").spec.parameters
    _is_plain_object(adapted)
    assert adapted["properties"]["n"] == {"type": "integer", "exclusiveMinimum": 0}
    assert adapted["properties"]["pair"]["prefixItems"] == [{"type": "string"}, {"type": "integer"}]
    assert adapted["properties"]["bad"] == {}


NAMES = st.sampled_from(["a", "b", "user name", "user_name", "ä", "$id", "properties", "x" * 70, "type", "a.b"])
LEAVES = st.one_of(
    st.sampled_from(
        [
            {"type": "string"},
            {"type": "string", "minLength": 2, "format": "uri"},
            {"type": "integer", "minimum": 1},
            {"type": "number"},
            {"type": "boolean"},
            {"type": ["string", "null"]},
            {"enum": ["x", "y", 3, None]},
            {"const": "k"},
            {"$ref": "#/$defs/thing"},
            {"$ref": "#/$defs/tree", "description": "more"},
            {"$ref": "#/nowhere"},
            True,
            {},
        ]
    )
)


def _compound(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    objects = st.builds(
        lambda properties, required, more: {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in required],
            **more,
        },
        st.dictionaries(NAMES, inner, max_size=4),
        st.sets(NAMES),
        st.sampled_from(
            [{}, {"additionalProperties": False}, {"additionalProperties": {"type": "integer"}}, {"title": "T"}]
        ),
    )
    arrays = st.builds(lambda items: {"type": "array", "items": items}, inner)
    combined = st.builds(
        lambda key, parts: {key: parts},
        st.sampled_from(["anyOf", "oneOf", "allOf"]),
        st.lists(objects, min_size=1, max_size=2),
    )
    return st.one_of(objects, arrays, combined)


DEFINITIONS = {
    "thing": {"type": "object", "properties": {"size of": {"type": "integer"}}, "required": ["size of"]},
    "tree": {"type": "object", "properties": {"leaf": {"type": "string"}, "more": {"$ref": "#/$defs/tree"}}},
}
SCHEMAS = st.recursive(LEAVES, _compound, max_leaves=8).map(
    lambda schema: {**schema, "$defs": DEFINITIONS} if isinstance(schema, dict) else schema
)
ANYTHING: st.SearchStrategy[Any] = st.sampled_from([None, True, 0, 5, 2.5, "", "x", "long text", [], {}])


def _instances(schema: Any) -> st.SearchStrategy[Any]:
    """Values that mostly fit a schema."""
    if not isinstance(schema, dict):
        return ANYTHING
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    for key in ("anyOf", "oneOf"):
        if key in schema:
            return st.one_of(
                [_instances({**{k: v for k, v in schema.items() if k != key}, **each}) for each in schema[key]]
            )
    if "allOf" in schema:
        parts = [_instances(each) for each in schema["allOf"]]
        return st.tuples(*parts).map(
            lambda each: {k: v for part in each if isinstance(part, dict) for k, v in part.items()}
        )
    kind = schema.get("type")
    if isinstance(kind, list):
        return st.one_of([_instances({**schema, "type": one}) for one in kind])
    if kind == "object" or "properties" in schema:
        properties = schema.get("properties", {})
        needed = {name: _instances(inner) for name, inner in properties.items() if name in schema.get("required", ())}
        optional = {name: _instances(inner) for name, inner in properties.items() if name not in needed}
        return st.fixed_dictionaries(needed, optional=optional)
    simple: dict[Any, st.SearchStrategy[Any]] = {
        "string": st.sampled_from(["", "xy", "http://a.b/"]),
        "integer": st.integers(-2, 5),
        "number": st.sampled_from([0, 1.5]),
        "boolean": st.booleans(),
        "null": st.none(),
        "array": st.lists(_instances(schema.get("items")), max_size=2),
    }
    return simple.get(kind, ANYTHING)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, dialect=st.sampled_from(DIALECTS), data=st.data())
def test_arguments_for_the_adapted_schema_fit_the_original_when_restored(
    schema: Any, dialect: SchemaRulesName, data: st.DataObject
) -> None:
    adapted = _adapted(schema, dialect)
    _is_plain_object(adapted.spec.parameters)
    arguments = data.draw(_instances(adapted.spec.parameters))
    assume(isinstance(arguments, dict) and jsonschema_rs.is_valid(dict(adapted.spec.parameters), arguments))
    restored = adapted.restore(arguments)
    assert isinstance(restored, dict)
    is_for_objects = not isinstance(schema, dict) or jsonschema_rs.is_valid({"type": "object"}, restored)
    if not adapted.is_looser and is_for_objects and "arguments" not in restored:
        jsonschema_rs.validate(schema, restored)


@settings(max_examples=100, deadline=None)
@given(
    schema=st.recursive(
        st.one_of(ANYTHING, st.sampled_from(["string", "#", "object"])),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(
                    ["type", "properties", "items", "anyOf", "required", "$ref", "enum", "not", "minimum", "a", "if"]
                ),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=12,
    ),
    dialect=st.sampled_from(DIALECTS),
)
def test_an_invalid_schema_becomes_a_plain_object_too(schema: Any, dialect: SchemaRulesName) -> None:
    _is_plain_object(_adapted(schema, dialect).spec.parameters)

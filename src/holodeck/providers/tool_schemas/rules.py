"""The rules of providers for tool schemas, as one row each in `SCHEMA_RULES`, and the changes that follow from them.

Changes are a bounded list of texts, and what undoes them for arguments.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from holodeck.lib.limits import MAX_SCHEMA_DEPTH
from holodeck.lib.record import record

# Levels of nesting: OpenAI's strict mode refuses deeper schemas.
MAX_STRICT_DEPTH = 10
# Values of one enumeration: OpenAI accepts a thousand over all fields of a tool.
MAX_ENUM_VALUES = 500
# Characters of a description: OpenAI refuses longer ones.
OPENAI_DESCRIPTION_CHARS = 1_024
# Characters of descriptions for other providers: longer ones take too much of the context.
MAX_TOOL_DESCRIPTION_CHARS = 8_192
MAX_FIELD_DESCRIPTION_CHARS = 4_096

SchemaRulesName = Literal["openai", "openai_strict", "anthropic", "generic"]

IDENTITIES = frozenset(
    {
        "$schema",
        "$id",
        "$anchor",
        "$comment",
        "$dynamicAnchor",
        "$recursiveAnchor",
        "$vocabulary",
        "$defs",
        "definitions",
    }
)
"""Keywords that exist for references. They are dropped after references are inlined."""
COMBINATIONS = ("anyOf", "oneOf", "allOf")
ANNOTATIONS = frozenset({"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"})
_ROOT_RULES = frozenset({*COMBINATIONS, "not", "enum", "const", "if", "then", "else", "dependentSchemas"})
_NOT_STRICT = frozenset(
    {
        "title",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "pattern",
        "minLength",
        "maxLength",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "exclusiveMaximum",
        "multipleOf",
        "minItems",
        "maxItems",
        "uniqueItems",
        "contains",
        "minContains",
        "maxContains",
        "unevaluatedItems",
        "minProperties",
        "maxProperties",
        "propertyNames",
        "unevaluatedProperties",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "if",
        "then",
        "else",
        "not",
        "contentEncoding",
        "contentMediaType",
        "contentSchema",
        "nullable",
    }
)
_PLAIN_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
# Changes that are listed for one schema.
MAX_SCHEMA_NOTES = 50


@record
class SchemaRules:
    """The rules of one provider for schemas."""

    refused: frozenset[str] = IDENTITIES
    refused_at_root: frozenset[str] = frozenset()
    """Keywords for which the root is wrapped in an object with one property."""
    name_pattern: re.Pattern[str] | None = None
    """Pattern of property names; None: any name."""
    needs_items: bool = False
    is_strict: bool = False
    max_depth: int = MAX_SCHEMA_DEPTH
    max_enum: int = MAX_ENUM_VALUES
    max_description: int = MAX_TOOL_DESCRIPTION_CHARS
    max_field_description: int = MAX_FIELD_DESCRIPTION_CHARS


SCHEMA_RULES: Mapping[SchemaRulesName, SchemaRules] = {
    "generic": SchemaRules(),
    "anthropic": SchemaRules(refused_at_root=_ROOT_RULES, name_pattern=_PLAIN_NAME),
    "openai": SchemaRules(
        refused_at_root=_ROOT_RULES,
        name_pattern=_PLAIN_NAME,
        needs_items=True,
        max_description=OPENAI_DESCRIPTION_CHARS,
        max_field_description=OPENAI_DESCRIPTION_CHARS,
    ),
    "openai_strict": SchemaRules(
        refused=IDENTITIES | _NOT_STRICT,
        refused_at_root=_ROOT_RULES,
        name_pattern=_PLAIN_NAME,
        needs_items=True,
        is_strict=True,
        max_depth=MAX_STRICT_DEPTH,
        max_description=OPENAI_DESCRIPTION_CHARS,
        max_field_description=OPENAI_DESCRIPTION_CHARS,
    ),
}


class ChangeNotes:
    """Collects distinct changes. `is_looser`: the adapted schema accepts values that the original may refuse."""

    def __init__(self) -> None:
        self._texts: dict[str, None] = {}
        self.is_looser = False

    def add(self, text: str, path: str, *, is_looser: bool = False) -> None:
        """Add a change at a path such as `/properties/a`."""
        self.is_looser = self.is_looser or is_looser
        if len(self._texts) < MAX_SCHEMA_NOTES:
            self._texts[f"{text} at {path or '/'}"] = None

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._texts)


@dataclass(slots=True)
class ArgumentRestorer:
    """Restores arguments that match an adapted schema to the tool's own schema.

    It has the changes to undo at one position of the arguments, with the restorers of the positions below.
    """

    names: dict[str, str] = field(default_factory=dict)
    """Renamed properties: original names by new names."""
    nulls: set[str] = field(default_factory=set)
    """Optional properties, for which strict models write null."""
    fields: dict[str, ArgumentRestorer] = field(default_factory=dict)
    items: ArgumentRestorer | None = None
    others: ArgumentRestorer | None = None
    """The restorer for properties that the schema does not name."""
    branches: list[ArgumentRestorer] = field(default_factory=list)
    """Restorers of subschemas that describe the same position, such as those of `anyOf`."""

    def restore(self, value: Any) -> Any:
        """Return the value for the tool's own schema."""
        if isinstance(value, dict):
            return dict(self._restore_fields(value))
        if isinstance(value, list):
            inner = _join_restorers([route.items for route in self._with_branches()])
            return [inner.restore(each) for each in value]
        return value

    def _restore_fields(self, value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        here = list(self._with_branches())
        for name, inner in value.items():
            if inner is None and any(name in route.nulls for route in here):
                continue
            restorers = [route.fields.get(name) or route.others for route in here]
            original = next((route.names[name] for route in here if name in route.names), name)
            yield original, _join_restorers(restorers).restore(inner)

    def _with_branches(self) -> Iterator[ArgumentRestorer]:
        yield self
        for branch in self.branches:
            yield from branch._with_branches()


def _join_restorers(restorers: list[ArgumentRestorer | None]) -> ArgumentRestorer:
    present = [restorer for restorer in restorers if restorer is not None]
    return present[0] if len(present) == 1 else ArgumentRestorer(branches=present)

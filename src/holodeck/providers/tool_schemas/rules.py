"""The rules of providers for tool schemas, as one row each in `SCHEMA_RULES`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

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

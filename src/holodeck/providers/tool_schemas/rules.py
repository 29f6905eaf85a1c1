"""What each kind of provider refuses in a tool's schema. A new provider is a row here, not an `if` elsewhere."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from holodeck.lib.limits import MAX_SCHEMA_DEPTH

# OpenAI's strict mode refuses deeper ones.
MAX_STRICT_DEPTH = 10
# OpenAI counts a thousand over all of a tool's fields.
MAX_ENUM_VALUES = 500
# Longer ones are refused.
OPENAI_DESCRIPTION_CHARS = 1_024
# Longer ones crowd out the conversation.
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
"""Keywords that name or define things for references; there are none left when they are dropped."""
COMBINATIONS = ("anyOf", "oneOf", "allOf")
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


@dataclass(frozen=True, kw_only=True)
class SchemaRules:
    """What one dialect asks of a schema."""

    refused: frozenset[str] = IDENTITIES
    refused_at_root: frozenset[str] = frozenset()
    """Keywords that make the root be wrapped into an object with one field."""
    name_pattern: re.Pattern[str] | None = None
    """What a property may be called; None: anything."""
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

"""What a plain YAML scalar means: the YAML 1.2 core schema, so `no`, `on` and `1:30` stay text."""

from __future__ import annotations

import re
from typing import Any

_NULL = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEAN = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_INTEGER = re.compile(r"[-+]?[0-9]{1,300}")  # Python refuses to convert thousands of digits, and nobody means them
_BASED = re.compile(r"0o[0-7]{1,64}|0x[0-9a-fA-F]{1,64}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_CORE = "tag:yaml.org,2002:"


def parse_scalar(text: str) -> Any:
    """The value of an unquoted scalar."""
    if text in _NULL:
        return None
    if text in _BOOLEAN:
        return _BOOLEAN[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _BASED.fullmatch(text):
        return int(text, 0)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _SPECIAL.fullmatch(text):
        return float(text.replace(".", ""))
    return text


def parse_tagged_scalar(tag: str, text: str) -> Any:
    """The value of a scalar with one of YAML's own tags. Raises ValueError for every other tag."""
    if tag == f"{_CORE}str":
        return text
    if tag in {f"{_CORE}{name}" for name in ("int", "float", "bool", "null")}:
        return parse_scalar(text)
    raise ValueError(tag)

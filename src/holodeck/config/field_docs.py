"""The text below a field in the source of a model, which is that field's description in a JSON Schema.

Pydantic can collect it when a class is made, by reading the source of every model each time the program starts. Only
`holodeck schema` and `init` want it, so it is read there.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from types import ModuleType

from pydantic import AliasChoices, BaseModel


def field_descriptions(model: type[BaseModel]) -> dict[str, str]:
    """The descriptions of a model's fields, inherited ones included, by the names that the fields have in a file."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if issubclass(each, BaseModel) and each is not BaseModel:
            found |= _read_field_docstrings(inspect.getmodule(each)).get(each.__name__, {})
    return {_name_in_files(model, name): text for name, text in found.items() if name in model.model_fields}


def _name_in_files(model: type[BaseModel], name: str) -> str:
    alias = model.model_fields[name].validation_alias
    first = alias.choices[0] if isinstance(alias, AliasChoices) else alias
    return first if isinstance(first, str) else name


@cache
def _read_field_docstrings(module: ModuleType | None) -> dict[str, dict[str, str]]:
    """By class and field, the strings that stand right below an annotated name in the classes of a module."""
    if module is None:
        return {}
    classes = (node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef))
    return {each.name: dict(_strings_below_fields(each)) for each in classes}


def _strings_below_fields(made: ast.ClassDef) -> list[tuple[str, str]]:
    found = []
    for field, below in zip(made.body, made.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            found.append((field.target.id, inspect.cleandoc(below.value.value)))
    return found

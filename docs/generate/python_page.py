"""`reference/python.md`: the public names of `holodeck`, `holodeck.runs` and `holodeck.testing`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import re
import textwrap
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args, get_origin

import pydantic
from typing_extensions import is_typeddict

import holodeck
import holodeck.testing
from generate.markdown import NOTICE, code, fence, join_blocks, slug, table
from generate.python_examples import EXAMPLES, INTRO, NAMES_IN_EXAMPLES, OTHER_MEANINGS
from generate.python_examples.example import Example
from generate.python_sections import SECTIONS, Section, require_one_section
from holodeck.config.json_schema import without_example
from holodeck.testing import Fault

_MAX_LINE = 110
_PLAIN_TYPES = {"Amount": "float", "Boolean": "bool", "Integer": "int", "NonEmpty": "str", "Number": "float"}
"""Python's types behind those of file models."""


def build_page() -> str:
    """Return the page."""
    blocks = ["# Python", NOTICE, INTRO]
    for module in (holodeck, holodeck.runs, holodeck.testing):
        require_one_section(SECTIONS, module)
    for section in SECTIONS:
        blocks += [f"## {section.title}", section.about, table(("Name", "What it is"), _overview(section))]
        for example in _examples_of(section):
            blocks += [f"### {example.title}", example.about, fence(example.code, "python"), fence(example.output)]
        for name in section.names:
            blocks += [f"### `{name}`", *_name_blocks(section.module, name)]
    blocks.append("See also: [agent file](agent-file.md), [exit codes](exit-codes.md), [glossary](../glossary.md).")
    return join_blocks(blocks)


def _public_name(module: ModuleType) -> str:
    """Return the name by which programs import a module."""
    return "holodeck.runs" if module is holodeck.runs else module.__name__


def _examples_of(section: Section) -> list[Example]:
    """Return the examples whose first name is in the section."""
    return [each for each in EXAMPLES[_public_name(section.module)] if each.names[0] in section.names]


def _overview(section: Section) -> Iterator[tuple[str, str]]:
    for name in section.names:
        yield f"[{code(name)}](#{_anchor(section, name)})", _first_sentence(_meaning(section.module, name))


def _anchor(section: Section, name: str) -> str:
    """Return the anchor of a name's heading. Headings that differ only in case are numbered, as `Tool` and `tool`."""
    names = section.names
    number = sum(slug(each) == slug(name) for each in names[: names.index(name)])
    return f"{slug(name)}-{number}" if number else slug(name)


def _first_sentence(text: str) -> str:
    return re.split(r"(?<=[.])\s", " ".join(text.split()), maxsplit=1)[0]


def _meaning(module: ModuleType, name: str) -> str:
    """Return the documentation of a name, without examples: the page has its own, which are run."""
    value = getattr(module, name)
    text = OTHER_MEANINGS.get(name) or inspect.getdoc(value) or ""
    return re.sub(r"```.*?```\n?", "", text, flags=re.DOTALL)


def _name_blocks(module: ModuleType, name: str) -> Iterator[str]:
    value = getattr(module, name)
    if value is Fault:
        yield _meaning(module, name)
        yield table(
            ("Value", "Happens on", "What the server does"),
            ((code(each.value), code(each.on), each.explanation) for each in Fault),
        )
    elif inspect.isclass(value):
        yield from _class_blocks(module, name, value)
        return
    elif inspect.isroutine(value):
        yield fence(_signature(name, value))
        yield _meaning(module, name)
    else:
        values = [each if isinstance(each, str) else (get_origin(each) or each).__name__ for each in get_args(value)]
        yield _meaning(module, name)
        yield f"Values: {', '.join(map(code, values))}." if values else ""
    yield _example_link(module, name)


def _example_link(module: ModuleType, name: str) -> str:
    example = NAMES_IN_EXAMPLES[_public_name(module), name]
    return f"Example: [{example}](#{slug(example)})."


def _class_blocks(module: ModuleType, name: str, value: type) -> Iterator[str]:
    if not dataclasses.is_dataclass(value) and "__init__" in vars(value):
        yield fence(_signature(name, value))
    yield _meaning(module, name)
    constructor = vars(value).get("__init__")
    # Records have a generated one, without a text of its own.
    yield (inspect.getdoc(constructor) or "") if "__init__" in vars(value) and constructor.__doc__ else ""
    yield _example_link(module, name)
    yield table(("Field", "Type", "Meaning"), _field_rows(value))
    if issubclass(value, pydantic.BaseModel):
        return
    members = [(attribute, member) for attribute, member in vars(value).items() if not attribute.startswith("_")]
    yield table(
        ("Property", "Meaning"),
        ((code(attribute), _one_line(member.fget)) for attribute, member in members if isinstance(member, property)),
    )
    for attribute, member in members:
        function = getattr(value, attribute) if isinstance(member, classmethod | staticmethod) else member
        if inspect.isfunction(function) or inspect.ismethod(function):
            yield f"#### `{name}.{attribute}`"
            yield fence(_signature(attribute, function))
            yield inspect.getdoc(function) or ""


def _one_line(function: Any) -> str:
    return " ".join((inspect.getdoc(function) or "").split())


def _field_rows(value: type) -> Iterator[tuple[str, str, str]]:
    texts = _strings_below_fields(value)
    for name, kind in _fields(value):
        yield code(name), code(kind), " ".join(without_example(texts.get(name, "")).split())


def _fields(value: type) -> list[tuple[str, str]]:
    """The names and types of the fields of a record, a model of a file or a typed dict; none of other classes.

    Types of limited values are shown as Python's plain types.
    """
    if dataclasses.is_dataclass(value):
        return [(field.name, str(field.type)) for field in dataclasses.fields(value) if field.init]
    if is_typeddict(value) or issubclass(value, pydantic.BaseModel):
        return [
            (each.target.id, ast.unparse(_PlainTypes().visit(each.annotation)))
            for each in _statements(value)
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
        ]
    return []


class _PlainTypes(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(_PLAIN_TYPES.get(node.id, node.id))

    def visit_Subscript(self, node: ast.Subscript) -> Any:
        is_annotated = isinstance(node.value, ast.Name) and node.value.id == "Annotated"
        if is_annotated and isinstance(node.slice, ast.Tuple):
            return self.visit(node.slice.elts[0])
        return self.generic_visit(node)


def _statements(value: type) -> list[ast.stmt]:
    body = ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]
    assert isinstance(body, ast.ClassDef)
    return body.body


def _strings_below_fields(value: type) -> dict[str, str]:
    if not _fields(value):
        return {}
    inherited = (base for base in value.__mro__[::-1] if dataclasses.is_dataclass(base) and base is not value)
    statements = [each for kind in (*inherited, value) for each in _statements(kind)]
    return {
        field.target.id: below.value.value
        for field, below in itertools.pairwise(statements)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }


def _signature(name: str, function: Any) -> str:
    """Return the signature, with each parameter on a line of its own where one line would be long."""
    signature = inspect.signature(function)
    parameters = [each for each in signature.parameters.values() if each.name != "self"]
    signature = signature.replace(parameters=parameters)
    if inspect.isclass(function):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    prefix = "async " if inspect.iscoroutinefunction(function) else ""
    text = prefix + name + _without_quotes(str(signature))
    if len(text) <= _MAX_LINE:
        return text
    inner = text[len(prefix + name) + 1 : text.rindex(")")]
    end = text[text.rindex(")") :]
    lines = [f"    {part}," for part in _split_parameters(inner)]
    return "\n".join([f"{prefix}{name}(", *lines, end])


def _without_quotes(text: str) -> str:
    """Return a signature without the quotes of its annotations, which are texts in the source."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)
    text = re.sub(r'(: |-> )"([^"]*)"', r"\1\2", text)
    text = re.sub(r"<class '(\w+)'>", r"\1", text).replace("NoneType", "None")
    return re.sub(r"<(\w+\.\w+): '[^']*'>", r"\1", text)


def _split_parameters(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for index, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    return [*parts, text[start:].strip()]

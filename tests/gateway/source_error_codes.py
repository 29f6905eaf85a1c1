"""The error codes that the source gives to errors, read from its syntax."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path

from holodeck.lib import errors

# What makes errors with a code: the place of the code among the arguments. None: only by its name.
MAKERS = {
    "APIError": None,
    "BadRequestError": None,
    "ModelError": None,
    "Failure": None,
    "error": None,
    "refuse": 2,
    "invalid": 1,
    "_invalid_query_error": 2,
    "_error_reply": 3,
}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def codes_in(path: Path) -> set[str | None]:
    """The codes in one module. Raises `AssertionError` for an expression from which they cannot be read."""
    return _Module(path).codes()


class _Module:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._tree = ast.parse(path.read_text())
        self._functions = {node.name: node for node in ast.walk(self._tree) if isinstance(node, Function)}

    def codes(self) -> set[str | None]:
        found: set[str | None] = set()
        for function in self._functions.values():
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and (maker := _name_of(node.func)) in MAKERS:
                    expression = _code_argument(node, MAKERS[maker])
                    if expression is not None:
                        found.update(self._resolve(expression, function))
                    elif maker == "APIError":
                        found.add(None)
        return (found | set(self._class_codes())) - {""}

    def _class_codes(self) -> Iterator[str]:
        """The codes of classes of errors that have all the same one."""
        for node in ast.walk(self._tree):
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                assigned: list[ast.stmt] = [each for each in node.body if isinstance(each, ast.Assign)]
                for value in _assigned("code", ast.Module(assigned, [])):
                    match value:
                        case ast.Constant(value=str() as code):
                            yield code
                        case ast.Name(id=name):
                            yield getattr(errors, name)

    def _resolve(self, node: ast.expr, function: Function) -> Iterator[str | None]:
        match node:
            case ast.Constant(value=str() | None as code):
                yield code
            case ast.IfExp(body=first, orelse=second):
                yield from self._resolve_all((first, second), function)
            case ast.BoolOp(values=values) | ast.Dict(values=values):
                yield from self._resolve_all(values, function)
            case ast.JoinedStr(values=[ast.FormattedValue(), ast.Constant(value=str() as end)]):
                # The limits of `JSONFields._check_range`.
                yield from (f"{kind}{end}" for kind in ("integer", "decimal"))
            case (
                ast.Attribute(attr="code")
                | ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value="code"), *_])
            ):
                # Of an error that was made elsewhere.
                return
            case ast.Call(func=ast.Attribute(value=ast.Name(id=table), attr="get")):
                yield from self._resolve(ast.Name(id=table), function)
            case ast.Call(func=ast.Name(id=name)) if name in self._functions:
                inner = self._functions[name]
                returns = [each.value for each in ast.walk(inner) if isinstance(each, ast.Return)]
                yield from self._resolve_all([value for value in returns if value is not None], inner)
            case ast.Name(id=name):
                yield from self._resolve_name(name, function)
            case _:
                raise AssertionError(f"{self._path}:{node.lineno}: which error codes can this be?")

    def _resolve_all(self, nodes: Iterable[ast.expr], function: Function) -> Iterator[str | None]:
        for node in nodes:
            yield from self._resolve(node, function)

    def _resolve_name(self, name: str, function: Function) -> Iterator[str | None]:
        arguments = function.args
        if name in {each.arg for each in (*arguments.args, *arguments.kwonlyargs)}:
            # Calls of the function are looked at; this is what they leave out.
            defaults = dict(
                zip(reversed([each.arg for each in arguments.args]), reversed(arguments.defaults), strict=False)
            )
            defaults |= {
                each.arg: value
                for each, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
                if value
            }
            yield from self._resolve(defaults[name], function) if name in defaults else ()
        elif values := [*_assigned(name, function)] or [*_assigned(name, self._tree)]:
            yield from self._resolve_all(values, function)
        else:
            yield getattr(errors, name)


def _assigned(name: str, scope: ast.AST) -> Iterator[ast.expr]:
    """The values that a name gets in a scope, alone or in a tuple."""
    for node in ast.walk(scope):
        if not isinstance(node, ast.Assign):
            continue
        match node.targets[0], node.value:
            case ast.Name(id=target), value if target == name:
                yield value
            case ast.Tuple(elts=targets), ast.Tuple(elts=values):
                yield from (value for target, value in zip(targets, values, strict=True) if _name_of(target) == name)


def _code_argument(call: ast.Call, place: int | None) -> ast.expr | None:
    named = next((word.value for word in call.keywords if word.arg == "code"), None)
    return named if named is not None or place is None or len(call.args) <= place else call.args[place]


def _name_of(node: ast.expr) -> str:
    return str(getattr(node, "attr", getattr(node, "id", "")))

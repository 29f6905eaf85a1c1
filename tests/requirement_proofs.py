"""Which test proves which requirement, read from the source of all tests: running a few of them changes nothing.

A mark counts where pytest would attach it to a test: as a decorator, in `pytestmark`, in the `marks=` of a parameter,
also by way of a name that the same module assigns. A mark anywhere else claims what no run checks, and is a problem.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, TypeGuard

from requirement_manifest import MANIFEST_NAME, TESTS, Requirements

Names: TypeAlias = Mapping[str, ast.expr]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One test naming one id."""

    test: str
    """As pytest writes it: tests/test_loading.py::TestUrl::test_https"""
    id: str


@dataclass(frozen=True, kw_only=True)
class Proofs:
    """What all test files of a folder claim, and the marks that claim nothing."""

    proofs: tuple[Proof, ...] = ()
    misplaced: tuple[str, ...] = ()

    def tests_by_id(self) -> dict[str, list[str]]:
        """The tests that name an id, without repetition."""
        found: dict[str, list[str]] = {}
        for proof in dict.fromkeys(self.proofs):
            found.setdefault(proof.id, []).append(proof.test)
        return found


def read_proofs(tests: Path = TESTS) -> Proofs:
    """Every mark below a tests folder."""
    modules = [_read_module(path, tests) for path in sorted(tests.rglob("*.py"))]
    return Proofs(
        proofs=tuple(proof for module in modules for proof in module.proofs),
        misplaced=tuple(problem for module in modules for problem in module.misplaced),
    )


def unknown_ids(requirements: Requirements, proofs: Proofs) -> list[str]:
    """A sentence for every test that names an id we do not have."""
    return [
        f"{proof.test} names {proof.id!r}, which is not in {MANIFEST_NAME}"
        for proof in dict.fromkeys(proofs.proofs)
        if proof.id not in requirements
    ]


def unproved_ids(requirements: Requirements, proofs: Proofs) -> list[str]:
    """A sentence for every delivered id that no test names."""
    proved = proofs.tests_by_id()
    return [
        f"{each.id} is delivered, but no test names it: {each.text}"
        for each in requirements.values()
        if each.status == "delivered" and each.id not in proved
    ]


def _read_module(path: Path, tests: Path) -> Proofs:
    source = path.read_bytes()
    if b"proves" not in source:
        return Proofs()
    module = ast.parse(source, filename=str(path))
    where = path.relative_to(tests.parent).as_posix()
    names = _assigned(module.body)
    proofs: list[Proof] = []
    attached: set[ast.expr] = set()
    problems: list[str] = []
    for test, holders in _tests(module.body, where) if _is_collected(path) else ():
        for mark in _marks(holders, names):
            attached.add(mark.func)
            ids = _literal_ids(mark)
            proofs += [Proof(test=test, id=id_) for id_ in ids]
            if not ids:
                problems.append(f"{where}:{mark.lineno}: write the ids out, as strings: the check reads them unrun")
    problems += [
        f"{where}:{node.lineno}: this mark is attached to no test"
        for node in ast.walk(module)
        if _is_mark(node) and node not in attached
    ]
    return Proofs(proofs=tuple(proofs), misplaced=tuple(dict.fromkeys(problems)))


def _is_collected(path: Path) -> bool:
    return path.name.startswith("test_") or path.name.endswith("_test.py")


def _tests(
    body: list[ast.stmt], where: str, inherited: tuple[ast.expr, ...] = ()
) -> Iterator[tuple[str, list[ast.expr]]]:
    """Each test function with the expressions that may hold its marks: its own, its class's, its module's."""
    own = _assigned(body).get("pytestmark")
    shared = (*inherited, own) if own else inherited
    for node in _statements(body):
        if isinstance(node, Function) and node.name.startswith("test"):
            yield f"{where}::{node.name}", [*shared, *node.decorator_list]
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _tests(node.body, f"{where}::{node.name}", (*shared, *node.decorator_list))


def _statements(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The statements of a scope, also those under an `if`, `try` or `with`, which open no scope of their own."""
    for node in body:
        yield node
        if isinstance(node, ast.If | ast.Try | ast.ExceptHandler | ast.With):
            yield from _statements(ast.iter_child_nodes(node))


def _assigned(body: list[ast.stmt]) -> dict[str, ast.expr]:
    found: dict[str, ast.expr] = {}
    for node in _statements(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            found[node.target.id] = node.value
        elif isinstance(node, ast.Assign):
            found |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
    return found


def _marks(holders: Iterable[ast.expr], names: Names) -> Iterator[ast.Call]:
    """The calls of the mark inside some expressions, following the names that the module assigns."""
    followed: set[str] = set()
    waiting: list[ast.AST] = list(holders)
    while waiting:
        for node in ast.walk(waiting.pop(0)):
            if isinstance(node, ast.Call) and _is_mark(node.func):
                yield node
            elif isinstance(node, ast.Name) and node.id in names and node.id not in followed:
                followed.add(node.id)
                waiting.append(names[node.id])


def _is_mark(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """`pytest.mark.proves`, or `mark.proves`."""
    match node:
        case ast.Attribute(attr="proves", value=ast.Attribute(attr="mark") | ast.Name(id="mark")):
            return True
        case _:
            return False


def _literal_ids(mark: ast.Call) -> list[str]:
    """The ids of a mark; none at all if one of them is not a string in the source."""
    ids = [node.value for node in mark.args if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return ids if len(ids) == len(mark.args) and not mark.keywords else []

"""In how many places one fact is written: counted, and as `change_amplification.json` records it.

What grows here makes every later change dearer: an option that one more file names is one more file to change with it.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest
from recorded_counts import HOW_TO_RECORD, find_change, read_counts, write_counts

import holodeck
from holodeck.storage.store import ResponseStore

SOURCE = Path(holodeck.__file__).parent
RECORDED = Path(__file__).with_name("change_amplification.json")
OPTIONS = (
    *("presence_penalty", "verbosity", "top_logprobs", "max_tool_calls", "service_tier", "parallel_tool_calls"),
    *("safety_identifier", "elicitation", "truncation", "idempotent_tools", "max_concurrent_calls"),
)
ROUTES = ("/v1/responses/compact", "/v1/conversations", "/v1/usage", "/v1/embeddings")
# `from x import (a, b)` as the formatter writes it, in functions as well.
IMPORT = re.compile(r"^ *from (holodeck[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
TASK = re.compile(r"(\w+)\.(?:create_task|ensure_future)\(")
TASK_GROUPS = frozenset({"group", "tasks"})

Texts: TypeAlias = Mapping[Path, str]
"""The text of each source file, by its path in the package."""
Places: TypeAlias = dict[str, list[str]]
"""Where each thing is, by its name; a place can be there several times."""


@pytest.fixture(scope="module")
def texts() -> Texts:
    return {path.relative_to(SOURCE): path.read_text() for path in SOURCE.rglob("*.py")}


def files_that_name_an_option(texts: Texts) -> Places:
    return {name: [str(path) for path, text in texts.items() if re.search(rf"\b{name}\b", text)] for name in OPTIONS}


def files_with_the_path_of_a_route(texts: Texts) -> Places:
    return {route: [str(path) for path, text in texts.items() if route in text] for route in ROUTES}


def definitions_of_store_methods(texts: Texts) -> Places:
    methods = [name for name, _ in inspect.getmembers(ResponseStore, inspect.isfunction) if not name.startswith("_")]
    storage = "\n".join(text for path, text in texts.items() if path.parts[0] == "storage")
    found = Counter(re.findall(r"def (\w+)\(", storage))
    return {f"all {len(methods)}": [name for name in methods for _ in range(found[name])]}


def copies_of_public_names(texts: Texts) -> Places:
    """The copies of a name in the file that lists them: half of the names have as many or fewer."""
    words = Counter(re.findall(r"\w+", texts[Path("__init__.py")]))
    *_, name = sorted(holodeck.__all__, key=words.__getitem__)[: len(holodeck.__all__) // 2]
    return {"each": [name] * words[name]}


def attributes_by_a_name_as_text(texts: Texts) -> Places:
    """`getattr` with a text, by package: what no type checker follows."""
    places: Places = {}
    for path, text in texts.items():
        found = re.findall(r'getattr\([^,()]+,\s*"', text)
        if found:
            places.setdefault(path.parts[0], []).extend([str(path)] * len(found))
    return places


def modules_with_one_importer_in_their_folder(texts: Texts) -> Places:
    """Modules that are a paragraph of their neighbour."""
    modules = {".".join(("holodeck", *path.with_suffix("").parts)): path for path in texts}
    importers: dict[Path, set[Path]] = {}
    for path, text in texts.items():
        for module in _imported_modules(text):
            if module in modules and modules[module] != path:
                importers.setdefault(modules[module], set()).add(path)
    single = [path for path, found in importers.items() if [each.parent for each in found] == [path.parent]]
    return {"all": [str(path) for path in single if path.name != "__init__.py"]}


def _imported_modules(text: str) -> Iterator[str]:
    for module, names in IMPORT.findall(text):
        yield module
        yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))


def tasks_outside_a_group(texts: Texts) -> Places:
    found = [str(path) for path, text in texts.items() for owner in TASK.findall(text) if owner not in TASK_GROUPS]
    return {"all": found}


MEASURES = (
    *(files_that_name_an_option, files_with_the_path_of_a_route, definitions_of_store_methods, copies_of_public_names),
    *(attributes_by_a_name_as_text, modules_with_one_importer_in_their_folder, tasks_outside_a_group),
)


def test_no_fact_is_written_in_more_places_than_recorded(texts: Texts, pytestconfig: pytest.Config) -> None:
    found = {measure.__name__.replace("_", " "): measure(texts) for measure in MEASURES}
    counts = {title: {name: len(each) for name, each in sorted(places.items())} for title, places in found.items()}
    if pytestconfig.getoption("--write-counts"):
        write_counts(RECORDED, counts)
        return
    recorded = read_counts(RECORDED)
    changes: list[str] = []
    for title, places in found.items():
        for name in sorted(places.keys() | recorded[title].keys()):
            before, now = recorded[title].get(name, 0), places.get(name, [])
            if change := find_change(f"{title}, {name}", before, len(now), slack=before / 10):
                lines = (
                    f"  {place}" + (f" ({number})" if number > 1 else "") for place, number in Counter(now).items()
                )
                changes += [change, *sorted(lines)]
    assert not changes, "\n".join(["", *changes, HOW_TO_RECORD])

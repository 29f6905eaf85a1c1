"""Nothing that a user can write, call or set is without a line in the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from holodeck.cli.main import cli
from holodeck.config.json_schema import SCHEMAS
from holodeck.gateway.all_endpoints import list_routes
from holodeck.models.provider import PROVIDER_SPECS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "holodeck"
GUIDES = [page for folder in ("start", "guides", "operate", "clients") for page in (DOCS / folder).rglob("*.md")]


def commands(group: click.Group, path: tuple[str, ...] = ("holodeck",)) -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield " ".join((*path, name)), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


COMMANDS = dict(commands(cli))


def section(page: str, heading: str) -> str:
    """The text below the heading of a command, up to the next one."""
    found = re.search(rf"^##+ {re.escape(heading)}\n(.*?)(?=^##+ |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"there is no heading '{heading}'"
    return found[1]


@pytest.mark.parametrize("path", COMMANDS)
def test_each_command_has_an_entry_with_its_options_and_an_example(path: str) -> None:
    page = (DOCS / "reference" / "cli.md").read_text()
    entry = section(page, path)
    group = section(page, path.rpartition(" ")[0]) if path.count(" ") > 1 else ""
    options = [option for option in COMMANDS[path].params if isinstance(option, click.Option)]
    assert [option.name for option in options if f"`{option.opts[0]}`" not in entry + group] == []
    examples = "".join(re.findall(r"Examples?:\n\n```text\n(.*?)```", entry, re.DOTALL))
    assert path in examples


@pytest.mark.parametrize("name", sorted(path.split()[1] for path in COMMANDS if path.count(" ") == 1))
def test_each_command_is_used_on_a_page_that_teaches(name: str) -> None:
    assert any(re.search(rf"holodeck {name}\b", page.read_text()) for page in GUIDES)


@pytest.mark.parametrize(
    ("kind", "definition"), [(kind, name) for kind, schema in SCHEMAS.items() for name in ("", *schema()["$defs"])]
)
def test_each_key_of_a_file_has_an_entry(kind: str, definition: str) -> None:
    """Keys that several files share are described once, on the page of the agent file."""
    schema = SCHEMAS[kind]()
    keys = (schema["$defs"][definition] if definition else schema).get("properties", {})
    own = (DOCS / "reference" / f"{kind}-file.md").read_text()
    described = own + (DOCS / "reference" / "agent-file.md").read_text()
    assert [
        key for key in keys if not re.search(rf"^### `[\w.\[\]]*\b{key}`|^\| `{key}` ", described, re.MULTILINE)
    ] == []


def test_each_route_of_a_gateway_has_an_entry() -> None:
    page = (DOCS / "reference" / "http-api.md").read_text()
    assert [route for route in list_routes() if f"\n`{route.method} {route.path}`\n" not in page] == []


# Where a variable is read whose name is not in the call: it is in a file of the user, or in a table.
READS_OF_NAMED_VARIABLES = {
    "cli/commands/mcp/target.py": "--env NAME",
    "config/env_loader.py": "${NAME}",
    "config/env_overrides.py": "HOLODECK_KEY__KEY",
    "cli/ask_model.py": "PROVIDER_SPECS",
    "config/lint.py": "PROVIDER_SPECS",
    "config/mcp_json/loader.py": "INPUT_NAME",
    "config/mcp_json/programs.py": "CODEX_HOME",
    "lib/otel.py": "_ADDRESSES",
    "lib/system/process.py": "_VARIABLES",
    "providers/factory.py": "PROVIDER_SPECS",
}


def read_names() -> Iterator[tuple[str, str | None]]:
    """Each read of a variable in the source: its file, and the name, if the call has it."""
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        # Parsing all of the source takes seconds.
        for node in ast.walk(ast.parse(text)) if re.search(r"environ|getenv", text) else ():
            match node:
                case ast.Call(func=ast.Attribute(attr="get" | "setdefault" | "pop", value=owner), args=[key, *_]):
                    pass
                case ast.Subscript(value=owner, slice=key) | ast.Compare(left=key, comparators=[owner]):
                    pass
                case ast.Call(func=ast.Name(id="getenv") | ast.Attribute(attr="getenv"), args=[key, *_]):
                    owner = ast.Name("environ")
                case _:
                    continue
            is_environ = (isinstance(owner, ast.Name) and owner.id == "environ") or (
                isinstance(owner, ast.Attribute) and owner.attr == "environ"
            )
            if is_environ:
                is_written = isinstance(key, ast.Constant) and isinstance(key.value, str)
                yield str(path.relative_to(SOURCE)), ast.literal_eval(key) if is_written else None


def test_each_variable_that_the_source_reads_has_an_entry() -> None:
    page = (DOCS / "reference" / "environment.md").read_text()
    names = {name for _, name in read_names() if name is not None} | {
        each.key_variable for each in PROVIDER_SPECS.values() if each.key_variable
    }
    for table in ("lib/otel.py", "lib/system/process.py"):
        names |= set(re.findall(r'"([A-Z][A-Z_]{3,})"', (SOURCE / table).read_text()))
    assert names > {"HOLODECK_STATE", "NO_COLOR"}
    assert {name for name in names if f"`{name}`" not in page} == set()
    assert {file for file, name in read_names() if name is None} == set(READS_OF_NAMED_VARIABLES)


@pytest.mark.parametrize("module", ["holodeck", "holodeck.agents.runs", "holodeck.testing"])
def test_each_public_name_of_python_has_an_entry(module: str) -> None:
    import importlib

    page = (DOCS / "reference" / "python.md").read_text()
    names = importlib.import_module(module).__all__
    assert [name for name in names if f"### `{name}`\n" not in page] == []


def test_each_guide_is_in_the_side_bar_of_the_site() -> None:
    listed = set(re.findall(r"^guides/(\S+)$", (DOCS / "index.md").read_text(), re.MULTILINE))
    assert {page.stem for page in (DOCS / "guides").glob("*.md")} == listed

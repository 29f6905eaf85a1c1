"""What is not needed is not imported: help is instant, and nothing that does not connect loads a web framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("mcp", "mcp_types", "aiohttp", "httpx2", "starlette", "uvicorn", "openai", "websockets")
FEW_COLLECTIONS = 10  # a hundred thousand objects make one; with the threshold of Python there are ninety
EXAMPLE = Path(__file__).parents[1] / "examples" / "assistant" / "agent.yaml"


def _imported(code: str) -> set[str]:
    probe = f"import sys\n{code}\nprint('\\n'.join(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)
    return set(done.stderr.split())


@pytest.mark.proves("D-1")
@pytest.mark.parametrize(
    "code",
    [
        "import holodeck",
        "import holodeck.models.agent, holodeck.config.agent_loader",
        "from holodeck.cli.main import cli\ncli.main(['--help'], standalone_mode=False)",
        f"from holodeck.cli.main import cli\ncli.main(['validate', {str(EXAMPLE)!r}], standalone_mode=False)",
    ],
    ids=["import", "models", "help", "validate"],
)
def test_nothing_that_does_not_connect_imports_the_sdk_or_a_web_framework(code: str) -> None:
    assert not _imported(code) & set(HEAVY)


def test_help_does_not_even_import_the_models() -> None:
    modules = _imported("from holodeck.cli.main import cli\ncli.main(['--help'], standalone_mode=False)")
    assert not modules & {"pydantic", "yaml", "rich"}


def test_validate_imports_no_parts_of_files_that_are_not_there_and_of_a_screen_that_is_not_drawn() -> None:
    modules = _imported(
        f"from holodeck.cli.main import cli\ncli.main(['validate', {str(EXAMPLE)!r}], standalone_mode=False)"
    )
    assert "rich.table" in modules
    assert not modules & {"dotenv", "holodeck.config.mcp_json", "rich.markdown", "asyncio"}


def test_run_imports_no_table_no_env_file_no_client_and_no_durable_engine(tmp_path: Path) -> None:
    agent = tmp_path / "agent.yaml"
    agent.write_text("name: small\nmodel: {provider: rehearsal}\ninstructions: {inline: Answer.}\n")
    modules = _imported(
        f"from holodeck.cli.main import cli\ncli.main(['run', {str(agent)!r}, 'hi'], standalone_mode=False)"
    )
    assert "holodeck.engine.loop" in modules
    assert not modules & {*HEAVY, "rich", "dotenv", "prompt_toolkit", "dbos", "sqlite3", "holodeck.config.mcp_json"}


def test_a_program_that_imports_agent_imports_neither_what_runs_one_nor_what_reads_files() -> None:
    modules = _imported("from holodeck import Agent, MCPServer, RunOptions, tool")
    assert {"holodeck.agents.agent", "holodeck.agents.tools.mcp_server"} <= modules
    needless = (
        *("holodeck.engine", "holodeck.runtime", "holodeck.agent_runner", "holodeck.storage"),
        *("holodeck.config.", "holodeck.tools.mcp.", "holodeck.agents.sessions", "holodeck.models.agent"),
    )
    found = {name for name in modules if name.startswith(needless)}
    assert found == {"holodeck.config.server_names", "holodeck.tools.mcp.names"}
    assert not modules & {*HEAVY, "yaml", "email", "importlib.metadata", "jsonschema_rs", "sqlite3"}
    assert not modules & {"holodeck.lib.redaction", "shutil", "difflib"}


def test_a_table_is_printed_without_the_markdown_of_the_live_screen() -> None:
    modules = _imported("from holodeck.cli.output.terminal import Terminal\nTerminal().table(('RUN',), [('run_1',)])")
    assert "rich.table" in modules
    assert not modules & {"rich.markdown", "rich.live", "markdown_it", "pygments"}


def test_a_command_does_not_search_what_it_has_imported_for_garbage() -> None:
    """Python would do so ninety times while it imports, and at exit in all that is not frozen."""
    code = f"""import gc
sys.argv = ["holodeck", "validate", {str(EXAMPLE)!r}]
gc.callbacks.append(lambda phase, info: print("collection", file=sys.stderr) if phase == "start" else None)
from holodeck.cli.entry import main
try:
    main()
except SystemExit:
    print(f"frozen={{gc.get_freeze_count() > 0}}", file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}"], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.count("collection") <= FEW_COLLECTIONS
    assert "frozen=True" in done.stderr


def test_each_public_name_can_be_imported_and_is_listed_once() -> None:
    import holodeck

    assert len(holodeck.__all__) == len(set(holodeck.__all__))
    assert {*holodeck.__all__} == {*dir(holodeck)} >= {"Agent", "MCPServer", "__version__", "load_agent", "tool"}
    assert all(getattr(holodeck, name) for name in holodeck.__all__)


def test_a_gateway_and_mcp_over_http_are_loaded_without_the_library_that_only_servers_of_tests_need() -> None:
    transports = "holodeck.tools.mcp.transports.streamable_http, holodeck.tools.mcp.transports.sse"
    assert "aiohttp" not in _imported(f"import holodeck.gateway.service, holodeck.gateway.backends, {transports}")

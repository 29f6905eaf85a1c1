"""What is not needed is not imported: help is instant, and nothing that does not connect loads a web framework."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("mcp", "mcp_types", "aiohttp", "httpx2", "starlette", "uvicorn", "openai", "websockets")
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
        "import holodeck.models.agent, holodeck.config.loader",
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


def test_the_public_names_are_few_and_sorted() -> None:
    import holodeck

    assert holodeck.__all__ == sorted(holodeck.__all__)
    assert holodeck.__all__ == ["Agent", "ConfigError", "HoloDeckError", "RunResult", "__version__", "load_agent"]
    assert all(getattr(holodeck, name) for name in holodeck.__all__)


def test_a_gateway_is_loaded_without_the_client_that_only_remote_servers_and_tokens_need() -> None:
    assert "aiohttp" not in _imported("import holodeck.gateway.serving, holodeck.gateway.wiring")

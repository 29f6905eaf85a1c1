"""agentic-api, a gateway in Rust that stores responses in SQLite and runs MCP tools that a request declares."""

from __future__ import annotations

from pathlib import Path

from bench.cached_environment import install_program

VERSION = "0.9.0"
NOTE = f"agentic-api is {VERSION}; it stores in SQLite, as ours does, and has no keys"


def build_command(*, port: int, model: str, database: Path) -> list[str]:
    """Return the command that serves on `port` before a model with `/v1/responses`."""
    program = install_program("agentic-api", VERSION, size="some fifty megabytes").with_name("agentic-server")
    # It opens a database that exists, and makes none.
    database.touch()
    options = {
        "gateway-host": "127.0.0.1",
        "gateway-port": port,
        "llm-api-base": model,
        "db-url": f"sqlite://{database}",
    }
    return [str(program), "--skip-llm-ready-check", *(f"--{name}={value}" for name, value in options.items())]

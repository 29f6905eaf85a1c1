"""smg, a gateway in Rust that keeps responses in memory and runs MCP tools that a request declares."""

from __future__ import annotations

from bench.cached_environment import install_program

VERSION = "1.13.0"
NOTE = f"smg is {VERSION}; it keeps responses in memory"


def build_command(*, port: int, metrics_port: int, model: str, key: str) -> list[str]:
    """Return the command that serves on `port`, with one key, as ours has one."""
    program = install_program("smg", VERSION, size="some ten megabytes")
    options = {"host": "127.0.0.1", "port": port, "worker-urls": model, "backend": "openai", "log-level": "warn"}
    options |= {"prometheus-host": "127.0.0.1", "prometheus-port": metrics_port, "tenant-api-key": f"bench:{key}"}
    return [str(program), "launch", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]

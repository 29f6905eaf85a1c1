"""smg, a gateway in Rust, as a router before a model that only knows chat completions.

It passes chat completions on. Its `/v1/responses`, where it stores answers and runs MCP tools, needs a model with
`/v1/responses`, which the model of this bench does not have. So it gets chat completions, and never a tool.
"""

from __future__ import annotations

from bench.cached_environment import install_program

VERSION = "1.13.0"
NOTE = f"smg is {VERSION}; it is asked for chat completions, stores none, and runs no tools for a model with only these"


def build_command(*, port: int, metrics_port: int, model: str, key: str) -> list[str]:
    """The command that serves on `port`, with one key, as ours has one."""
    program = install_program("smg", VERSION, size="some ten megabytes")
    # With `--api-key` it would request a list of models from the model, which it does not have.
    options = {"host": "127.0.0.1", "port": port, "worker-urls": model, "backend": "openai", "log-level": "warn"}
    options |= {"prometheus-host": "127.0.0.1", "prometheus-port": metrics_port, "tenant-api-key": f"bench:{key}"}
    return [str(program), "launch", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]

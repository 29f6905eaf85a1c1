"""Codex with HoloDeck among the MCP servers of its `config.toml`. Its model is the gateway's, and calls the tools."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from mcp_program import ADDRESS, COMMAND, KEY, URL, use_all

CODEX = Path(os.environ["CLIENT_FOLDER"]) / "node_modules" / ".bin" / "codex"
CONFIG = f"""
model = "demo"
model_provider = "holodeck"
web_search = "disabled"
sandbox_mode = "danger-full-access"
approval_policy = "never"

[model_providers.holodeck]
name = "HoloDeck"
base_url = "{URL}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"

"""
STDIO = f"""
[mcp_servers.stdio]
command = "{COMMAND[0]}"
args = {json.dumps(COMMAND[1:])}
env = {{ HOLODECK_TRUST = "all" }}
required = true
"""
HTTP = f"""
[mcp_servers.http]
url = "{ADDRESS}"
bearer_token_env_var = "MCP_KEY"
required = true
"""


async def use(way, config, key):
    names = await ask(f"which tools over {way}", config, key)
    # Codex tells its model first how long the call took.
    total = (await ask(f"a sum over {way}", config, key)).splitlines()[-1]
    return names.split(", "), total.removeprefix("It is ").removesuffix(".")


async def ask(question, config, key):
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "config.toml").write_text(CONFIG + config)
        process = await asyncio.create_subprocess_exec(
            *(str(CODEX), "exec", "--skip-git-repo-check", question),
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=home,
            env={**os.environ, "CODEX_HOME": home, "MODEL_KEY": KEY, "MCP_KEY": key},
        )
        out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError(err.decode())
    return out.decode().strip()


async def use_stdio():
    return await use("stdio", STDIO, "")


async def use_http(key):
    return await use("http", HTTP, key)


use_all(use_stdio, use_http)

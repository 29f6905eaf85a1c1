"""Codex, which runs commands as its own function: `codex exec`, once plain and once with its events as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from client_program import API_KEY, BASE_URL, MODEL, ask_all

CODEX = Path(os.environ["CLIENT_FOLDER"]) / "node_modules" / ".bin" / "codex"
CONFIG = f"""
model = "{MODEL}"
model_provider = "holodeck"
web_search = "disabled"
sandbox_mode = "danger-full-access"
approval_policy = "never"

[model_providers.holodeck]
name = "HoloDeck"
base_url = "{BASE_URL}"
wire_api = "responses"
env_key = "HOLODECK_KEY"
"""


async def ask(question: str) -> str:
    return (await _run_codex(question)).strip()


async def ask_streamed(question: str) -> str:
    """Codex always streams; here its own events are read."""
    events = [json.loads(line) for line in (await _run_codex("--json", question)).splitlines()]
    items = [event["item"] for event in events if event["type"] == "item.completed"]
    return str([item["text"] for item in items if item["type"] == "agent_message"][-1])


async def _run_codex(*arguments: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        (Path(home) / "config.toml").write_text(CONFIG)
        process = await asyncio.create_subprocess_exec(
            str(CODEX),
            "exec",
            "--skip-git-repo-check",
            *arguments,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=home,
            env={**os.environ, "CODEX_HOME": home, "HOLODECK_KEY": API_KEY},
        )
        out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError(err.decode()[-500:])
    return out.decode()


ask_all(ask, ask_streamed)

"""Claude Code, which runs commands as its own function: `claude -p`, once as text and once with its events as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from client_program import API_KEY, BASE_URL, MODEL, ask_all

CLAUDE = Path(os.environ["CLIENT_FOLDER"]) / "node_modules" / ".bin" / "claude"
SETTINGS = {
    # It adds the `/v1` itself.
    "ANTHROPIC_BASE_URL": BASE_URL.removesuffix("/v1"),
    "ANTHROPIC_API_KEY": API_KEY,
    "ANTHROPIC_MODEL": MODEL,
    # For titles and summaries it asks a smaller model.
    "ANTHROPIC_DEFAULT_HAIKU_MODEL": MODEL,
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
}


async def ask(question: str) -> str:
    return (await _run_claude(question)).strip()


async def ask_streamed(question: str) -> str:
    """Claude Code always streams; here its own events are read."""
    out = await _run_claude(question, "--output-format", "stream-json", "--verbose")
    last = json.loads(out.splitlines()[-1])
    return str(last["result"]).strip()


async def _run_claude(question: str, *options: str) -> str:
    with tempfile.TemporaryDirectory() as home:
        process = await asyncio.create_subprocess_exec(
            str(CLAUDE),
            "-p",
            question,
            "--allowedTools",
            "Bash",
            *options,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd=home,
            env={"PATH": os.environ["PATH"], "HOME": home, **SETTINGS},
        )
        out, err = await process.communicate()
    if process.returncode:
        raise RuntimeError((out + err).decode()[-500:])
    return out.decode()


ask_all(ask, ask_streamed)

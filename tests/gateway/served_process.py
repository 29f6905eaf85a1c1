"""`holodeck serve` as a process, as an operator starts it and as SIGTERM ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

_HOLODECK = Path(sys.executable).parent / "holodeck"


@asynccontextmanager
async def holodeck_serve(folder: Path, config: Mapping[str, Any]) -> AsyncIterator[str]:
    """The URL at which it serves this gateway file. At the end it must leave in good order."""
    file = folder / "gateway.yaml"
    file.write_bytes(orjson.dumps(dict(config)))
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    process = await asyncio.create_subprocess_exec(
        str(_HOLODECK), "serve", str(file), stderr=PIPE, cwd=folder, env=environ
    )
    try:
        yield await _url(process)
        process.send_signal(signal.SIGTERM)
        _, rest = await process.communicate()
        assert process.returncode == 0, rest.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def _url(process: Process) -> str:
    assert process.stderr is not None
    said = []
    async for line in process.stderr:
        said.append(line.decode())
        if " at http" in said[-1]:
            return said[-1].split(" at ")[1].strip().removesuffix("/v1")
    raise AssertionError("".join(said))

"""`holodeck serve` as a process of its own, as an operator starts, signals and kills it."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson
from forked_process import ForkedProcess, fork
from gateway.documented_gateway import check_exchange
from gateway.running_gateway import gateway_config
from warm_holodeck import can_fork

HOLODECK = ("-m", "holodeck")


@dataclass(kw_only=True)
class GatewayProcess:
    """A gateway process that answers."""

    process: Process | ForkedProcess
    url: str
    stderr_lines: list[str] = field(default_factory=list)
    """Its standard error so far, line by line."""
    session: aiohttp.ClientSession

    async def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """One request: status, data (text when it is no JSON) and headers of the answer."""
        data = body if isinstance(body, bytes) or body is None else orjson.dumps(body)
        async with self.session.request(method, self.url + path, data=data, headers=headers) as answer:
            text = await answer.read()
            check_exchange(method, path, data, answer.status, answer.headers.get("content-type", ""), text)
            is_json = answer.content_type == "application/json" and text
            return answer.status, orjson.loads(text) if is_json else text.decode(), answer.headers

    async def create_response(self, text: str = "hi", **more: Any) -> tuple[int, Any, Mapping[str, str]]:
        """Make a response."""
        return await self.send("POST", "/v1/responses", {"model": "demo", "input": text, **more})

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    async def wait_exit(self) -> int:
        """Its exit code, once it has one."""
        return await self.process.wait()


def write_gateway_file(folder: Path, endpoint: str, **config: Any) -> Path:
    """A gateway file that serves the model at this endpoint as `demo`, with more of the file in `config`."""
    file = folder / "gateway.yaml"
    file.write_bytes(orjson.dumps(gateway_config(endpoint, {}) | config))
    return file


async def start_gateway(
    file: Path,
    *options: str,
    program: Sequence[str] = HOLODECK,
    command: str = "serve",
    environ: Mapping[str, str] | None = None,
) -> Process:
    """`holodeck serve FILE`, with nothing of this machine's settings in its environment but what is given."""
    words = (sys.executable, *program, command, str(file), *options)
    return await asyncio.create_subprocess_exec(
        *words, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=_environ() | dict(environ or {})
    )


def _environ() -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOLODECK_", "OTEL_"))}
    return clean | {"HOLODECK_TRUST": "all"}


async def _start_or_fork(
    file: Path, options: Sequence[str], program: Sequence[str] | None, environ: Mapping[str, str]
) -> Process | ForkedProcess:
    """A fork where a program is none but `holodeck`, or is a file that runs it."""
    if (program and not program[0].endswith(".py")) or not can_fork(environ):
        return await start_gateway(file, *options, program=program or HOLODECK, environ=environ)
    args = [*(program or ())[1:], "serve", str(file), *options]
    return await fork(args, cwd=Path.cwd(), environ=_environ() | dict(environ), program=program[0] if program else "")


async def wait_logged(served: GatewayProcess, text: str) -> str:
    """Wait for a log line with this text and return it. Sends no request to the gateway."""
    while not (found := [line for line in served.stderr_lines if text in line]):  # noqa: ASYNC110 - in another process
        await asyncio.sleep(0.02)
    return found[0]


async def wait_refused(
    file: Path, *, command: str = "serve", environ: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """The exit code and the words of a gateway that does not start."""
    process = await start_gateway(file, command=command, environ=environ)
    try:
        _, words = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode is not None
    return process.returncode, " ".join(words.decode().split())


@asynccontextmanager
async def run_gateway_process(
    file: Path, *options: str, program: Sequence[str] | None = None, environ: Mapping[str, str] | None = None
) -> AsyncIterator[GatewayProcess]:
    """A gateway process, once it serves; killed at the end if it still runs.

    It is a fork (see `warm_holodeck`), or with `program=HOLODECK` the command of an operator.
    """
    process = await _start_or_fork(file, options, program, environ or {})
    assert process.stderr is not None
    said: list[str] = []
    try:
        url = ""
        while not url:
            line = (await process.stderr.readline()).decode()
            assert line, f"it ended before it served: {said}"
            said.append(line)
            found = re.search(r"(?:Serving .* at |\"url\":\")(http://[^\s\"]+)/v1", line)
            url = found[1] if found else ""
        reading = asyncio.create_task(_read(process.stderr, said))
        async with aiohttp.ClientSession(headers={"content-type": "application/json"}) as session:
            yield GatewayProcess(process=process, url=url, stderr_lines=said, session=session)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate() if not said else await process.wait()
    await reading


async def _read(stderr: asyncio.StreamReader, said: list[str]) -> None:
    while line := (await stderr.readline()).decode():
        said.append(line)

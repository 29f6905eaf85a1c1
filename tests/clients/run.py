"""Clients that others wrote, unchanged, against `holodeck serve` with its default settings: `make clients`.

Each client of `clients.toml` has an environment of its own in `.cache/clients`, made once. It gets the questions of
`scripted_conversation.py`, plain and streamed, with a function of its own beside the operator's MCP tool; one that
speaks MCP gets the two doors of `mcp_doors.py`. A table shows which of its answers were right. Clients with
`newest` are tried once more with the newest versions of their packages, which are installed for each run: what an
ordinary user gets.
`make clients CLIENTS="codex langchain"` takes those whose names contain such a word.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clients import mcp_doors
from clients.scripted_conversation import EXPECTED, MODEL, QUESTIONS, run_scripted_gateway
from interprocess_lock import interprocess_lock

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
CACHE = HERE.parents[1] / ".cache" / "clients"
UV = Path(sys.executable).with_name("uv")
MAX_SECONDS = 300.0  # for all questions of one client; Codex starts a process for each
MAX_INSTALL_SECONDS = 600.0  # for the packages of one client; npm can search for fitting versions for ever


@dataclass(frozen=True, kw_only=True)
class Client:
    """One client: its packages, and the program that uses it."""

    name: str
    program: str
    python: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    speaks: str = "openai"
    """Or `mcp`: then HoloDeck is an MCP server to it."""
    is_newest: bool = False
    """Its packages have no versions, and are installed anew."""

    @property
    def expected(self) -> Mapping[str, str]:
        """The right answers."""
        return mcp_doors.EXPECTED if self.speaks == "mcp" else EXPECTED

    @property
    def folder(self) -> Path:
        """The environment; clients with the same packages share it."""
        packages = " ".join(self.python or self.node)
        slug = re.sub(r"[^a-z0-9]+", "-", packages.lower()).strip("-")[:40]
        return CACHE / f"{slug}-{hashlib.sha256(packages.encode()).hexdigest()[:8]}"

    @property
    def command(self) -> list[str]:
        """The command line of the program, without its arguments."""
        if self.python:
            return [str(self.folder / "bin" / "python"), str(PROGRAMS / self.program)]
        if self.program.endswith(".py"):
            return [sys.executable, str(PROGRAMS / self.program)]
        return [_find_node(), str(self.folder / self.program)]


def read_clients() -> list[Client]:
    """The clients of `clients.toml`."""
    clients = []
    for each in tomllib.loads((HERE / "clients.toml").read_text())["client"]:
        client = Client(
            name=each["name"],
            program=each["program"],
            python=tuple(each.get("python", ())),
            node=tuple(each.get("node", ())),
            speaks=each.get("speaks", "openai"),
        )
        clients.append(client)
        if each.get("newest"):
            clients.append(_without_versions(client))
    return clients


def _without_versions(client: Client) -> Client:
    """The client with the newest versions of its packages."""
    return replace(
        client,
        name=f"{client.name}, newest",
        python=tuple(package.partition("==")[0] for package in client.python),
        # The name of a package may begin with an `@`.
        node=tuple(package[0] + package[1:].partition("@")[0] for package in client.node),
        is_newest=True,
    )


def install(client: Client) -> None:
    """Make the environment of a client, unless it is there. Raises `SubprocessError` when that fails."""
    with interprocess_lock(f"client-{client.folder.name}"):
        mark = client.folder / ".ready"
        if client.is_newest:
            shutil.rmtree(client.folder, ignore_errors=True)
        if not mark.exists():
            if client.python:
                _run(UV, "venv", "--quiet", "--clear", "--python", sys.executable, client.folder)
                _run(UV, "pip", "install", "--quiet", "--python", client.folder / "bin" / "python", *client.python)
            else:
                client.folder.mkdir(parents=True, exist_ok=True)
                _run("npm", "install", "--no-audit", "--no-fund", "--silent", *client.node, cwd=client.folder)
            mark.touch()
        if client.node:
            # Node looks for packages beside the program.
            for program in PROGRAMS.glob("*.mjs"):
                shutil.copy(program, client.folder)


async def run_program(
    command: Sequence[str], base_url: str, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The answers of a program to all questions. One that fails has its error as the only answer."""
    return await read_answers([*command, base_url, MODEL, *QUESTIONS], environ)


async def read_answers(command: Sequence[str], environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a program prints as its last line, as JSON. One that fails has its error as the only answer."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "NODE_NO_WARNINGS": "1", **(environ or {})},
    )
    try:
        async with asyncio.timeout(MAX_SECONDS):
            out, err = await process.communicate()
    except TimeoutError:
        return {"": f"did not end in {MAX_SECONDS:.0f} s"}
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        return {"": err.decode().strip().splitlines()[-1]}
    answers: dict[str, str] = json.loads(out.splitlines()[-1])
    return answers


def wrong_answers(answers: Mapping[str, str], expected: Mapping[str, str] = EXPECTED) -> dict[str, str]:
    """What was not answered as expected, by question."""
    if "" in answers:
        return dict(answers)
    return {question: answers.get(question, "") for question in expected if answers.get(question) != expected[question]}


async def _try_client(client: Client) -> dict[str, str]:
    environ = {"CLIENT_FOLDER": str(client.folder), "HOLODECK_TRUST": "all"}
    with tempfile.TemporaryDirectory() as folder:
        if client.speaks == "mcp":
            async with mcp_doors.open_doors(Path(folder)) as doors:
                answers = await read_answers([*client.command, *doors.arguments], environ)
                return wrong_answers(answers, client.expected)
        async with run_scripted_gateway(Path(folder)) as base_url:
            return wrong_answers(await run_program(client.command, base_url, environ))


def _find_node() -> str:
    node = shutil.which("node")
    if node is None:
        sys.exit("Half of the clients are npm packages. Install Node.js (it brings npm).")
    return node


def _run(*command: Path | str, cwd: Path | None = None) -> None:
    subprocess.run(
        [str(part) for part in command], check=True, cwd=cwd, stderr=subprocess.PIPE, timeout=MAX_INSTALL_SECONDS
    )


def main(words: list[str]) -> int:
    """Try the clients and print the table. 1 if one was wrong, or could not be installed."""
    clients = [each for each in read_clients() if not words or any(word.lower() in each.name.lower() for word in words)]
    rows: list[tuple[str, str]] = []
    is_good = True
    for client in clients:
        print(f"==> {client.name}", flush=True)
        try:
            install(client)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = (error.stderr or b"").decode().strip().splitlines()
            rows.append((client.name, f"not installed: {said[-1] if said else error}"))
            is_good = False
            continue
        wrong = asyncio.run(_try_client(client))
        for question, answer in wrong.items():
            print(f"    {question or 'program'}: {answer!r}")
        right, asked = len(client.expected) - len(wrong), len(client.expected)
        rows.append((client.name, f"{right} of {asked}" if "" not in wrong else "failed"))
        is_good = is_good and not wrong
    width = max(len(name) for name, _ in rows)
    print(f"\n{'client':{width}}  right answers")
    for name, result in rows:
        print(f"{name:{width}}  {result}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`server-everything` looks the same behind HoloDeck as in front of it, feature by feature, to the official client."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import httpx2
import pytest
from async_tests import async_test
from gateway.mcp_endpoint.sdk_client import MODES, Mode
from gateway.running_gateway import ANY_KEY, run_gateway
from installed_servers import PACKAGES
from mcp.client import Transport
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from real.feature_record import Record, record_features
from real.project import START_SECONDS

Door: TypeAlias = Literal["stdio", "http"]
DOORS: tuple[Door, ...] = ("stdio", "http")
COMMAND = ("node", str(PACKAGES / "@modelcontextprotocol/server-everything/dist/index.js"))
SERVER = {
    "name": "everything",
    "type": "mcp",
    "description": "Everything that a server can do",
    "command": COMMAND[0],
    "args": [COMMAND[1]],
    "sampling": "allow",
}
ABSENT = object()
ANYTHING = object()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A feature that looks different behind HoloDeck, and why that is right."""

    feature: str
    here: Any
    """What the client sees there. `ABSENT`: nothing. `ANYTHING`: what is not fixed."""
    reason: str
    doors: tuple[Door, ...] = DOORS
    modes: tuple[Mode, ...] = MODES


def _error(message: str) -> dict[str, Any]:
    return {"error": {"code": -32602, "message": message}}


_BY_SESSION = "the modern era has no session; what it has instead is recorded by its effect"
_OF_ONE_CLIENT = "the server is shared by all callers: what belongs to none of their calls is passed on to none"
DIFFERENCES = (
    Difference(feature="server info", here={"name": "holodeck", "version": ANYTHING}, reason="the server is HoloDeck"),
    Difference(
        feature="instructions",
        here="The tools of these servers:\n- everything: Everything that a server can do",
        reason="several servers may be behind, and none is started for the handshake",
    ),
    Difference(
        feature="protocol version",
        here="2026-07-28",
        modes=("auto",),
        reason="HoloDeck speaks the newest version with its client, whatever the server behind speaks",
    ),
    Difference(
        feature="capability tasks",
        here=ABSENT,
        reason="each call is an ordinary one: what runs as a task behind is waited for",
    ),
    Difference(
        feature="tool ask_demo",
        here=ANYTHING,
        doors=("stdio",),
        reason="the agent of the file is a tool as well",
    ),
    Difference(
        feature="call no-such-tool {}",
        here=_error("Unknown tool: no-such-tool"),
        reason="the protocol wants an error, and the name goes to no server",
    ),
    Difference(
        feature="call get-sum {'a': 'two', 'b': 3}",
        here={
            "content": [
                {"type": "text", "text": 'The arguments do not fit the tool: a: "two" is not of type "number"'}
            ],
            "isError": True,
            "resultType": "complete",
        },
        reason="arguments are checked before they are sent to a server",
    ),
    Difference(
        feature="get no-such-prompt {}",
        here=_error("Unknown prompt: no-such-prompt"),
        reason="the name goes to no server",
    ),
    Difference(
        feature="complete {'type': 'ref/prompt', 'name': 'no-such-prompt'} {'name': 'name', 'value': ''}",
        here=_error("There is no such prompt or resource"),
        reason="the name goes to no server",
    ),
    *(
        Difference(feature=feature, here=ABSENT, modes=("auto",), reason=_BY_SESSION)
        for feature in ("subscribe", "unsubscribe", "set level")
    ),
    *(
        Difference(feature=feature, here=ABSENT, modes=("auto",), doors=("stdio",), reason=_BY_SESSION)
        for feature in (
            *("tool get-roots-list", "call get-roots-list {}", "roots after a change"),
            *("logged below the level", "logged at the level"),
        )
    ),
    *(
        Difference(feature=feature, here=ABSENT, doors=("http",), reason=_OF_ONE_CLIENT)
        for feature in (
            *("tool get-roots-list", "call get-roots-list {}", "roots after a change"),
            *("logged below the level", "logged at the level"),
        )
    ),
)


@pytest.fixture(scope="module")
def direct() -> Record:
    """What the client sees of the server itself."""
    found: list[Record] = []

    @async_test(START_SECONDS)
    async def record() -> None:
        found.append(await record_features(_start(*COMMAND, HOME=os.environ["HOME"]), "legacy"))

    record()
    return found[0]


@asynccontextmanager
async def _open_door(door: Door, folder: Path) -> AsyncIterator[Transport]:
    """The way to HoloDeck with the server behind it."""
    if door == "stdio":
        (folder / ".holodeck").mkdir()
        (folder / ".holodeck/config.yaml").write_text("allowed_commands: [node]")
        file = folder / "agent.yaml"
        file.write_text(json.dumps({"name": "demo", "tools": [SERVER]}))
        command = (sys.executable, "-m", "holodeck", "mcp", "serve", str(file))
        yield _start(*command, HOME=str(folder), HOLODECK_TRUST="all")
        return
    config: dict[str, Any] = {"mcp_servers": [SERVER], "allow_stdio": True, "allowed_commands": ["node"]}
    headers = {"authorization": f"Bearer {ANY_KEY}"}
    async with (
        run_gateway(folder, **config) as gateway,
        httpx2.AsyncClient(headers=headers, timeout=START_SECONDS) as http,
    ):
        yield streamable_http_client(f"{gateway.url}/mcp", http_client=http)


def _start(command: str, *arguments: str, **environ: str) -> Transport:
    env = {"PATH": os.environ["PATH"], **environ}
    return stdio_client(StdioServerParameters(command=command, args=list(arguments), env=env))


@pytest.mark.proves("D-38")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("door", DOORS)
def test_every_feature_of_a_server_is_the_same_behind_holodeck(
    tmp_path: Path, direct: Record, door: Door, mode: Mode
) -> None:
    @async_test(START_SECONDS)
    async def compare() -> None:
        async with _open_door(door, tmp_path) as transport:
            here = await record_features(transport, mode, is_shared=door == "http")
        expected = _expect(direct, door, mode)
        assert {key: value for key, value in here.items() if not _is_expected(expected, key, value)} == {}
        assert [key for key, value in expected.items() if value is not ABSENT and key not in here] == []

    compare()


def _expect(direct: Record, door: Door, mode: Mode) -> Record:
    """What a client of this kind is to see at this door."""
    # How a tool is run as a task, which no client needs to know here.
    expected = {
        key: {name: field for name, field in value.items() if name != "execution"} if key.startswith("tool ") else value
        for key, value in direct.items()
    }
    for each in DIFFERENCES:
        if door in each.doors and mode in each.modes:
            assert expected.get(each.feature, ABSENT) != each.here, f"no difference any more: {each.feature}"
            expected[each.feature] = each.here
    return expected


def _is_expected(expected: Record, key: str, value: Any) -> bool:
    wanted = expected.get(key, ABSENT)
    if isinstance(wanted, dict) and ANYTHING in wanted.values():
        return isinstance(value, dict) and all(
            field in value and (content is ANYTHING or value[field] == content) for field, content in wanted.items()
        )
    return wanted is ANYTHING or bool(wanted == value)

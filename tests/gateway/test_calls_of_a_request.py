"""Python calls of the gateway for one request, of each kind: exact, and as `request_calls.json` records them.

The gateway has answered the same request before. Counted is what the code of the package starts, on the event loop and
on the threads of the storage, for the request and until its run is over; the model, the MCP server and the client are
not counted. Of some requests the one with the fewest calls counts: what the gateway does once a second, or once in a
hundred requests, falls into one or the other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from async_tests import async_test
from counted_calls import CountedFunctions
from gateway.running_gateway import ANY_KEY, MODEL, RunningGateway, run_gateway
from recorded_counts import HOW_TO_RECORD, find_change, read_counts, write_counts

from holodeck.storage.sqlite import connection
from holodeck.testing import Fault, FaultyMCPServer, ScriptedModel, call, say
from holodeck.testing.model.scripted import Received

RECORDED = Path(__file__).with_name("request_calls.json")
FIRST_REQUESTS = 5
FEWEST_REQUESTS = 5
# Requests are asked until the count is as recorded: another is only needed where the machine was busy.
MOST_REQUESTS = 40
# Calls that stand-ins and deployments may add to a request which the usual model answers.
UNUSED_CALLS = {"model with a stand-in": 6, "model with deployments": 10}
LONG = "Tell me more!"
PLAIN = {"model": MODEL, "input": "Hello?"}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hello?"}]}
REQUESTS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "response": ("/v1/responses", PLAIN),
    "streamed": ("/v1/responses", PLAIN | {"stream": True}),
    "chat completion": ("/v1/chat/completions", CHAT),
    "response of 500 tokens": ("/v1/responses", PLAIN | {"input": LONG}),
    "model with a stand-in": ("/v1/responses", PLAIN | {"model": "with-stand-in"}),
    "model with deployments": ("/v1/responses", PLAIN | {"model": "with-deployments"}),
    "MCP call": ("/v1/responses", PLAIN),
    "offer of few tools": ("/v1/responses", PLAIN),
    "offer of 1,000 tools": ("/v1/responses", PLAIN),
}


class _Client:
    """A connection on which requests are written as a whole: each arrives in one piece."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def connect(cls, url: str) -> _Client:
        host, _, port = url.removeprefix("http://").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def post(self, path: str, body: Mapping[str, Any]) -> bytes:
        data = orjson.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {ANY_KEY}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
        self._writer.write(head.encode() + data)
        answer = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert answer.startswith("http/1.1 200 "), answer
        _, has_length, length = answer.partition("content-length: ")
        if has_length:
            return await self._reader.readexactly(int(length.partition("\r\n")[0]))
        said = b""
        while size := int(await self._reader.readline(), 16):
            said += (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)
        return said

    def close(self) -> None:
        self._writer.close()


async def _count_calls(calls: CountedFunctions, gateway: RunningGateway, kind: str, recorded: int) -> Counter[str]:
    """Ask the same again and again. Returns the calls of the request that took the fewest."""
    client, fewest = await _Client.connect(gateway.url), Counter[str]()
    for number in range(MOST_REQUESTS):
        with calls.counting() as counts:
            said = await client.post(*REQUESTS[kind])
            assert b"Hello!" in said
            while gateway.service.configurations.current.uses.count:  # noqa: ASYNC110 - the run of the gateway
                await asyncio.sleep(0)
            # What is done at the end of a run.
            for _ in range(20):
                await asyncio.sleep(0)
        if number < FIRST_REQUESTS:
            continue
        fewest = min(fewest or counts, counts, key=Counter.total)
        if number + 1 >= FIRST_REQUESTS + FEWEST_REQUESTS and fewest.total() <= recorded:
            break
    client.close()
    return fewest


def _answer(request: Received) -> Any:
    """A greeting, or one of as many tokens as it has characters."""
    is_long = request.json["messages"][-1]["content"] == LONG
    return say("Hello!" * 83) if is_long else say("Hello!")


def _answer_with_call(request: Received) -> Any:
    """A call of a tool, and a text once it has a result."""
    has_result = request.json["messages"][-1]["role"] == "tool"
    return say("Hello!") if has_result else call("add", a=1, b=2)


async def _count_all(folder: Path, recorded: Mapping[str, int]) -> dict[str, Counter[str]]:
    calls = CountedFunctions("holodeck", excluded="holodeck.testing")
    storage, plain, with_server = {"url": "sqlite:///kept.db"}, folder / "plain", folder / "with_server"
    plain.mkdir()
    with_server.mkdir()
    counts = {}
    with calls.watching():
        model = ScriptedModel(_answer)
        async with run_gateway(plain, model, storage=storage, is_checked=False) as gateway:
            for kind in ("response", "streamed", "chat completion"):
                counts[kind] = await _count_calls(calls, gateway, kind, recorded.get(kind, 0))
            model.chunk, kind = 1, "response of 500 tokens"
            counts[kind] = await _count_calls(calls, gateway, kind, recorded.get(kind, 0))
            model.chunk = None
            await _add_models(gateway)
            for kind in UNUSED_CALLS:
                counts[kind] = await _count_calls(calls, gateway, kind, recorded.get(kind, 0))
        model = ScriptedModel(_answer_with_call)
        async with (
            FaultyMCPServer() as server,
            run_gateway(with_server, model, mcp={"sums": server}, storage=storage, is_checked=False) as gateway,
        ):
            counts["MCP call"] = await _count_calls(calls, gateway, "MCP call", recorded.get("MCP call", 0))
            assert len(server.calls()) >= FEWEST_REQUESTS
        for kind, fault in (("offer of few tools", Fault.NORMAL), ("offer of 1,000 tools", Fault.THOUSAND_TOOLS)):
            offering = folder / fault
            offering.mkdir()
            async with (
                FaultyMCPServer(fault) as server,
                run_gateway(
                    offering, ScriptedModel(_answer), mcp={"sums": server}, storage=storage, is_checked=False
                ) as gateway,
            ):
                counts[kind] = await _count_calls(calls, gateway, kind, recorded.get(kind, 0))
                offered = [len(request["tools"]) for request in gateway.model_requests]
                assert (offered[-1] >= 1_000) is (fault is Fault.THOUSAND_TOOLS)
    return counts


async def _add_models(gateway: RunningGateway) -> None:
    """Serve the same model with a stand-in, and from two deployments."""
    [entry] = orjson.loads(gateway.file.read_bytes())["models"]
    llm, endpoint = entry["model"], {"endpoint": entry["model"]["endpoint"]}
    other = {name: value for name, value in llm.items() if name != "endpoint"}
    added = {
        "with-stand-in": {**llm, "fallback": [{**llm, "name": "second"}]},
        "with-deployments": {**other, "deployments": [endpoint, endpoint]},
    }
    assert await gateway.reload(models=[entry, *({"name": name, "model": model} for name, model in added.items())])


def _record(counts: Mapping[str, Counter[str]]) -> dict[str, Any]:
    """The numbers of a function are those of the kinds of requests, in the order of `total`."""
    functions = sorted(set().union(*counts.values()))
    return {
        "total": {kind: found.total() for kind, found in counts.items()},
        "modules": {kind: len(_modules_of(found)) for kind, found in counts.items()},
        "functions": {name: [found[name] for found in counts.values()] for name in functions},
    }


def _modules_of(found: Counter[str]) -> set[str]:
    return {name.partition(":")[0] for name in found}


def _list_changes(before: Counter[str], found: Counter[str]) -> list[str]:
    """The functions that are called more often than recorded, then those that are called less often."""
    changes = Counter(found)
    changes.subtract(before)
    return [
        f"  {number:+} {name} ({before[name]} -> {found[name]})" for name, number in changes.most_common() if number
    ]


@async_test(60)
async def test_no_request_takes_more_python_calls_than_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config
) -> None:
    # After a slow write, others are written by a thread for a minute: on a busy machine, those of some requests.
    monkeypatch.setattr(connection, "INLINE_WRITE_SECONDS", 60.0)
    if pytestconfig.getoption("--write-counts"):
        write_counts(RECORDED, _record(await _count_all(tmp_path, {})))
        return
    recorded = read_counts(RECORDED)
    found = await _count_all(tmp_path, recorded["total"])
    assert recorded["total"]["response of 500 tokens"] == recorded["total"]["response"]
    assert recorded["total"]["offer of 1,000 tools"] == recorded["total"]["offer of few tools"]
    for kind, most in UNUSED_CALLS.items():
        assert recorded["total"][kind] <= recorded["total"]["response"] + most
    changes: list[str] = []
    for index, (kind, calls) in enumerate(found.items()):
        before = Counter({name: numbers[index] for name, numbers in recorded["functions"].items() if numbers[index]})
        total, modules = recorded["total"][kind], recorded["modules"][kind]
        if change := find_change(f"Python calls of one request ({kind})", total, calls.total(), slack=total / 50):
            changes += [change, *_list_changes(before, calls)]
        now = _modules_of(calls)
        if change := find_change(f"modules of one request ({kind})", modules, len(now), slack=modules / 20):
            changes += [change, *(f"  + {name}" for name in sorted(now - _modules_of(before)))]
    assert not changes, "\n".join(["", *changes, HOW_TO_RECORD])

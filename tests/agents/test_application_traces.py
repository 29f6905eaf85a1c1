"""Spans of runs in a program that uses OpenTelemetry: they join the program's own traces, and nothing is exported."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test

from holodeck.testing import FaultyMCPServer

# The provider can be set once in a process, so that each test has a process of its own.
SET_UP = """
import asyncio, json, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from holodeck import Agent, MCPServer, runs
from holodeck.testing import ScriptedModel, call, say, wait

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
tracer = trace.get_tracer("program")

def print_spans():
    print(json.dumps([
        {
            "name": span.name, "id": span.context.span_id, "trace": span.context.trace_id,
            "parent": None if span.parent is None else span.parent.span_id,
            "scope": span.instrumentation_scope.name, "attributes": dict(span.attributes),
        }
        for span in exporter.get_finished_spans()
    ]))
"""


def run_code(folder: Path, code: str, *args: str) -> str:
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    command = [sys.executable, "-c", code, *args]
    done = subprocess.run(command, env=environ, cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_program(folder: Path, code: str, *args: str) -> dict[str, dict[str, Any]]:
    """The spans that the program has seen, by their names; the last of each."""
    return {span["name"]: span for span in json.loads(run_code(folder, SET_UP + code + "\nprint_spans()\n", *args))}


def path_to(spans: dict[str, dict[str, Any]], name: str) -> list[str]:
    """The names of a span and its parents."""
    by_id = {span["id"]: span for span in spans.values()}
    found = [name]
    while (parent := by_id.get(spans[found[-1]]["parent"])) is not None:
        found.append(parent["name"])
    return found


RUN = """
def price() -> str:
    return "3.50"

agent = Agent(ScriptedModel(call("price"), say("pomegranate")), name="shop", tools=[price])
"""


@pytest.mark.parametrize(
    "start",
    [
        "asyncio.run(ask())",
        "with tracer.start_as_current_span('request'):\n    agent.run_sync('What?')",
    ],
)
def test_a_run_is_a_child_of_the_span_that_the_program_is_in(tmp_path: Path, start: str) -> None:
    code = f"""{RUN}
async def ask():
    with tracer.start_as_current_span("request"):
        await agent.run("What?")

{start}
"""
    spans = run_program(tmp_path, code)
    assert path_to(spans, "execute_tool price") == ["execute_tool price", "invoke_agent shop", "request"]
    assert path_to(spans, "chat scripted") == ["chat scripted", "invoke_agent shop", "request"]
    assert len({span["trace"] for span in spans.values()}) == 1
    assert spans["invoke_agent shop"]["scope"] == "holodeck"
    assert spans["invoke_agent shop"]["attributes"]["gen_ai.agent.name"] == "shop"
    assert "pomegranate" not in json.dumps(spans), "a span has no content"


def test_a_durable_run_and_a_resumed_one_are_in_the_traces_of_their_callers(tmp_path: Path) -> None:
    code = """
never = asyncio.Event()
model = ScriptedModel([wait(never)], say("Done."))
agent = Agent(model, name="shop")

async def main():
    async def ask():
        with tracer.start_as_current_span("request"):
            await agent.run("What?", durable=True, run_id="run_x")
    task = asyncio.create_task(ask())
    while not model.requests:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    first = {span.name: span for span in exporter.get_finished_spans()}
    assert first["invoke_agent shop"].parent.span_id == first["request"].context.span_id
    exporter.clear()
    with tracer.start_as_current_span("later"):
        await runs.resume("run_x", agent)

asyncio.run(main())
"""
    spans = run_program(tmp_path, code)
    assert path_to(spans, "chat scripted") == ["chat scripted", "invoke_agent shop", "later"]


@async_test(60)
async def test_the_trace_goes_on_to_mcp_servers_over_http(tmp_path: Path) -> None:
    code = """
agent = Agent(ScriptedModel(call("add", a=1, b=2), say("3")), name="sums", tools=[MCPServer.http(sys.argv[1])])
with tracer.start_as_current_span("request"):
    agent.run_sync("What?")
"""
    async with FaultyMCPServer() as server:
        spans = await asyncio.to_thread(run_program, tmp_path, code, server.url)
        (received,) = await server.received("tools/call")
    sent = spans["tools/call add"]
    assert path_to(spans, "tools/call add")[1:] == ["execute_tool add", "invoke_agent sums", "request"]
    assert received.params["_meta"]["traceparent"].startswith(f"00-{sent['trace']:032x}-{sent['id']:016x}-")


def test_a_program_without_opentelemetry_does_not_get_it_imported(tmp_path: Path) -> None:
    code = (
        "import sys, json\nfrom holodeck import Agent\nfrom holodeck.testing import ScriptedModel, say\n"
        "Agent(ScriptedModel(say('Hi.'))).run_sync('Hello')\n"
        "print(json.dumps([name for name in sys.modules if name.startswith('opentelemetry')]))\n"
    )
    assert json.loads(run_code(tmp_path, code)) == []


def test_a_program_that_sets_no_provider_gets_no_spans_and_no_exporter(tmp_path: Path) -> None:
    code = (
        "import sys, json, threading\nfrom opentelemetry import trace\nfrom holodeck import Agent\n"
        "from holodeck.lib import tracing\nfrom holodeck.testing import ScriptedModel, say\nseen = []\n"
        "def look() -> str:\n    seen.append(len(tracing.tracers))\n    return 'x'\n"
        "from holodeck.testing import call\n"
        "Agent(ScriptedModel(call('look'), say('Hi.')), tools=[look]).run_sync('Hello')\n"
        "print(json.dumps([seen, 'opentelemetry.sdk' in sys.modules]))\n"
    )
    assert json.loads(run_code(tmp_path, code)) == [[0], False]

"""`holodeck run` under the standard OTEL_* variables: the same spans as a gateway's, over stdio to the server."""

from __future__ import annotations

from pathlib import Path

from agent_project import AgentProject, serve_scripted
from async_tests import async_test
from gateway.otlp_collector import run_collector

from holodeck.testing import Journal
from holodeck.testing.model.script import call, say


@async_test(60)
async def test_a_run_is_a_trace_that_reaches_into_the_process_of_the_server(tmp_path: Path) -> None:
    project = AgentProject(tmp_path)
    async with run_collector() as collector, serve_scripted([call("echo", text="pomegranate")], say("Done.")) as model:
        project.write(model, project.npx_server("calc"))
        project.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        done = await project.run_holodeck("run", "Go")
    assert (done.stdout, done.returncode) == ("Done.\n", 0)
    agent, sent = collector.span_named("invoke_agent demo"), collector.span_named("tools/call echo")
    assert collector.children(agent) == ["chat scripted", "chat scripted", "execute_tool echo"]
    assert sent.attributes["network.transport"] == "pipe"
    (received,) = await Journal(project.journal).received("tools/call")
    assert received.params["_meta"]["traceparent"].startswith(f"00-{agent.trace}-{sent.id}-")
    assert b"pomegranate" not in b"".join(collector.raw)

"""`holodeck serve` as a process: unsafe settings are refused, shutdown is in order, errors say what is wrong."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway import gateway_process
from gateway.gateway_process import HOLODECK, GatewayProcess, wait_refused, write_gateway_file
from gateway.running_gateway import parse_events
from gateway.scraped_metrics import ScrapedMetrics, parse_metrics

from holodeck.testing import FaultyMCPServer, ScriptedModel, call, read_pids, say, stand_in, wait

NOWHERE = "http://127.0.0.1:9/v1"
# The installed program: it inherits the limits, the umask and the signal handling of its parent process.
process_of = partial(gateway_process.run_gateway_process, program=HOLODECK)
SECONDS = 90.0  # a process starts and ends in one, on a machine with nothing else to do


async def wait_until(check: Callable[[], Awaitable[bool]]) -> None:
    """Poll until the check is true; the time limit of the test bounds it."""
    while not await check():  # noqa: ASYNC110 - what it waits for is in another process
        await asyncio.sleep(0.02)


def server(url: str) -> dict[str, Any]:
    return {"name": "tools", "type": "mcp", "description": "Tools.", "transport": "http", "url": url}


@pytest.mark.proves("D-29")
@async_test(SECONDS)
async def test_without_keys_the_gateway_listens_on_loopback_only(tmp_path: Path) -> None:
    code, text = await wait_refused(write_gateway_file(tmp_path, NOWHERE, listen={"host": "0.0.0.0", "port": 0}))
    assert code == 2
    assert "loopback only" in text
    assert "holodeck keys create" in text


@async_test(SECONDS)
async def test_a_port_in_use_is_reported_without_a_traceback(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, text = await wait_refused(write_gateway_file(tmp_path, NOWHERE, listen={"port": port}))
    assert code == 2
    assert f"Cannot listen on 127.0.0.1:{port}" in text
    assert "listen.port" in text
    assert "Traceback" not in text


@async_test(SECONDS)
async def test_a_host_of_another_machine_is_reported_with_the_setting_to_change(tmp_path: Path) -> None:
    keys = [{"name": "a", "hash": f"sha256:{'0' * 64}"}]
    code, text = await wait_refused(
        write_gateway_file(tmp_path, NOWHERE, listen={"host": "192.0.2.1", "port": 0}, keys=keys)
    )
    assert code == 2
    assert "Cannot listen on 192.0.2.1:0" in text
    assert "Use another 'listen.host'" in text


async def first_line(answer: Any) -> bytes:
    return bytes(await answer.content.readline())


@async_test(SECONDS)
async def test_during_shutdown_new_requests_are_refused_and_a_running_stream_is_finished(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([say("first "), wait(go), say("last")])
    async with model.serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, limits={"drain_seconds": 20})
        async with process_of(file) as served:
            body = {"model": "demo", "input": "hi", "stream": True}
            async with served.session.post(f"{served.url}/v1/responses", json=body) as answer:
                assert (await first_line(answer)).startswith(b"event: response.created")
                served.stop()

                async def is_refused() -> bool:
                    status, data, _ = await served.send("POST", "/v1/responses/input_tokens", b"{}")
                    return status == 503 and data["error"]["code"] == "shutting_down"

                await wait_until(is_refused)
                assert (await served.send("GET", "/healthz"))[0] == 200, "it is alive"
                assert (await served.send("GET", "/readyz"))[0] == 503, "but wants no more requests"
                go.set()
                text = (await answer.content.read()).decode()
            assert "response.completed" in text
            assert "first last" in text
            assert await served.wait_exit() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@async_test(SECONDS)
async def test_a_signal_right_after_the_start_ends_the_gateway_in_order(tmp_path: Path, number: signal.Signals) -> None:
    async with process_of(write_gateway_file(tmp_path, NOWHERE)) as served:
        served.stop(number)
        assert await served.wait_exit() == 0
    assert any("gateway.draining" in line and number.name in line for line in served.stderr_lines)


@async_test(SECONDS)
async def test_a_stream_that_outlasts_the_drain_limit_ends_incomplete_and_no_child_remains(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    path = stand_in(tmp_path / "bin", FaultyMCPServer.command("hangs", pid_file=pids))
    stdio: dict[str, Any] = {
        "name": "tools",
        "type": "mcp",
        "description": "Tools.",
        "command": "npx",
        "args": ["x"],
        "env": path,
    }
    stdio |= {"allow_unsafe_args": True}
    async with ScriptedModel(call("echo", text="x")).serve() as scripted:
        limits = {"drain_seconds": 0.2}
        file = write_gateway_file(tmp_path, scripted.url, limits=limits, mcp_servers=[stdio], allow_stdio=True)
        async with process_of(file) as served:
            body = {"model": "demo", "input": "hi", "stream": True}
            async with served.session.post(f"{served.url}/v1/responses", json=body) as answer:
                while b"response.mcp_call.in_progress" not in await answer.content.readline():
                    assert not answer.content.at_eof()
                served.stop()
                text = (await answer.content.read()).decode()
            assert "response.incomplete" in text
            assert text.endswith("data: [DONE]\n\n")
            assert await served.wait_exit() == 0
            assert "Traceback" not in "".join(served.stderr_lines)
    for pid in read_pids(pids):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@async_test(SECONDS)
async def test_requests_from_unknown_origins_and_for_unknown_hosts_are_refused(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, cors_origins=["https://good.example"])
        async with process_of(file) as served:
            status, data, _ = await served.send("GET", "/v1/models", headers={"host": "rebound.example"})
            assert (status, data["error"]["code"]) == (421, "unknown_host")
            assert "listen.allowed_hosts" in data["error"]["message"]
            status, data, headers = await served.send("GET", "/v1/models", headers={"origin": "https://evil.example"})
            assert (status, data["error"]["code"]) == (403, "origin_not_allowed")
            assert "access-control-allow-origin" not in headers
            status, _, headers = await served.send("GET", "/v1/models", headers={"origin": "https://good.example"})
            assert (status, headers["access-control-allow-origin"]) == (200, "https://good.example")
            status, _, headers = await served.send(
                "OPTIONS", "/v1/responses", headers={"origin": "https://good.example"}
            )
            assert (status, headers["access-control-allow-origin"]) == (204, "https://good.example")
            wanted = "authorization, x-stainless-lang"
            preflight = {"origin": "https://good.example", "access-control-request-headers": wanted}
            _, _, headers = await served.send("OPTIONS", "/v1/responses", headers=preflight)
            assert headers["access-control-allow-headers"] == wanted, "what the stock client in a page sends"
            assert "x-should-retry" in headers["access-control-expose-headers"], "what it reads"
            for origin in ("null", "http://[::1", "//"):
                status, data, _ = await served.send("GET", "/v1/models", headers={"origin": origin})
                assert (status, data["error"]["code"]) == (403, "origin_not_allowed")


@async_test(SECONDS)
async def test_a_body_over_the_limit_is_refused_with_and_without_a_content_length(tmp_path: Path) -> None:
    file = write_gateway_file(tmp_path, NOWHERE, limits={"body_bytes": 2048, "drain_seconds": 0})
    async with process_of(file) as served:

        async def chunks() -> Any:
            for _ in range(8):
                yield b"x" * 1024

        for body in (b"x" * 8192, chunks()):
            async with served.session.post(f"{served.url}/v1/responses", data=body) as answer:
                assert answer.status == 413
                assert "2048 bytes" in (await answer.json())["error"]["message"]
        status, data, _ = await served.send("POST", "/v1/responses", b"{" * 2000)
        assert (status, data["error"]["code"]) == (400, "invalid_json")


CLOSED = (
    "import os, sys; os.closerange(0, 2); os.execv(sys.executable, [sys.executable, '-m', 'holodeck', *sys.argv[1:]])"
)


@async_test(SECONDS)
async def test_the_gateway_runs_without_standard_input_and_output(tmp_path: Path) -> None:
    async with process_of(write_gateway_file(tmp_path, NOWHERE), program=("-c", CLOSED)) as served:
        for _ in range(3):
            assert (await served.send("GET", "/healthz", headers={"connection": "close"}))[0] == 200
        served.stop()
        assert await served.wait_exit() == 0


NOHUP = (
    "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
    "os.execv(sys.executable, [sys.executable, '-m', 'holodeck', *sys.argv[1:]])"
)


@async_test(SECONDS)
async def test_under_nohup_a_closed_terminal_does_not_end_the_gateway(tmp_path: Path) -> None:
    async with process_of(write_gateway_file(tmp_path, NOWHERE), program=("-c", NOHUP)) as served:
        served.stop(signal.SIGHUP)
        assert (await served.send("GET", "/v1/models"))[0] == 200
        served.stop()
        assert await served.wait_exit() == 0
    assert not any(signal.SIGHUP.name in line for line in served.stderr_lines)


@async_test(SECONDS)
async def test_the_limit_of_open_files_is_raised_to_what_the_request_limits_need(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
    try:
        async with process_of(write_gateway_file(tmp_path, NOWHERE)) as served:
            allowed, _ = resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert allowed == min(hard, 65_536), "1,024 are not enough for 1,000 requests, each with its model and tools"


def modes_of_files(folder: Path) -> dict[str, int]:
    """Permissions of group and others on each file of the storage."""
    paths = [path for path in folder.glob("holodeck.db*") if path.is_file()]
    return {path.name: path.stat().st_mode & 0o077 for path in paths}


@async_test(SECONDS)
async def test_storage_files_are_closed_to_other_users_of_the_machine(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        async with (
            ScriptedModel(lambda _: say("hi")).serve() as scripted,
            process_of(write_gateway_file(tmp_path, scripted.url, background={"durable": True})) as served,
        ):
            assert (await served.create_response(background=True))[0] == 200
            modes = modes_of_files(tmp_path)
    finally:
        os.umask(before)
    assert {"holodeck.db", "holodeck.db.work", "holodeck.db.key"} <= set(modes)
    assert not any(modes.values()), modes


@async_test(SECONDS)
async def test_headers_without_an_end_are_refused(tmp_path: Path) -> None:
    async with process_of(write_gateway_file(tmp_path, NOWHERE)) as served:
        host, port = served.url.removeprefix("http://").split(":")
        for request in (b"GET /" + b"x" * 70_000, b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(request)
            assert (await reader.readline()).startswith(b"HTTP/1.1 431")
            writer.close()
        assert (await served.send("GET", "/v1/models"))[0] == 200


@async_test(SECONDS)
async def test_a_client_that_stops_in_the_middle_of_a_request_is_disconnected(tmp_path: Path) -> None:
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, limits={"request_seconds": 0.3, "drain_seconds": 0})
        async with process_of(file) as served:
            host, port = served.url.removeprefix("http://").split(":")
            head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            ended = []
            for sent in (b"", head, head + b"Content-Length: 100\r\n\r\n{"):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(sent)
                answer = await reader.readuntil(b"\r\n") if sent.endswith(b"{") else await reader.read()
                ended.append(answer)
                writer.close()
            assert ended[:2] == [b"", b""]
            assert ended[2].startswith(b"HTTP/1.1 408")
            assert (await served.create_response())[0] == 200


@async_test(SECONDS)
async def test_too_many_requests_are_refused_at_once_with_retry_after(tmp_path: Path) -> None:
    go = asyncio.Event()
    model = ScriptedModel([wait(go), say("done")], say("again"))
    async with model.serve() as scripted:
        limits = {"in_flight": 1, "drain_seconds": 0, "key": {"requests_per_minute": 2}}
        async with process_of(write_gateway_file(tmp_path, scripted.url, limits=limits)) as served:
            running = asyncio.create_task(served.create_response())

            async def is_called() -> bool:
                return len(scripted.received) == 1

            await wait_until(is_called)
            status, data, headers = await served.create_response()
            assert (status, data["error"]["type"]) == (429, "too_many_requests")
            assert int(headers["retry-after"]) >= 1
            assert (await served.send("GET", "/v1/models"))[0] == 200, "looking is still possible"
            go.set()
            assert (await running)[0] == 200
            assert (await served.create_response())[0] == 200
            status, data, headers = await served.create_response()
            assert status == 429
            assert "2 requests a minute" in data["error"]["message"]
            assert 1 <= int(headers["retry-after"]) <= 60


@async_test(SECONDS)
async def test_unusable_storage_is_a_503_and_the_gateway_recovers(tmp_path: Path) -> None:
    database = tmp_path / "responses.db"
    database.write_text("a text where a database should be")
    async with ScriptedModel(lambda _: say("hi")).serve() as scripted:
        (tmp_path / "seal").write_text("a key that does not lie beside the database")
        storage = {"url": "sqlite:///responses.db"}
        file = write_gateway_file(tmp_path, scripted.url, storage=storage, seal_key_file="seal")
        async with process_of(file) as served:
            assert (await served.send("GET", "/readyz"))[0] == 503
            assert (await served.send("GET", "/healthz"))[0] == 200
            status, data, _ = await served.create_response()
            assert (status, data["error"]["code"]) == (503, "storage_error")
            assert (await served.create_response(store=False))[0] == 200, "what is not stored needs no storage"
            database.unlink()
            assert (await served.create_response())[0] == 200, "it recovers by itself"
            assert (await served.send("GET", "/readyz"))[0] == 200


@async_test(SECONDS)
async def test_a_full_disk_fails_a_stream_with_storage_error_until_there_is_space(tmp_path: Path) -> None:
    async with (
        ScriptedModel(lambda _: say("done")).serve() as scripted,
        process_of(write_gateway_file(tmp_path, scripted.url)) as served,
    ):
        assert (await served.create_response())[0] == 200
        _, most = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (4096, most))
        _, text, _ = await served.create_response("plain", stream=True)
        *_, error, last = parse_events(text)
        assert (error["type"], error["code"]) == ("error", "storage_error")
        assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
        assert last["response"]["usage"]["total_tokens"] == 0
        assert "response.completed" not in text, "a response that is not stored is not completed"
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (most, most))

        async def is_ready() -> bool:
            return (await served.send("GET", "/readyz"))[0] == 200

        await wait_until(is_ready)
        assert (await served.create_response())[0] == 200
        assert "Traceback" not in "".join(served.stderr_lines)


@pytest.mark.proves("D-28")
@async_test(SECONDS)
async def test_a_background_response_is_stored_when_there_is_disk_space_again(tmp_path: Path) -> None:
    go = asyncio.Event()
    async with ScriptedModel([wait(go), say("at last")], say("again")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with process_of(file) as served:
            _, begun, _ = await served.create_response(background=True)
            _, most = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (4096, most))
            go.set()
            _, text, _ = await served.send("GET", f"/v1/responses/{begun['id']}?stream=true")
            assert "response.completed" not in text
            resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (most, most))

            async def is_stored() -> bool:
                return bool((await served.send("GET", f"/v1/responses/{begun['id']}"))[1]["status"] == "completed")

            await wait_until(is_stored)

            async def is_over() -> bool:
                return (await read_metrics(served)).value("holodeck_in_flight") == 0

            await wait_until(is_over)
            status, _, _ = await served.create_response(previous_response_id=begun["id"])
            assert status == 200
            _, text, _ = await served.send("GET", f"/v1/responses/{begun['id']}?stream=true")
            assert "event: response.completed" in text
            assert "event: error" not in text


def _with_tool_first(received: Any) -> Any:
    messages = received.json["messages"]
    wants_tool = messages[-1]["role"] == "user" and messages[-1]["content"] == "use the tool"
    return call("echo", text="x") if wants_tool else say("done")


@pytest.mark.proves("D-29", "004:US1-3", "004:FR-017")
@async_test(SECONDS)
async def test_an_mcp_server_that_is_down_does_not_make_the_gateway_unready(tmp_path: Path) -> None:
    async with FaultyMCPServer(down=True) as mcp, ScriptedModel(lambda _: say("hi")).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[server(mcp.url)])
        async with process_of(file) as served:
            assert (await served.send("GET", "/readyz"))[0] == 200
            assert (await served.create_response())[0] == 200
            assert (await served.send("GET", "/readyz"))[0] == 200
            _, listed, _ = await served.send("GET", "/v1/mcp/servers")
            assert listed["data"][0]["last_error"]


@pytest.mark.proves("D-28")
@async_test(SECONDS)
async def test_background_runs_of_a_killed_gateway_are_failed_with_the_reason(tmp_path: Path) -> None:
    never = asyncio.Event()
    async with ScriptedModel(say("stored"), [wait(never)]).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url)
        async with process_of(file) as served:
            _, completed, _ = await served.create_response()
            status, begun, _ = await served.create_response(background=True)
            assert (status, begun["status"]) == (200, "queued")
            served.stop(signal.SIGKILL)
            await served.wait_exit()
        async with process_of(file) as served:
            _, found, _ = await served.send("GET", f"/v1/responses/{begun['id']}")
            assert found["status"] == "failed"
            assert "stopped while" in found["error"]["message"]
            assert found["usage"]["total_tokens"] == 0, "usage is always there"
            _, text, _ = await served.send("GET", f"/v1/responses/{begun['id']}?stream=true")
            assert "event: response.failed" in text
            assert (await served.send("GET", f"/v1/responses/{completed['id']}"))[1]["status"] == "completed"
        never.set()


@async_test(SECONDS)
async def test_metrics_are_prometheus_text_and_count(tmp_path: Path) -> None:
    async with FaultyMCPServer() as mcp, ScriptedModel(_with_tool_first).serve() as scripted:
        file = write_gateway_file(tmp_path, scripted.url, mcp_servers=[server(mcp.url)])
        async with process_of(file) as served:
            for text in ("use the tool", "plain"):
                assert (await served.create_response(text))[0] == 200
            await served.send("GET", "/v1/responses/none")
            scraped = await read_metrics(served)
    route = "/v1/responses"
    assert scraped.value("holodeck_requests_total", route=route, method="POST", status="200") == 2
    assert scraped.value("holodeck_requests_total", route=f"{route}/{{id}}", method="GET", status="404") == 1
    assert scraped.value("holodeck_request_seconds_count", route=route, status="200") == 2
    assert scraped.value("holodeck_request_seconds_bucket", route=route, status="200", le="+Inf") == 2
    assert scraped.value("holodeck_tool_calls_total", server="tools", tool="echo", outcome="ok") == 1
    assert scraped.value("holodeck_turns_total", model="demo") == 3
    assert scraped.value("holodeck_mcp_server_state", server="tools", state="connected") == 1


async def read_metrics(served: GatewayProcess) -> ScrapedMetrics:
    status, text, headers = await served.send("GET", "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return parse_metrics(text)


@async_test(SECONDS)
async def test_a_response_that_is_cancelled_before_it_has_begun_is_cancelled(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: [say("begun"), wait(asyncio.Event())])
    async with model.serve() as scripted, process_of(write_gateway_file(tmp_path, scripted.url)) as served:

        async def cancelled() -> str:
            _, begun, _ = await served.create_response(background=True)
            return str((await served.send("POST", f"/v1/responses/{begun['id']}/cancel"))[1]["status"])

        for _ in range(25):  # as fast as a client can be; one in ten came too early
            assert set(await asyncio.gather(*(cancelled() for _ in range(8)))) == {"cancelled"}

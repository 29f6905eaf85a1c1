"""What CONTRIBUTING.md says under "How to add", done on a copy of the package: these files, and no others.

Each test is also an example to start from.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import orjson
import pytest
from async_tests import async_test
from gateway.gateway_process import run_gateway_process, write_gateway_file
from holodeck_command import run_holodeck

from holodeck.testing import ScriptedModel, say

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "holodeck"


class PackageCopy:
    """A copy of the package that a test changes and runs."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "home" / "project"
        self.project.mkdir(parents=True)
        # Compiled files stay valid, because times are copied as well.
        self._package = Path(shutil.copytree(PACKAGE, folder / "copy" / "holodeck"))
        self.environ = {"PYTHONPATH": str(self._package.parent)}
        self.changes: set[str] = set()
        """The changed files; for a new one, its folder."""

    def add_module(self, path: str, text: str) -> None:
        file = self._package / path
        assert not file.exists()
        file.write_text(text)
        self.changes.add(f"{Path(path).parent}/")

    def add_line(self, path: str, line: str, *, below: str) -> None:
        file = self._package / path
        text = file.read_text()
        assert text.count(below) == 1
        file.write_text(text.replace(below, f"{below}\n{line}"))
        self.changes.add(path)

    def run(self, *args: str, **environ: str) -> CompletedProcess[str]:
        return run_holodeck(*args, cwd=self.project, env=self.environ | environ)

    def run_python(self, program: str) -> str:
        """Run a program with the copy, and with the generator of the reference."""
        environ = os.environ | {"PYTHONPATH": f"{self._package.parent}{os.pathsep}{ROOT / 'docs'}"}
        argv = [sys.executable, "-c", program]
        done = subprocess.run(argv, cwd=self.project, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def package(tmp_path: Path) -> PackageCopy:
    return PackageCopy(tmp_path)


def documented_files(what: str) -> set[str]:
    """The files in the paragraph of CONTRIBUTING.md about adding this, which also says how many they are."""
    pattern = rf"^- \*\*{what}\*\* \((\d) files?\): (.*?)(?=^- |^$)"
    found = re.search(pattern, (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"CONTRIBUTING.md does not say how to add: {what}"
    files = set(re.findall(r"`((?:\w+/)+(?:\w+\.py)?)`", found[2]))
    assert len(files) == int(found[1])
    return files


def test_a_command_is_a_module_and_a_row(package: PackageCopy) -> None:
    package.add_module(
        "cli/commands/hello.py",
        """\
import click


@click.command("hello", epilog="Example: holodeck hello Ada")
@click.argument("name")
def command(name: str) -> None:
    \"\"\"Greet NAME.\"\"\"
    click.echo(f"Hello, {name}.")
""",
    )
    row = '        "hello": ("holodeck.cli.commands.hello", "Greet a person."),'
    package.add_line("cli/main.py", row, below='    "Work": {')
    assert package.changes == documented_files("A command")
    done = package.run("hello", "Ada")
    assert (done.returncode, done.stdout, done.stderr) == (0, "Hello, Ada.\n", "")
    assert "Greet a person." in package.run("--help").stdout


@async_test
async def test_a_route_is_a_method_with_its_declaration(package: PackageCopy) -> None:
    handler = """
    @route(
        "GET",
        "/v1/greetings/{name}",
        id="greet",
        tag="Operation",
        summary="Greet a person",
        description="An example.",
        reply={"type": "object", "properties": {"text": {"type": "string"}}},
        example={"text": "Hello, Ada."},
    )
    async def greet(self, request: Request) -> Reply:
        return json_reply({"text": f"Hello, {request.path_params['name']}."})
"""
    package.add_line("gateway/endpoints/admin.py", handler, below="        self._list_failing = list_failing")
    assert package.changes == documented_files("A route of the gateway")
    file = write_gateway_file(package.project, "http://127.0.0.1:9/v1")
    async with run_gateway_process(file, environ=package.environ) as gateway:
        async with gateway.session.get(f"{gateway.url}/v1/greetings/Ada") as reply:
            assert (reply.status, await reply.json()) == (200, {"text": "Hello, Ada."})
        async with gateway.session.get(f"{gateway.url}/openapi.json") as document:
            assert (await document.json())["paths"]["/v1/greetings/{name}"]["get"]["operationId"] == "greet"


@async_test
async def test_a_provider_is_a_row(package: PackageCopy) -> None:
    providers = "models/provider.py"
    async with ScriptedModel([say("Hello from Acme.")]).serve() as server:
        package.add_line(providers, '    ACME = "acme"', below='    REHEARSAL = "rehearsal"')
        row = f'    Provider.ACME: _service("Acme", "{server.url}", "ACME_KEY", "large"),'
        package.add_line(providers, row, below="PROVIDER_SPECS: Mapping[Provider, ProviderSpec] = {")
        assert package.changes == documented_files("A model provider")
        made = await asyncio.to_thread(package.run, "init", ".", "--model", "acme")
        assert made.returncode == 0, made.stderr
        agent = package.project / "agent.yaml"
        agent.write_text(re.sub(r"^tools:.*?(?=^# Questions)", "", agent.read_text(), flags=re.MULTILINE | re.DOTALL))
        without_key = await asyncio.to_thread(package.run, "run", "Hello?")
        assert (without_key.returncode, "Set the environment variable ACME_KEY" in without_key.stderr) == (1, True)
        done = await asyncio.to_thread(package.run, "run", "Hello?", ACME_KEY="acme-secret")
        assert (done.returncode, done.stdout) == (0, "Hello from Acme.\n"), done.stderr
    (request,) = server.received
    assert request.headers["authorization"] == "Bearer acme-secret"
    assert request.json["model"] == "large"


@async_test
async def test_an_option_of_requests_is_one_declaration(package: PackageCopy) -> None:
    option = """\
    min_p: float | None = _option(
        Values(kind="decimal", minimum=0, maximum=1),
        about="Only tokens of at least this share of the most likely one.",
        example=0.25,
        sent_as={"chat": ""},
        repeated_as="min_p",
    )"""
    docstring = '    """Options for the answer of a model. None is the default of the model."""\n'
    package.add_line("models/generation.py", option, below=docstring)
    assert package.changes == documented_files("An option of requests")
    async with ScriptedModel(lambda _: say("Hello.")).serve() as model:
        file = write_gateway_file(package.project, model.url)
        async with run_gateway_process(file, environ=package.environ) as gateway:
            for path, question in (
                ("/v1/responses", {"input": "Hello?"}),
                ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello?"}]}),
            ):
                body = {"model": "demo", **question, "min_p": 0.5}
                async with gateway.session.post(f"{gateway.url}{path}", json=body) as reply:
                    assert reply.status == 200, await reply.text()
                    assert path != "/v1/responses" or (await reply.json())["min_p"] == 0.5
                async with gateway.session.post(f"{gateway.url}{path}", json=body | {"min_p": 2}) as reply:
                    error = (await reply.json())["error"]
                    assert (reply.status, error["param"]) == (400, "min_p")
            async with gateway.session.get(f"{gateway.url}/openapi.json") as document:
                described = (await document.json())["components"]["schemas"]["CreateResponse"]["properties"]["min_p"]
    assert [request.json["min_p"] for request in model.received] == [0.5, 0.5]
    assert "Only tokens of at least this share of the most likely one." in orjson.dumps(described).decode()


COUNTED = """
import asyncio
from pathlib import Path

from holodeck.storage.conversations import Conversation
from holodeck.storage.factory import open_store


async def main() -> None:
    store = open_store("sqlite:///kept.db", folder=Path())
    for number in range(3):
        conversation = Conversation(id=f"conv_{number}", caller_id="alice", created_at=number, metadata=b"{}")
        await store.create_conversation(conversation, [])
    print(await store.count_conversations("alice"), await store.count_conversations("bob"))
    await store.close()


asyncio.run(main())
"""


def test_a_method_of_the_store_is_one_method(package: PackageCopy) -> None:
    method = """
    @read()
    async def count_conversations(self, db: Connection, caller_id: str) -> int:
        row = await db.fetch_row("SELECT COUNT(*) FROM conversations WHERE caller_id = $1", caller_id)
        return 0 if row is None else int(row[0])"""
    docstring = '    """The methods of the store about conversations."""'
    package.add_line("storage/conversations.py", method, below=docstring)
    assert package.changes == documented_files("A method of the store")
    assert package.run_python(COUNTED) == "3 0\n"


def test_a_key_of_a_file_is_a_field_with_its_example(package: PackageCopy) -> None:
    field = """\
    contact: NonEmpty | None = None
    \"\"\"Address of the team that owns the servers. E.g. `ada@example.com`, not `''`.\"\"\"
"""
    docstring = '    """The content of `config.yaml`: settings that several agents share."""\n'
    package.add_line("models/agent.py", field, below=docstring)
    assert package.changes == documented_files("A key of a file")
    schema = orjson.loads(package.run("schema", "config").stdout)
    assert schema["properties"]["contact"]["description"] == "Address of the team that owns the servers."
    (package.project / "agent.yaml").write_text("name: demo\n")
    (package.project / "config.yaml").write_text("mcp_servers: []\ncontakt: ada@example.com\n")
    refused = package.run("validate")
    assert (refused.returncode, "Did you mean 'contact'?" in refused.stderr) == (2, True), refused.stderr
    page = package.run_python("from generate.file_page import build_config_page\nprint(build_config_page())")
    assert "- Example: `contact: ada@example.com`\n- Wrong: `contact: ''`: " in page


TCP_TRANSPORT = '''
"""The TCP transport: one JSON-RPC message per line, in both directions."""

import asyncio
from urllib.parse import urlsplit

from holodeck.lib.limits import NOTICE_TIMEOUT
from holodeck.lib.tasks import TaskSet
from holodeck.tools.mcp.protocol.jsonrpc import Message, RequestId, build_cancellation, encode
from holodeck.tools.mcp.transports.base import Delivery, OnMessage, TransportSetup, send_quietly
from holodeck.tools.mcp.transports.duplex import DuplexTransport


class TCPTransport(DuplexTransport):
    def __init__(self, setup: TransportSetup, on_message: OnMessage) -> None:
        super().__init__(setup, on_message)
        self._url = setup.tool.url
        self._tasks = TaskSet()

    async def open(self) -> None:
        address = urlsplit(self._url)
        try:
            reader, self._writer = await asyncio.open_connection(address.hostname, address.port, limit=self._limit)
        except OSError as error:
            raise self._errors.unreachable(self._url, error) from error
        self._tasks.start(self._read(reader))

    async def close(self) -> None:
        await self._tasks.close(NOTICE_TIMEOUT)
        self.fail(self._errors.connection("close", "the connection was closed"))
        self._writer.close()

    def cancel(self, request_id: RequestId, reason: str) -> None:
        self._tasks.start(send_quietly(self.send, build_cancellation(request_id, reason)))

    async def _deliver(self, message: Message, delivery: Delivery) -> None:
        delivery.may_have_been_sent = True
        self._writer.write(encode(message) + b"\\n")
        await self._writer.drain()

    async def _read(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            self.receive(line)
        self.fail(self._errors.connection("run", "the server closed the connection."))
'''

TCP_LOADER = """
def _load_tcp() -> BuildTransport:
    from holodeck.tools.mcp.transports.tcp import TCPTransport

    return TCPTransport
"""


def answer_of(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The results of a server with one tool, `add`."""
    if method == "initialize":
        version = params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "t", "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}
    total = sum(params["arguments"].values())
    return {"content": [{"type": "text", "text": str(total)}]}


@asynccontextmanager
async def serve_mcp_over_tcp() -> AsyncIterator[str]:
    """The URL of an MCP server with one message per line. It knows no method of later protocol versions."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            message = orjson.loads(line)
            if "id" not in message:
                continue
            body: dict[str, Any] = {"error": {"code": -32601, "message": "unknown method"}}
            if message["method"] in {"initialize", "tools/list", "tools/call"}:
                body = {"result": answer_of(message["method"], message.get("params", {}))}
            writer.write(orjson.dumps({"jsonrpc": "2.0", "id": message["id"], **body}) + b"\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"tcp://{host}:{port}"


@async_test
async def test_a_transport_is_a_module_and_two_rows(package: PackageCopy) -> None:
    models, registry = "models/transport.py", "tools/mcp/transports/registry.py"
    package.add_line(models, '    TCP = "tcp"', below='    HTTP = "http"')
    row = '    TransportType.TCP: TransportSpec(fields=("url", "timeout"), url_schemes=("tcp",)),'
    package.add_line(models, row, below="TRANSPORT_SPECS: Mapping[str, TransportSpec] = {")
    package.add_module("tools/mcp/transports/tcp.py", TCP_TRANSPORT)
    package.add_line(registry, TCP_LOADER, below="BuildTransport = Callable[[TransportSetup, OnMessage], Transport]")
    row = "    TransportType.TCP: TransportKind(load=_load_tcp, protocol_name=None),"
    package.add_line(registry, row, below="TRANSPORTS: Mapping[TransportType, TransportKind] = {")
    assert package.changes == documented_files("A transport")
    agent = package.project / "agent.yaml"
    async with serve_mcp_over_tcp() as url:
        server = {"type": "mcp", "name": "sums", "description": "Sums", "transport": "tcp", "url": url}
        agent.write_bytes(orjson.dumps({"name": "demo", "tools": [server]}))
        done = await asyncio.to_thread(package.run, "mcp", "call", "sums", "add", "a=2", "b=40")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    # Not the port of before: a server of another test may have it by now.
    nowhere = "tcp://127.0.0.1:1"
    agent.write_bytes(orjson.dumps({"name": "demo", "tools": [server | {"url": nowhere}]}))
    unreachable = await asyncio.to_thread(package.run, "mcp", "call", "sums", "add", "a=2", "b=40")
    assert (unreachable.returncode, nowhere in unreachable.stderr) == (1, True), unreachable.stderr
    agent.write_bytes(orjson.dumps({"name": "demo", "tools": [server | {"url": "http://127.0.0.1:1", "headers": {}}]}))
    refused = package.run("validate")
    assert refused.returncode == 2
    assert "'url' must use tcp://" in refused.stderr
    assert "'headers' has no meaning for tcp transport" in refused.stderr

"""Examples of MCP servers."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 30

EXAMPLES = (
    Example(
        title="Use an MCP server",
        about=(
            "A server is a program (`stdio`), has a URL (`http`, `sse`, `websocket`), or is in a file (`from_file`). "
            "Give it to an agent, or call its tools yourself."
        ),
        names=("MCPServer", "MCPToolInfo", "MCPToolResult", "ServerInfo"),
        code="""\
import asyncio

from holodeck import Agent, MCPServer, MCPToolInfo, MCPToolResult, ServerInfo
from holodeck.testing import FaultyMCPServer, ScriptedModel, call, say

server = MCPServer.stdio(*FaultyMCPServer.command("normal"), name="sums")


async def main() -> None:
    async with server:
        info: ServerInfo = server.info
        tools: list[MCPToolInfo] = await server.tools()
        result: MCPToolResult = await server.call("add", a=1, b=2)
        print(info.name, info.era, tools[0].name, result.text)
        agent = Agent(ScriptedModel(call("add", a=1, b=2), say("It is 3.")), tools=[server])
        print((await agent.run("What is 1 + 2?")).output)


asyncio.run(main())
with server:
    print(server.call_sync("add", a=3, b=4).text)""",
        output="""\
faulty legacy add 3
It is 3.
7""",
    ),
    Example(
        title="Set options of an MCP server",
        about=(
            "The options are those of the agent file, and functions of yours for what the server sends. Misspelt ones "
            "are an error, also of your type checker."
        ),
        names=("LogMessage", "MCPToolError", "ServerOptions", "StdioOptions"),
        code="""\
import asyncio
import logging

from holodeck import LogMessage, MCPServer, MCPToolError, ServerOptions, StdioOptions
from holodeck.testing import FaultyMCPServer

logging.getLogger("holodeck.mcp.server").setLevel(logging.INFO)


def show(message: LogMessage) -> None:
    print(message.level, message.data)


careful: ServerOptions = {"request_timeout": 10, "denied_tools": ["slow", "big"]}
options: StdioOptions = {**careful, "on_log": show}


async def main() -> None:
    async with MCPServer.stdio(*FaultyMCPServer.command("normal"), name="sums", **options) as server:
        await server.call("log")
        try:
            await server.call("fail")
        except MCPToolError as error:
            print(error.result.text)
        result = await server.call_tool("fail", check=False, timeout=5)
        print(result.success, result.is_error)


asyncio.run(main())""",
        output="""\
info a info message
It did not work.
False True""",
    ),
    Example(
        title="Authenticate to an MCP server",
        about=(
            "A text is a bearer token. Without `auth`, the login is used that `holodeck mcp login` has stored for the "
            "URL. Nothing is sent before the first use."
        ),
        names=("OAuthAuthorizationCode", "OAuthClientCredentials", "RemoteOptions"),
        code="""\
from holodeck import MCPServer, OAuthAuthorizationCode, OAuthClientCredentials, RemoteOptions

options: RemoteOptions = {"timeout": 5, "required": True}
url = "https://mcp.example.com/mcp"
credentials = OAuthClientCredentials(
    client_id="shop", client_secret="from a vault", token_url="https://login.example.com/token"
)
print(MCPServer.http(url, auth="a token", **options).name)
print(MCPServer.http(url, auth=credentials, name="shop").name)
print(MCPServer.http(url, auth=OAuthAuthorizationCode(scopes=["read"]), name="mine").name)""",
        output="""\
example
shop
mine""",
    ),
)

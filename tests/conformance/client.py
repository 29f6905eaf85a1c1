"""The client that the official MCP conformance suite drives. Everything goes through HoloDeck's own plugin.

The suite starts it once per scenario with the address of its server as the last argument, and says in the environment
what is asked: MCP_CONFORMANCE_SCENARIO, and for some scenarios MCP_CONFORMANCE_CONTEXT (JSON).

    PYTHONPATH=tests npx @modelcontextprotocol/conformance client --scenario tools_call \\
        --command "python -m conformance.client"
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import aiohttp
from conformance.identity_assertion import IdentityAssertion
from conformance.skills import Skills
from memory_tokens import MemoryTokens

from holodeck.lib.errors import HoloDeckError
from holodeck.lib.secret import Secret
from holodeck.models.tool import MCPTool
from holodeck.tools.mcp.auth.auth_http import AuthHTTPClient
from holodeck.tools.mcp.auth.authorization_code import AuthorizationCode
from holodeck.tools.mcp.auth.client_authentication import PublicClient, SecretInHeader, SignedAssertion
from holodeck.tools.mcp.auth.client_credentials import ClientCredentials, JwtBearer, TokenEndpoint
from holodeck.tools.mcp.auth.dpop import ProofKey
from holodeck.tools.mcp.auth.loopback_redirect import open_loopback_redirect
from holodeck.tools.mcp.auth.oauth_flow import Login, LoginPrompt
from holodeck.tools.mcp.auth.provider import MCPAuthProvider, NoAuth
from holodeck.tools.mcp.auth.token import TokenGrantAuth
from holodeck.tools.mcp.factory import create_mcp_plugin
from holodeck.tools.mcp.plugin import MCPPlugin
from holodeck.tools.mcp.protocol.server_requests import Callbacks

NAME = "conformance"
CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
EXAMPLES: Mapping[str, Any] = {
    "string": "example",
    "number": 5,
    "integer": 3,
    "boolean": True,
    "array": [],
    "object": {},
}

Context = Mapping[str, Any]


async def main(url: str, scenario: str, context: Context) -> int:
    tool = MCPTool.model_validate({"name": NAME, "description": "Under test.", "transport": "http", "url": url})
    auth = await auth_for(scenario, url, context)
    plugin = create_mcp_plugin(tool, auth=auth, callbacks=Callbacks(elicitation=agree))
    async with plugin:
        steps = STEPS.get(scenario, call_every_tool)
        return await steps(plugin, context)


# What to do with the server.


async def call_every_tool(plugin: MCPPlugin, context: Context) -> int:
    """List, then call what was offered, all at once: the calls of one must not show in those of another."""
    calls = {tool.name: example(tool.input_schema) for tool in await plugin.list_tools()}
    results = await asyncio.gather(*(plugin.call(name, arguments) for name, arguments in calls.items()))
    return report(calls, results)


async def call_listed_tools(plugin: MCPPlugin, context: Context) -> int:
    await plugin.list_tools()
    results = [await plugin.call(call["name"], call["arguments"]) for call in context["toolCalls"]]
    return report([call["name"] for call in context["toolCalls"]], results)


async def use_everything(plugin: MCPPlugin, context: Context) -> int:
    status = await call_every_tool(plugin, context)
    for prompt in await plugin.list_prompts():
        await plugin.get_prompt(prompt.name)
    for resource in (await plugin.request("resources/list", {}))["resources"]:
        await plugin.request("resources/read", {"uri": resource["uri"]})
    return status


async def list_only(plugin: MCPPlugin, context: Context) -> int:
    await plugin.list_tools()
    return 0


async def echo_schema(plugin: MCPPlugin, context: Context) -> int:
    tools = {tool.name: tool for tool in await plugin.list_tools()}
    result = await plugin.call("json_schema_echo", {"schema": tools["json_schema_2020_12_tool"].input_schema})
    return report(["json_schema_echo"], [result])


async def list_skills(plugin: MCPPlugin, context: Context) -> int:
    return 0 if await Skills(NAME, plugin.request).list() else 1


async def use_skills(plugin: MCPPlugin, context: Context) -> int:
    skills = Skills(NAME, plugin.request)
    for skill in await skills.list():
        await skills.load(skill)
        for uri in skill.files or ():
            await skills.read(skill, uri)
    return 0


STEPS: Mapping[str, Callable[[MCPPlugin, Context], Awaitable[int]]] = {
    "initialize": list_only,
    "json-schema-ref-no-deref": list_only,
    "json-schema-2020-12-preservation": echo_schema,
    "http-custom-headers": call_listed_tools,
    "http-standard-headers": use_everything,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": use_skills,
    "sep-2640-client-verify-size": use_skills,
    "sep-2640-client-verify-frontmatter": use_skills,
}


def example(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that fit: a value of the right type for each required property."""
    properties = schema.get("properties", {})
    return {name: EXAMPLES.get(properties.get(name, {}).get("type"), "example") for name in schema.get("required", [])}


def report(names: Any, results: Any) -> int:
    failed = False
    for name, result in zip(names, results, strict=True):
        failed = failed or not result.success
        print(f"{name}: {'ok' if result.success else result.error}", file=sys.stderr)
    return 1 if failed else 0


async def agree(params: Mapping[str, Any]) -> Mapping[str, Any]:
    """Accepts every form, and fills in fields without a default."""
    properties = params.get("requestedSchema", {}).get("properties", {})
    filled = {name: EXAMPLES[field["type"]] for name, field in properties.items() if "default" not in field}
    return {"action": "accept", "content": filled}


# Our identity.


async def auth_for(scenario: str, url: str, context: Context) -> MCPAuthProvider:
    if not scenario.startswith("auth/"):
        return NoAuth()
    door = AuthHTTPClient(NAME)
    match scenario.removeprefix("auth/"):
        case "client-credentials-basic" | "client-credentials-jwt":
            return await client_credentials_grant(url, context, door)
        case "enterprise-managed-authorization":
            return await enterprise_grant(url, context, door)
        case "wif-jwt-bearer":
            endpoint = await find_token_endpoint(url, door)
            workload = constant_source(context["valid_jwt"])
            public = PublicClient(context["client_id"])
            return TokenGrantAuth(NAME, JwtBearer(endpoint, lambda _: public, workload, resource=url))
        case kind:
            return browser_login(url, context, door, proof=ProofKey() if kind.startswith("dpop") else None)


def browser_login(url: str, context: Context, http: AuthHTTPClient, *, proof: ProofKey | None) -> AuthorizationCode:
    secret = context.get("client_secret")
    login = Login(
        server=NAME,
        url=url,
        client_id=context.get("client_id"),
        client_secret=Secret(secret) if secret else None,
        client_metadata_url=CLIENT_METADATA_URL,
        issuer=context.get("issuer"),
    )
    prompt = LoginPrompt(show=follow_login, open_redirect=partial(open_loopback_redirect, server=NAME))
    return AuthorizationCode(login, http=http, store=MemoryTokens(), prompt=prompt, proof=proof)


async def client_credentials_grant(url: str, context: Context, http: AuthHTTPClient) -> TokenGrantAuth:
    endpoint = await find_token_endpoint(url, http)
    if key := context.get("private_key_pem"):
        signed = SignedAssertion(context["client_id"], Secret(key), algorithm=context["signing_algorithm"], server=NAME)
        return TokenGrantAuth(NAME, ClientCredentials(endpoint, lambda _: signed, resource=url))
    basic = SecretInHeader(context["client_id"], Secret(context["client_secret"]))
    return TokenGrantAuth(NAME, ClientCredentials(endpoint, lambda _: basic, resource=url))


async def enterprise_grant(url: str, context: Context, http: AuthHTTPClient) -> TokenGrantAuth:
    endpoint = await find_token_endpoint(url, http)
    vouched = IdentityAssertion(
        server=NAME,
        http=http,
        token_url=context["idp_token_endpoint"],
        identity=PublicClient(context["idp_client_id"]),
        id_token=constant_source(context["idp_id_token"]),
        target=endpoint,
        resource=url,
    )
    identity = SecretInHeader(context["client_id"], Secret(context["client_secret"]))
    return TokenGrantAuth(NAME, JwtBearer(endpoint, lambda _: identity, vouched, resource=url))


async def find_token_endpoint(url: str, http: AuthHTTPClient) -> TokenEndpoint:
    """The issuer that an operator would write into the file."""
    origin, _, path = url.rpartition("/")
    answer = await http("GET", f"{origin}/.well-known/oauth-protected-resource/{path}")
    issuer = (answer.json() or {})["authorization_servers"][0]
    return TokenEndpoint(server=NAME, http=http, issuer=issuer)


def constant_source(token: str) -> Callable[[], Awaitable[Secret]]:
    async def source() -> Secret:
        return Secret(token)

    return source


async def follow_login(url: str) -> None:
    """Approves at once: follows the redirects back to the loopback address."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        await response.read()


if __name__ == "__main__":
    suite_context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    try:
        sys.exit(asyncio.run(main(sys.argv[-1], os.environ["MCP_CONFORMANCE_SCENARIO"], suite_context)))
    except HoloDeckError as error:
        sys.exit(f"{type(error).__name__}: {error}")

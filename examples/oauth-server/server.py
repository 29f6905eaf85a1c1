"""An MCP server that wants a token, and the authorization server that gives one. Both are for trying only."""

import asyncio
import secrets

from aiohttp import BasicAuth, web

from holodeck.testing import FaultyMCPServer

TOKEN = secrets.token_urlsafe()


async def give_token(request: web.Request) -> web.Response:
    form = await request.post()
    client = BasicAuth.decode(request.headers["authorization"])
    if (client.login, client.password) != ("calculator", "example-secret"):
        return web.json_response({"error": "invalid_client"}, status=401)
    print("a token for", client.login, form["grant_type"], flush=True)
    return web.json_response({"access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600})


async def main() -> None:
    app = web.Application()
    app.router.add_post("/token", give_token)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 3001).start()
    async with FaultyMCPServer("requires-token", token=TOKEN, port=3000) as server:
        print("listening at", server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())

"""Tokens of an identity provider whose keys are fetched over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jwt
import pytest
from aio import aio
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec
from gateway.stand import MODEL, serving

from holodeck.testing import ScriptedModel, say

ISSUER, AUDIENCE = "https://issuer.example", "holodeck"


@dataclass
class Issuer:
    """Hands out its public keys, and tokens."""

    url: str = ""
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def config(self) -> dict[str, Any]:
        return {"issuer": ISSUER, "audience": AUDIENCE, "jwks_url": f"{self.url}/keys", "admin_scope": "admin"}

    @property
    def token(self) -> str:
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "scope": "admin", "exp": time.time() + 600}
        return jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": "k1"})

    async def keys(self, _: web.Request) -> web.Response:
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        return web.json_response({"keys": [{**public, "kid": "k1", "alg": "ES256"}]})


@asynccontextmanager
async def issuing() -> AsyncIterator[Issuer]:
    issuer, app = Issuer(), web.Application()
    app.router.add_get("/keys", issuer.keys)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        issuer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield issuer
    finally:
        await runner.cleanup()


@pytest.mark.proves("D-29")
@aio
async def test_keys_of_the_issuer_are_fetched_and_let_its_callers_in_and_no_others(tmp_path: Path) -> None:
    async with issuing() as issuer, serving(tmp_path, ScriptedModel(say("Hi.")), jwt=issuer.config) as stand:
        body = {"model": MODEL, "input": "Hello"}
        assert (await stand.send("POST", "/v1/responses", body, key=issuer.token))[0] == 200
        assert (await stand.send("GET", "/v1/mcp/servers", key=issuer.token))[0] == 200
        issuer.key = ec.generate_private_key(ec.SECP256R1())
        assert (await stand.send("POST", "/v1/responses", body, key=issuer.token))[0] == 401

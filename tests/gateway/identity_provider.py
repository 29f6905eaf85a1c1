"""An identity provider that serves its public keys over HTTP, and issues tokens."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec

ISSUER, AUDIENCE = "https://issuer.example", "holodeck"


@dataclass
class Issuer:
    """An identity provider that serves its public keys and issues tokens."""

    url: str = ""
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))

    @property
    def config(self) -> dict[str, Any]:
        return {
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "jwks_url": f"{self.url}/keys",
            "role_by_scope": {"admin": "operator"},
        }

    @property
    def token(self) -> str:
        return self.token_with()

    def token_with(self, **more: Any) -> str:
        """A token with other claims than usual."""
        claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "scope": "admin", "exp": time.time() + 600, **more}
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

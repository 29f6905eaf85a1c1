"""Authentication and limits of callers: keys, tokens, quotas."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from async_tests import async_test
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from holodeck.gateway.auth.callers import APIKeys, Caller, Callers, hash_key, new_key
from holodeck.gateway.auth.jwt import JWTProvider
from holodeck.gateway.limits import CallerLimits, TooManyError
from holodeck.models.callers import CallerKey, JWTCallers, KeyLimits

ISSUER, AUDIENCE = "https://issuer.example", "holodeck"


@pytest.mark.proves("D-29")
@async_test
async def test_a_key_is_stored_as_its_hash_only() -> None:
    key, other = new_key(), new_key()
    keys = APIKeys(
        [CallerKey(name="alice", hash=hash_key(key), role="operator"), CallerKey(name="bob", hash=hash_key(other))]
    )
    assert await keys.authenticate(key) == Caller(id="key:alice", role="operator")
    assert await keys.authenticate(other) == Caller(id="key:bob")
    assert await keys.authenticate(key + "x") is None
    assert key not in repr(keys.__dict__)


@async_test
async def test_every_way_a_client_sends_a_key_is_read() -> None:
    key = new_key()
    callers = Callers([APIKeys([CallerKey(name="a", hash=hash_key(key))])])
    for headers in (
        {"authorization": f"Bearer {key}"},
        {"authorization": f"bearer  {key}"},
        {"api-key": key},
        {"x-api-key": key},
    ):
        assert await callers.authenticate(headers) == Caller(id="key:a")
    for headers in ({}, {"authorization": key}, {"authorization": "Basic x"}, {"authorization": "Bearer "}):
        assert await callers.authenticate(headers) is None


class _Identity:
    """An identity provider: a key pair, its public set in a file, and tokens."""

    def __init__(self, folder: Path, kid: str = "k1", max_age: float = 600.0, **more: Any) -> None:
        """`more` are additional fields of the key in the key set."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key()))
        jwk = {**public, "kid": kid, "alg": "ES256", **more}
        (folder / "jwks.json").write_text(json.dumps({"keys": [jwk]}))
        config = JWTCallers(
            issuer=ISSUER, audience=AUDIENCE, jwks_file="jwks.json", role_by_scope={"admin": "operator"}
        )
        self.provider = JWTProvider(config, folder, max_age=max_age)

    def token(self, *, kid: str = "k1", key: Any = None, algorithm: str = "ES256", **claims: Any) -> str:
        usual = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": time.time() + 600}
        payload = {name: value for name, value in {**usual, **claims}.items() if value is not None}
        return jwt.encode(payload, key or self._key, algorithm=algorithm, headers={"kid": kid})


@async_test
async def test_a_token_of_the_issuer_names_its_caller(tmp_path: Path) -> None:
    identity = _Identity(tmp_path)
    assert await identity.provider.authenticate(identity.token()) == Caller(id="jwt:alice")
    admin = await identity.provider.authenticate(identity.token(scope="read admin"))
    assert admin == Caller(id="jwt:alice", role="operator")


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
        {"sub": ""},
        {"sub": ["alice"]},
        {"sub": "al\ud800ice"},
        {"sub": "\udfff"},
        {"sub": "al\0ice"},
        {"kid": "unknown"},
        {"key": ec.generate_private_key(ec.SECP256R1())},
        {"key": "x" * 32, "algorithm": "HS256"},
        {"key": rsa.generate_private_key(65537, 2048), "algorithm": "RS256"},
    ],
    ids=lambda claims: " ".join(name if name == "key" else f"{name}={value!a}" for name, value in claims.items()),
)
@async_test
async def test_a_token_that_is_expired_forged_or_for_another_audience_is_rejected(
    tmp_path: Path, claims: dict[str, Any]
) -> None:
    identity = _Identity(tmp_path)
    assert await identity.provider.authenticate(identity.token(**claims)) is None
    nested = base64.urlsafe_b64encode(b"[" * 40_000).decode() + ".e30.e30"
    for token in ("not a token", "..", "a.b.c", nested):
        assert await identity.provider.authenticate(token) is None


@pytest.mark.parametrize(
    ("more", "is_known"),
    [
        ({"use": "sig"}, True),
        ({"key_ops": ["verify"]}, True),
        ({"use": "sig", "key_ops": ["sign", "verify"]}, True),
        ({"alg": None}, True),
        ({"use": "enc"}, False),
        ({"use": "other"}, False),
        ({"key_ops": ["encrypt", "wrapKey"]}, False),
        ({"key_ops": []}, False),
        ({"use": "sig", "key_ops": ["sign"]}, False),
        ({"alg": "ECDH-ES"}, False),
        ({"alg": "ES384"}, False),
    ],
    ids=str,
)
@async_test
async def test_a_key_of_the_issuer_verifies_only_what_it_is_for(
    tmp_path: Path, more: dict[str, Any], is_known: bool
) -> None:
    identity = _Identity(tmp_path, **more)
    assert (await identity.provider.authenticate(identity.token()) is not None) == is_known


@async_test
async def test_a_token_signed_with_a_withdrawn_key_is_refused(tmp_path: Path) -> None:
    withdrawn = _Identity(tmp_path, max_age=0.0)
    token = withdrawn.token()
    assert await withdrawn.provider.authenticate(token) == Caller(id="jwt:alice")
    (tmp_path / "jwks.json").write_text("it cannot be had for a moment")
    assert await withdrawn.provider.authenticate(token) == Caller(id="jwt:alice"), "cached keys stay valid"
    _Identity(tmp_path, kid="k2")
    while await withdrawn.provider.authenticate(token) is not None:  # noqa: ASYNC110 - no event to wait for
        await asyncio.sleep(0)


@async_test
async def test_callers_that_lose_their_last_provider_accept_no_request() -> None:
    callers = Callers([])
    caller = await callers.authenticate({})
    assert caller is not None
    assert caller.role == "operator", "it never had any, so it is this machine's own"
    for providers in ([APIKeys([CallerKey(name="ops", hash=hash_key("hd-ops"))])], []):
        callers.replace_providers(providers)
        assert await callers.authenticate({}) is None
    assert await callers.authenticate({"authorization": "Bearer hd-ops"}) is None


def test_a_request_over_a_limit_is_refused_at_once_with_a_retry_time() -> None:
    now = [0.0]
    rates = CallerLimits(KeyLimits(in_flight=2, requests_per_minute=3), 100, clock=lambda: now[0])
    alice, bob = Caller(id="a"), Caller(id="b")
    with rates.count_request(alice), rates.count_request(alice):
        with pytest.raises(TooManyError, match="2 requests at once"), rates.count_request(alice):
            pass
        with rates.count_request(bob):
            assert rates.in_flight == 3
    with rates.count_request(alice):
        pass
    now[0] = 10.0
    with pytest.raises(TooManyError, match="3 requests a minute") as caught, rates.count_request(alice):
        pass
    assert caught.value.retry_after == 50.0
    now[0] = 61.0
    with rates.count_request(alice):
        assert rates.in_flight == 1


def test_tokens_are_counted_after_the_fact() -> None:
    now = [0.0]
    rates = CallerLimits(KeyLimits(tokens_per_minute=100), 100, clock=lambda: now[0])
    caller = Caller(id="a")
    with rates.count_request(caller):
        rates.add_tokens(caller.id, 120)
    with pytest.raises(TooManyError, match="100 tokens a minute"), rates.count_request(caller):
        pass
    now[0] = 61.0
    with rates.count_request(caller):
        pass


def test_the_gateway_as_a_whole_has_a_limit() -> None:
    rates = CallerLimits(KeyLimits(), 1)
    with (
        rates.count_request(Caller(id="a")),
        pytest.raises(TooManyError, match="gateway"),
        rates.count_request(Caller(id="b")),
    ):
        pass

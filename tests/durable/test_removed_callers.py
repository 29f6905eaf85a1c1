"""A durable response whose caller is no longer in the configuration when another gateway takes it over."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from async_tests import async_test
from cryptography.hazmat.primitives.asymmetric import ec
from durable.crash_cases import wait_ended, wait_model_requests
from gateway.gateway_process import run_gateway_process, write_gateway_file

from holodeck.gateway.auth.callers import hash_key
from holodeck.testing import ScriptedModel, say, wait

SECONDS = 120.0
ISSUER = "https://issuer.example"
TOKEN = "a token"
SIGNING = ec.generate_private_key(ec.SECP256R1())


def keys(*names: str) -> dict[str, Any]:
    return {"keys": [{"name": name, "hash": hash_key(f"hd-{name}")} for name in names]}


def tokens(issuer: str) -> dict[str, Any]:
    return {"jwt": {"issuer": issuer, "audience": "holodeck", "jwks_file": "jwks.json"}}


def create_token() -> str:
    """Called by the test: a run of all tests takes longer than a token is valid."""
    claims = {"iss": ISSUER, "aud": "holodeck", "sub": "alice", "exp": time.time() + 600}
    return jwt.encode(claims, SIGNING, algorithm="ES256", headers={"kid": "k1"})


@pytest.mark.proves("D-29", "D-32")
@pytest.mark.parametrize(
    ("before", "after", "credential", "is_known"),
    [
        (keys("alice"), keys("bob"), "hd-alice", False),
        ({}, keys("bob"), "", False),
        (tokens(ISSUER), tokens("https://another.example"), TOKEN, False),
        (keys("alice"), keys("bob", "alice"), "hd-alice", True),
    ],
    ids=["removed", "keys instead of none", "another issuer", "still there"],
)
@async_test(SECONDS)
async def test_a_response_of_a_removed_caller_fails_without_a_model_request(
    tmp_path: Path, before: Mapping[str, Any], after: Mapping[str, Any], credential: str, is_known: bool
) -> None:
    credential = create_token() if credential == TOKEN else credential
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(SIGNING.public_key()))
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [{**public, "kid": "k1"}]}))
    durable = {"background": {"durable": True}}
    async with ScriptedModel([wait(asyncio.Event())], say("Hi.")).serve() as model:
        async with run_gateway_process(write_gateway_file(tmp_path, model.url, **before, **durable)) as first:
            headers = {"authorization": f"Bearer {credential}"}
            body = {"model": "demo", "input": "hi", "background": True}
            status, begun, _ = await first.send("POST", "/v1/responses", body, headers)
            assert status == 200, begun
            await wait_model_requests(model, 1)
            first.stop(signal.SIGKILL)
            await first.wait_exit()
        async with run_gateway_process(write_gateway_file(tmp_path, model.url, **after, **durable)) as second:
            while not any(begun["id"] in line for line in second.stderr_lines):  # noqa: ASYNC110 - its log says so
                await asyncio.sleep(0.02)
            if is_known:
                # Its first line says that it goes on. A gateway that stops before the end leaves the rest to the next.
                second.session.headers["authorization"] = f"Bearer {credential}"
                await wait_ended(second, begun["id"])
        async with run_gateway_process(write_gateway_file(tmp_path, model.url, **before, **durable)) as third:
            third.session.headers["authorization"] = f"Bearer {credential}"
            found = await wait_ended(third, begun["id"])
        assert len(model.received) == 1 + is_known
    if is_known:
        assert found["status"] == "completed"
    else:
        assert (found["status"], found["error"]["message"]) == (
            "failed",
            "The response could not be gone on with: the key of its caller was removed from the gateway.",
        )

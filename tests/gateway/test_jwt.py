"""Tokens of an identity provider whose keys are fetched over HTTP."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from async_tests import async_test
from cryptography.hazmat.primitives.asymmetric import ec
from gateway.identity_provider import issuing
from gateway.running_gateway import MODEL, run_gateway
from websockets.asyncio.client import connect
from websockets.frames import CloseCode

from holodeck.gateway.auth.jwt import JWT_LEEWAY
from holodeck.testing import ScriptedModel, say, wait


@pytest.mark.proves("D-29")
@async_test
async def test_only_tokens_signed_with_fetched_issuer_keys_are_accepted(tmp_path: Path) -> None:
    async with issuing() as issuer, run_gateway(tmp_path, ScriptedModel(say("Hi.")), jwt=issuer.config) as gateway:
        body = {"model": MODEL, "input": "Hello"}
        assert (await gateway.send("POST", "/v1/responses", body, key=issuer.token))[0] == 200
        assert (await gateway.send("GET", "/v1/mcp/servers", key=issuer.token))[0] == 200
        issuer.key = ec.generate_private_key(ec.SECP256R1())
        assert (await gateway.send("POST", "/v1/responses", body, key=issuer.token))[0] == 401


@pytest.mark.proves("D-29")
@async_test
async def test_a_token_whose_subject_is_no_text_is_refused(tmp_path: Path) -> None:
    async with issuing() as issuer, run_gateway(tmp_path, ScriptedModel(say("Hi.")), jwt=issuer.config) as gateway:
        for subject in ("al\ud800ice", "al\0ice"):
            status, error = await gateway.send(
                "POST", "/v1/responses", {"model": MODEL, "input": "Hello"}, key=issuer.token_with(sub=subject)
            )
            assert (status, error["error"]["code"]) == (401, "invalid_api_key")
        assert not gateway.model_requests


@pytest.mark.proves("D-29")
@async_test(30)
async def test_sockets_close_when_their_token_expires_and_queued_messages_are_not_answered(tmp_path: Path) -> None:
    resume = asyncio.Event()
    model = ScriptedModel([say("One."), wait(resume)], say("Two."))
    async with issuing() as issuer, run_gateway(tmp_path, model, jwt=issuer.config) as gateway:
        token = issuer.token_with(exp=time.time() + 3.0 - JWT_LEEWAY)
        address, headers = gateway.url.replace("http", "ws", 1) + "/v1/responses", {"authorization": f"Bearer {token}"}
        message = json.dumps({"type": "response.create", "model": MODEL, "input": "Hello"})
        async with (
            connect(address, additional_headers=headers) as busy,
            connect(address, additional_headers=headers) as idle,
        ):
            await busy.send(message)
            await busy.send(message)
            messages = [json.loads(each) async for each in idle]
            assert [each["error"]["code"] for each in messages] == ["token_expired"]
            resume.set()
            messages = [json.loads(each) async for each in busy]
        ends = [each["type"] for each in messages if each["type"] in ("response.completed", "error")]
        assert ends == ["response.completed", "error"], "what was begun in time is finished"
        assert (messages[-1]["status"], messages[-1]["error"]["code"]) == (401, "token_expired")
        assert (idle.close_code, busy.close_code) == (CloseCode.GOING_AWAY, CloseCode.GOING_AWAY)
        assert len(gateway.model_requests) == 1

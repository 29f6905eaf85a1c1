"""HTTP as its own rules have it, for whatever stands between a client and the gateway."""

from __future__ import annotations

import gzip
from pathlib import Path

import orjson
import pytest
from async_tests import async_test
from gateway.running_gateway import MODEL, run_gateway

from holodeck.testing import ScriptedModel, say

PAGE = "https://app.example"
SDK_HEADERS = "authorization,content-type,x-stainless-lang,x-stainless-retry-count,openai-organization"


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_wrong_method_is_answered_with_the_right_ones_and_head_is_a_get_without_a_body(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as stand:
        http = await stand.http_client()
        async with http.put("/v1/conversations/conv_1") as answer:
            assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, POST")
        for path in ("/healthz", "/readyz", "/v1/models"):
            async with http.get(path) as got, http.head(path) as answer:
                assert (answer.status, await answer.read()) == (200, b"")
                assert answer.headers["content-length"] == got.headers["content-length"]
        async with http.head("/v1/responses") as answer:
            assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_packed_body_is_refused_in_words(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as stand:
        http = await stand.http_client()
        body = orjson.dumps({"model": MODEL, "input": "Hello"})
        packed = {"content-encoding": "gzip"}
        async with http.post("/v1/responses", data=gzip.compress(body), headers=packed) as answer:
            assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
            assert (await answer.json())["error"]["code"] == "unsupported_encoding"
        async with http.post("/v1/responses", data=body, headers={"content-encoding": "identity"}) as answer:
            assert answer.status == 200


@pytest.mark.proves("D-25", "D-31")
@async_test(30)
async def test_an_sdk_in_an_invited_page_may_send_its_headers_and_read_ours(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), cors_origins=[PAGE]) as stand:
        http = await stand.http_client()
        asks = {"origin": PAGE, "access-control-request-method": "POST", "access-control-request-headers": SDK_HEADERS}
        async with http.options("/v1/responses", headers=asks) as answer:
            assert answer.status == 204
            assert answer.headers["access-control-allow-headers"] == SDK_HEADERS
        body = orjson.dumps({"model": MODEL, "input": "Hello"})
        async with http.post("/v1/responses", data=body, headers={"origin": PAGE}) as answer:
            assert answer.status == 200
            exposed = answer.headers["access-control-expose-headers"].split(", ")
            assert {"x-should-retry", "retry-after", "x-request-id"} <= set(exposed)


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_model_whose_name_has_a_slash_is_found_by_it(tmp_path: Path) -> None:
    llm = {"provider": "openai_compatible", "name": "scripted", "endpoint": "http://127.0.0.1:1/v1"}
    async with run_gateway(tmp_path, models=[{"name": "maker/model:7b", "model": llm}]) as stand:
        client = await stand.openai_client()
        assert (await client.models.retrieve("maker/model:7b")).id == "maker/model:7b"
        assert (await stand.send("GET", "/v1/models/maker/model:7b"))[0] == 200
        assert (await stand.send("GET", "/v1/models/maker"))[0] == 404


@pytest.mark.proves("D-29", "D-31")
@async_test(30)
async def test_a_probe_may_come_by_any_address_and_nothing_else_may(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as stand:
        http = await stand.http_client()
        by_address = {"host": "10.1.2.3:8080"}
        for path in ("/healthz", "/readyz"):
            async with http.get(path, headers=by_address) as answer:
                assert answer.status == 200
        for method in ("GET", "OPTIONS"):
            async with http.request(method, "/v1/models", headers=by_address) as answer:
                assert answer.status == 421


@pytest.mark.proves("D-25")
@async_test(30)
async def test_streams_forbid_caching(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as stand:
        body = orjson.dumps({"model": MODEL, "input": "Hello", "stream": True})
        async with (await stand.http_client()).post("/v1/responses", data=body) as answer:
            assert answer.headers["cache-control"] == "no-store"

"""Conformance to HTTP, for proxies and other intermediaries."""

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
async def test_a_wrong_method_is_a_405_with_allow_and_head_is_a_get_without_a_body(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        http = await gateway.http_client()
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
async def test_a_compressed_body_is_refused_with_a_415(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        http = await gateway.http_client()
        body = orjson.dumps({"model": MODEL, "input": "Hello"})
        packed = {"content-encoding": "gzip"}
        async with http.post("/v1/responses", data=gzip.compress(body), headers=packed) as answer:
            assert (answer.status, answer.headers["accept-encoding"]) == (415, "identity")
            assert (await answer.json())["error"]["code"] == "unsupported_encoding"
        async with http.post("/v1/responses", data=body, headers={"content-encoding": "identity"}) as answer:
            assert answer.status == 200


@pytest.mark.proves("D-25", "D-31")
@async_test(30)
async def test_an_sdk_in_a_page_of_an_allowed_origin_may_send_its_headers_and_read_the_gateway_s(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path, ScriptedModel(say("Hi.")), cors_origins=[PAGE]) as gateway:
        http = await gateway.http_client()
        preflight = {
            "origin": PAGE,
            "access-control-request-method": "POST",
            "access-control-request-headers": SDK_HEADERS,
        }
        async with http.options("/v1/responses", headers=preflight) as answer:
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
    async with run_gateway(tmp_path, models=[{"name": "maker/model:7b", "model": llm}]) as gateway:
        client = await gateway.openai_client()
        assert (await client.models.retrieve("maker/model:7b")).id == "maker/model:7b"
        assert (await gateway.send("GET", "/v1/models/maker/model:7b"))[0] == 200
        assert (await gateway.send("GET", "/v1/models/maker"))[0] == 404


@pytest.mark.proves("D-29", "D-31")
@async_test(30)
async def test_only_probes_are_answered_for_any_host_header(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        http = await gateway.http_client()
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
    async with run_gateway(tmp_path, ScriptedModel(say("Hi."))) as gateway:
        body = orjson.dumps({"model": MODEL, "input": "Hello", "stream": True})
        async with (await gateway.http_client()).post("/v1/responses", data=body) as answer:
            assert answer.headers["cache-control"] == "no-store"

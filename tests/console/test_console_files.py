"""The files of the console over HTTP: headers, caching, compression, names, and a gateway without a build."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from async_tests import async_test
from console.browser import STATIC
from gateway.running_gateway import RunningGateway, run_gateway

from holodeck.gateway.console import files


@asynccontextmanager
async def _open_session(gateway: RunningGateway) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(gateway.url, auto_decompress=False) as session:
        yield session


async def _get(
    gateway: RunningGateway, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, bytes, Mapping[str, str]]:
    async with (
        _open_session(gateway) as session,
        session.get(path, headers={"accept-encoding": "identity", **(headers or {})}) as answer,
    ):
        return answer.status, await answer.read(), answer.headers


def _names() -> list[str]:
    return sorted(path.name for path in STATIC.iterdir() if path.suffix not in (".br", ".gz"))


@async_test
async def test_the_page_allows_nothing_but_its_own_files(tmp_path: Path) -> None:
    async with run_gateway(tmp_path, keys=["hd-someone"]) as gateway:
        status, body, headers = await _get(gateway, "/")
        assert status == 200
        policy = dict(each.split(" ", 1) for each in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["frame-ancestors"] == "'none'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        # Nothing inline, and nothing by an absolute URL: a proxy may serve the page below a path.
        assert not re.search(rb"<style|style=|\son\w+=|<script(?![^>]*src=)", body)
        assert all(not url.startswith((b"/", b"http")) for url in re.findall(rb'(?:src|href)="([^"]+)"', body))


@async_test
async def test_files_are_cached_for_good_and_the_page_is_validated(tmp_path: Path) -> None:
    async with run_gateway(tmp_path) as gateway:
        _, page, headers = await _get(gateway, "/")
        assert headers["cache-control"] == "no-cache"
        status, body, again = await _get(gateway, "/", {"if-none-match": headers["etag"]})
        assert (status, body, again["etag"]) == (304, b"", headers["etag"])
        for name in re.findall(r'"(console/[^"]+)"', page.decode()):
            status, _, headers = await _get(gateway, f"/{name}")
            assert status == 200
            assert "immutable" in headers["cache-control"]


@pytest.mark.parametrize(
    ("accepted", "encoding", "suffix"),
    [("gzip, br", "br", ".br"), ("gzip", "gzip", ".gz"), ("br;q=0, gzip", "gzip", ".gz"), ("identity", None, "")],
)
@async_test
async def test_a_file_is_sent_in_the_smallest_form_that_the_client_accepts(
    tmp_path: Path, accepted: str, encoding: str | None, suffix: str
) -> None:
    (name,) = [each for each in _names() if each.startswith("main-") and each.endswith(".js")]
    async with run_gateway(tmp_path) as gateway:
        status, body, headers = await _get(gateway, f"/console/{name}", {"accept-encoding": accepted})
    assert (status, headers.get("content-encoding")) == (200, encoding)
    assert body == (STATIC / f"{name}{suffix}").read_bytes()
    assert headers["content-type"] == "text/javascript; charset=utf-8"
    assert headers["vary"] == "accept-encoding"


@pytest.mark.parametrize("name", ["index.html", "no-such-ABCDEFGH.js", "..%2Ffiles.py", "main.js", "a%00-ABCDEFGH.js"])
@async_test
async def test_there_is_no_other_file(tmp_path: Path, name: str) -> None:
    async with run_gateway(tmp_path) as gateway:
        status, _, _ = await _get(gateway, f"/console/{name}")
        assert status == 404


@async_test
async def test_without_a_build_the_page_says_how_to_make_one_and_the_api_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "STATIC", tmp_path / "none")
    async with run_gateway(tmp_path) as gateway:
        status, body, headers = await _get(gateway, "/")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert b"make console" in body
        assert (await gateway.send("GET", "/v1/models"))[0] == 200

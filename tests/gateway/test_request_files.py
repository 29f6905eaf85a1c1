"""Files that a request names by their URL are fetched by the operator's rules, or the request is refused."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from async_tests import async_test
from gateway.file_server import PDF, serve_files
from gateway.running_gateway import MODEL, RunningGateway, run_gateway

from holodeck.testing import ScriptedModel, say

LOCAL = ["127.0.0.1"]
ALLOWED = {"allow": True, "allow_private_hosts": LOCAL, "allow_insecure_hosts": LOCAL}
PARAM = "input[0].content[0].file_url"


def _question(url: str, **fields: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "input_file", "file_url": url, **fields}]}]


async def _ask(gateway: RunningGateway, url: str, **fields: Any) -> tuple[int, Any]:
    return await gateway.send("POST", "/v1/responses", {"model": MODEL, "input": _question(url), **fields})


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_file_is_fetched_once_and_the_model_gets_its_bytes_type_and_name(tmp_path: Path) -> None:
    model = ScriptedModel(say("Read."), say("Again."))
    async with serve_files() as (url, asked), run_gateway(tmp_path, model, request_files=ALLOWED) as gateway:
        status, response = await _ask(gateway, f"{url}/moved.pdf")
        assert status == 200, response
        status, _ = await gateway.send(
            "POST", "/v1/responses", {"model": MODEL, "input": "Again?", "previous_response_id": response["id"]}
        )
        assert status == 200
        _, listed = await gateway.send("GET", f"/v1/responses/{response['id']}/input_items")
    data = f"data:application/pdf;base64,{b64encode(PDF).decode()}"
    file = {"type": "file", "file": {"filename": "moved.pdf", "file_data": data}}
    assert [request["messages"][0]["content"] for request in gateway.model_requests] == [[file], [file]]
    assert asked == ["/moved.pdf", "/report.pdf"]
    assert listed["data"][0]["content"] == [{"type": "input_file", "file_url": f"{url}/moved.pdf"}]


@pytest.mark.proves("D-25")
@pytest.mark.parametrize(
    ("rules", "path", "code", "reason"),
    [
        ({}, "/report.pdf", "unsupported_parameter", "This gateway fetches no files"),
        ({"allow": True}, "/report.pdf", "invalid_url", "it must use https://"),
        ({"allow": True, "allow_insecure_hosts": LOCAL}, "/report.pdf", "invalid_url", "not a public one"),
        ({**ALLOWED, "hosts": ["*.example.com"]}, "/report.pdf", "invalid_url", "does not allow this host"),
        ({**ALLOWED, "allow_insecure_hosts": [*LOCAL, "127.0.0.2"]}, "/away.pdf", "invalid_url", "not a public one"),
        (ALLOWED, "/away.pdf", "invalid_url", "it must use https://"),
        (ALLOWED, "/missing.pdf", "invalid_url", "answered HTTP 404"),
        ({**ALLOWED, "max_bytes": 4}, "/report.pdf", "invalid_url", "more than 4 bytes"),
        ({**ALLOWED, "max_seconds": 0.2}, "/silent.pdf", "invalid_url", "more than 0.2 s"),
    ],
)
@async_test(30)
async def test_a_file_that_may_not_or_cannot_be_fetched_refuses_the_request(
    tmp_path: Path, rules: dict[str, Any], path: str, code: str, reason: str
) -> None:
    async with serve_files() as (url, _), run_gateway(tmp_path, request_files=rules) as gateway:
        status, reply = await _ask(gateway, f"{url}{path}?token=secret")
        assert gateway.model_requests == []
    assert (status, reply["error"]["code"], reply["error"]["param"]) == (400, code, PARAM)
    assert reason in reply["error"]["message"]
    assert "secret" not in reply["error"]["message"]


@pytest.mark.proves("D-25")
@async_test(30)
async def test_a_file_of_a_stored_conversation_is_fetched_for_the_response_that_needs_it(tmp_path: Path) -> None:
    async with (
        serve_files() as (url, asked),
        run_gateway(tmp_path, ScriptedModel(say("Read.")), request_files=ALLOWED) as gateway,
    ):
        _, conversation = await gateway.send("POST", "/v1/conversations", {"items": _question(f"{url}/report.pdf")})
        assert asked == []
        body = {"model": MODEL, "input": "Well?", "conversation": conversation["id"]}
        assert (await gateway.send("POST", "/v1/responses", body))[0] == 200
    assert b64encode(PDF).decode() in str(gateway.model_requests[0]["messages"][0])


IMAGE_DOORS: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    "/v1/responses": (
        lambda url: {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]},
        "input[0].content[0].image_url",
    ),
    "/v1/responses/compact": (
        lambda url: {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]},
        "input[0].content[0].image_url",
    ),
    "/v1/chat/completions": (
        lambda url: {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]},
        "messages[0].content[0].image_url.url",
    ),
    "/v1/messages": (
        lambda url: {
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": url}}]},
            ],
        },
        "messages[0].content[0].source.url",
    ),
}
PRIVATE_HOSTS = (
    *("127.0.0.1", "10.1.2.3", "169.254.169.254", "[::1]", "[fd00::1]", "[::ffff:10.0.0.1]", "2130706433", "0x7f.1"),
    *("localhost", "LOCALHOST.", "intranet", "printer.local", "metadata.google.internal", "db.svc.home.arpa"),
)


@async_test
async def test_a_link_to_an_image_at_a_private_host_is_refused_at_every_door_and_names_its_field(
    tmp_path: Path,
) -> None:
    async with run_gateway(tmp_path) as gateway:
        for path, (build_body, param) in IMAGE_DOORS.items():
            for host in PRIVATE_HOSTS:
                body = {"model": MODEL, **build_body(f"http://{host}/cat.png")}
                status, reply = await gateway.send("POST", path, body)
                assert (status, param in reply["error"]["message"]) == (400, True), (path, host, reply)
        file = {"type": "input_image", "image_url": "http://10.0.0.1/cat.png"}
        items = [{"role": "user", "content": [file]}]
        _, conversation = await gateway.send("POST", "/v1/conversations", {"items": items})
        body = {"model": MODEL, "input": "Well?", "conversation": conversation["id"]}
        status, reply = await gateway.send("POST", "/v1/responses", body)
        assert (status, reply["error"]["code"]) == (400, "invalid_url")
        assert gateway.model_requests == []


@async_test
async def test_links_to_images_at_public_hosts_and_at_those_that_the_operator_allows_go_to_the_model(
    tmp_path: Path,
) -> None:
    rules = {"allow": True, "allow_private_hosts": ["10.0.0.0/8", "pictures.internal"]}
    model = ScriptedModel(*[say("A cat.")] * 9)
    async with run_gateway(tmp_path, model, request_files=rules) as gateway:
        for path in ("/v1/responses", "/v1/chat/completions", "/v1/messages"):
            for host in ("10.1.2.3", "pictures.internal", "pictures.example"):
                url = f"http://{host}/cat.png"
                status, reply = await gateway.send("POST", path, {"model": MODEL, **IMAGE_DOORS[path][0](url)})
                assert status == 200, reply
                assert gateway.model_requests[-1]["messages"][0]["content"][0]["image_url"]["url"] == url

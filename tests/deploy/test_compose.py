"""The compose file: two gateways and their database behind a balancer, none with more rights than it needs."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
import yaml
from deploy.containerfile import arguments_of, read_stages
from deploy.image_gateway import TIMEOUT, serve_as_image
from deploy.manifests import DEPLOY, MANIFEST_SETS
from storage.postgres_server import PostgresServer

import holodeck as package
from holodeck.gateway.auth.callers import hash_key
from holodeck.gateway.server.draining_server import CONNECTIONS_GRACE

FOLDER = DEPLOY / "compose"
FILE = yaml.safe_load((FOLDER / "docker-compose.yaml").read_text())
SERVICES = FILE["services"]
GATEWAYS = {name: service for name, service in SERVICES.items() if name.startswith("gateway-")}
BALANCER = (FOLDER / "nginx.conf").read_text()
KEY = "hd-try"
CALLER = {"Authorization": f"Bearer {KEY}"}
KNOWN = {
    *("build", "cap_drop", "depends_on", "environment", "healthcheck", "hostname", "image", "networks", "ports"),
    *("read_only", "restart", "security_opt", "stop_grace_period", "tmpfs", "user", "volumes"),
}
"""Of a service, the keys of the Compose specification that this file uses; another one is a slip of the pen."""


def test_every_key_is_one_of_the_specification() -> None:
    assert set(FILE) == {"name", "services", "networks", "volumes", "x-gateway"}
    assert {key for service in SERVICES.values() for key in service} <= KNOWN
    assert all(set(each["networks"]) <= set(FILE["networks"]) for each in SERVICES.values())


def test_what_is_mounted_and_waited_for_exists() -> None:
    for service in SERVICES.values():
        for name, need in service.get("depends_on", {}).items():
            assert need == {"condition": "service_healthy"}
            assert "healthcheck" in SERVICES[name]
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert (FOLDER / source).is_file() if source.startswith(".") else source in FILE["volumes"]
    build = FILE["x-gateway"]["build"]
    assert (FOLDER / build["context"] / build["dockerfile"]).resolve() == DEPLOY / "Containerfile"


def test_the_gateways_are_of_this_version_and_have_stable_names_and_time_to_drain() -> None:
    assert len(GATEWAYS) == 2
    limits = yaml.safe_load((FOLDER / "gateway.yaml").read_text())["limits"]
    for name, service in GATEWAYS.items():
        assert (service["hostname"], service["image"]) == (name, f"holodeck:{package.__version__}")
        seconds = int(service["stop_grace_period"].removesuffix("s"))
        assert seconds > limits["drain_seconds"] + CONNECTIONS_GRACE
        assert {seconds} == {form.pod["terminationGracePeriodSeconds"] for form in MANIFEST_SETS}
        assert [service["user"]] == arguments_of(read_stages(DEPLOY / "Containerfile")[1], "USER")


def test_nothing_runs_with_rights_it_does_not_need_and_only_loopback_is_reachable() -> None:
    for name, service in SERVICES.items():
        if name != "postgres":  # its image changes its user by itself
            assert service["read_only"] is True
            assert service["cap_drop"] == ["ALL"]
            assert service["security_opt"] == ["no-new-privileges:true"]
    published = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert published == ["127.0.0.1:8080:8080"]


def test_no_secret_stands_in_the_file_and_each_is_named_in_the_example() -> None:
    wanted = set(re.findall(r"\$\{(\w+):\?", (FOLDER / "docker-compose.yaml").read_text()))
    example = dict(re.findall(r"^(\w+)=(.*)$", (FOLDER / "env.example").read_text(), re.MULTILINE))
    assert set(example) == wanted
    assert set(example.values()) == {""}


def test_the_balancer_knows_every_gateway_and_holds_nothing_back() -> None:
    servers = re.findall(r"^\s*server (\S+):8080 ", BALANCER, re.MULTILINE)
    assert servers == [*GATEWAYS]
    assert "hash " not in BALANCER, "no client has to stay at one gateway"
    for line in ("proxy_buffering off;", "proxy_request_buffering off;", "proxy_set_header Upgrade $http_upgrade;"):
        assert line in BALANCER
    assert "non_idempotent" not in BALANCER, "a request that may have acted is never sent twice"
    assert BALANCER.count("{") == BALANCER.count("}")


@pytest.mark.long
def test_both_gateways_answer_for_what_one_of_them_made(tmp_path: Path, postgres: PostgresServer) -> None:
    env = {"DATABASE_URL": postgres.new_database(), "SEAL_KEY": "s3al" * 8, "OPS_KEY_HASH": hash_key(KEY)}
    assert set(env) == set(FILE["x-gateway"]["environment"])
    file = FOLDER / "gateway.yaml"
    with serve_as_image(file, env, tmp_path) as first, serve_as_image(file, env, tmp_path) as second:
        body = {"model": "demo", "input": "Hello"}
        status, made = first.send("POST", "/v1/responses", CALLER, body)
        assert status == 200, made
        assert second.send("GET", f"/v1/responses/{made['id']}", CALLER) == (200, made)
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(TIMEOUT) == 0
        assert second.send("POST", "/v1/responses", CALLER, body | {"previous_response_id": made["id"]})[0] == 200

"""The form of several gateways on one PostgreSQL: they share what they must, and one reads what another stored."""

from __future__ import annotations

from pathlib import Path

import yaml
from deploy.image_gateway import serve_as_image
from deploy.manifests import KEY, MANY, ONE, VARIABLES
from storage.postgres_server import PostgresServer

CALLER = {"Authorization": f"Bearer {KEY}"}


def test_several_gateways_are_replaced_and_moved_one_at_a_time() -> None:
    spec = MANY.of_kind("StatefulSet")["spec"]
    budget = MANY.of_kind("PodDisruptionBudget")["spec"]
    assert spec["replicas"] > budget["maxUnavailable"] == 1
    assert budget["selector"] == spec["selector"]
    assert spec["updateStrategy"] == {"type": "RollingUpdate"}
    assert {
        each["labelSelector"]["matchLabels"].items() >= spec["selector"]["matchLabels"].items()
        for each in MANY.pod["topologySpreadConstraints"]
    } == {True}


def test_several_gateways_keep_nothing_on_their_own_disk() -> None:
    assert "volumeClaimTemplates" not in MANY.of_kind("StatefulSet")["spec"]
    mounts = {mount["mountPath"] for mount in MANY.container["volumeMounts"] if not mount.get("readOnly")}
    assert mounts == {"/tmp"}


def test_the_database_and_the_seal_key_come_from_mounted_secrets() -> None:
    config = yaml.safe_load(MANY.gateway)
    files = {item["path"] for item in MANY.pod["volumes"][0]["projected"]["sources"][1]["secret"]["items"]}
    assert {config["storage"]["url_file"], config["seal_key_file"]} < files
    ports = [rule["ports"] for rule in MANY.of_kind("NetworkPolicy")["spec"]["egress"]]
    assert [{"protocol": "TCP", "port": 5432}] in ports


def test_the_forms_differ_only_where_they_must() -> None:
    for part in ("securityContext", "startupProbe", "livenessProbe", "readinessProbe", "ports", "envFrom", "image"):
        assert ONE.container[part] == MANY.container[part]
    assert ONE.of_kind("Service") == MANY.of_kind("Service"), "no client has to stay at one gateway"
    one, many = yaml.safe_load(ONE.gateway), yaml.safe_load(MANY.gateway)
    assert {key for key in one | many if one.get(key) != many.get(key)} <= {"limits", "storage", "seal_key_file"}


def test_two_configured_gateways_on_one_database_are_one_to_a_client(tmp_path: Path, postgres: PostgresServer) -> None:
    file = MANY.mount_config(tmp_path / "etc", {"database-url": postgres.new_database()})
    with serve_as_image(file, VARIABLES, tmp_path) as first, serve_as_image(file, VARIABLES, tmp_path) as second:
        assert first.status("/readyz", {}) == second.status("/readyz", {}) == 200
        status, made = first.send("POST", "/v1/conversations", CALLER, {"metadata": {"topic": "ships"}})
        assert status == 200, made
        assert second.send("GET", f"/v1/conversations/{made['id']}", CALLER) == (200, made)
        assert second.status(f"/v1/conversations/{made['id']}", {}) == 401


def test_a_key_that_is_made_at_one_gateway_is_accepted_at_both_and_refused_when_it_is_revoked(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    file = MANY.mount_config(tmp_path / "etc", {"database-url": postgres.new_database()})
    before = file.read_bytes()
    with serve_as_image(file, VARIABLES, tmp_path) as first, serve_as_image(file, VARIABLES, tmp_path) as second:
        status, made = first.send("POST", "/v1/keys", CALLER, {"name": "alice"})
        assert status == 200, made
        alice = {"Authorization": f"Bearer {made['key']}"}
        assert first.status("/v1/models", alice) == 200
        while second.status("/v1/models", alice) != 200:
            pass
        assert second.send("DELETE", "/v1/keys/alice", CALLER)[0] == 200
        assert second.status("/v1/models", alice) == 401
        while first.status("/v1/models", alice) != 401:
            pass
    assert file.read_bytes() == before

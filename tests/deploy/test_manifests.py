"""The Kubernetes manifests: valid by the schema, strict about rights, and what they configure serves."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from deploy.containerfile import stages, texts, variables
from kubernetes_validate import ValidationError, validate  # type: ignore[import-untyped]
from terminal import holodeck

import holodeck as package
from holodeck.gateway.callers import hash_key
from holodeck.lib.limits import HEADER_TIMEOUT

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted((DEPLOY / "kubernetes").iterdir())
KEY = "hd-team"
VARIABLES = {"TEAM_KEY_HASH": hash_key(KEY), "DOCS_MCP_TOKEN": "t0ken"}
OLDEST, NEWEST = "1.25", "1.37"
LIMIT = 30  # seconds for a process that is starting or stopping on a busy machine


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


ALL = [document for path in FILES for document in documents(path)]


def of_kind(kind: str) -> dict[str, Any]:
    (found,) = [document for document in ALL if document["kind"] == kind]
    return found


POD = of_kind("StatefulSet")["spec"]["template"]["spec"]
(CONTAINER,) = POD["containers"]
GATEWAY = of_kind("ConfigMap")["data"]["gateway.yaml"]
SECRETS = {document["metadata"]["name"]: document for document in ALL if document["kind"] == "Secret"}


def mounted(folder: Path) -> Path:
    """The config volume as a kubelet lays it out: every name is a link into a folder that can be swapped as a whole."""
    data = folder / "..2026"
    for source in POD["volumes"][0]["projected"]["sources"]:
        if "secret" in source:
            for item in source["secret"]["items"]:
                assert item["key"] in SECRETS[source["secret"]["name"]]["stringData"]
                _write(data / item["path"], "k3y\n")
        else:
            assert source["configMap"]["name"] == of_kind("ConfigMap")["metadata"]["name"]
            _write(data / "gateway.yaml", GATEWAY)
    (folder / "..data").symlink_to(data.name)
    for path in data.iterdir():
        (folder / path.name).symlink_to(f"..data/{path.name}")
    return folder / "gateway.yaml"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_each_manifest_is_valid_for_kubernetes(path: Path, version: str) -> None:
    for document in documents(path):
        assert validate(document, version, strict=True) == version


def test_the_schema_refuses_a_key_that_kubernetes_does_not_know() -> None:
    with pytest.raises(ValidationError, match="readOnlyRootFileSystem"):
        validate({**of_kind("Service"), "readOnlyRootFileSystem": True}, NEWEST, strict=True)


@pytest.mark.proves("004:FR-021")
def test_the_configured_gateway_is_valid_once_its_secrets_are_there(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    env = variables(stages(DEPLOY / "Containerfile")[1]) | VARIABLES
    done = holodeck("validate", "--strict", mounted(folder), cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    (source,) = CONTAINER["envFrom"]
    assert set(SECRETS[source["secretRef"]["name"]]["stringData"]) == set(VARIABLES)


def test_secrets_that_were_not_filled_in_stop_the_gateway(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    done = holodeck("validate", mounted(folder), cwd=folder, env=SECRETS["holodeck"]["stringData"])
    assert done.returncode == 2
    assert "keys[0].hash" in done.stderr


def test_applying_the_folder_never_touches_secrets() -> None:
    applied = [document for path in FILES if path.suffix in {".yaml", ".yml", ".json"} for document in documents(path)]
    assert {document["kind"] for document in applied} == {"ConfigMap", "NetworkPolicy", "Service", "StatefulSet"}


def test_the_pod_has_no_rights_that_it_does_not_need() -> None:
    pod, own = POD["securityContext"], CONTAINER["securityContext"]
    assert (pod["runAsNonRoot"], pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert POD["automountServiceAccountToken"] is False
    assert set(of_kind("NetworkPolicy")["spec"]["policyTypes"]) == {"Ingress", "Egress"}


def test_the_pod_fits_the_image() -> None:
    image = stages(DEPLOY / "Containerfile")[1]
    assert texts(image, "USER") == [f"{POD['securityContext']['runAsUser']}:{POD['securityContext']['runAsGroup']}"]
    assert CONTAINER["image"].endswith(f"/holodeck:{package.__version__}")
    assert texts(image, "EXPOSE") == [str(CONTAINER["ports"][0]["containerPort"])]
    mounts = {mount["mountPath"] for mount in CONTAINER["volumeMounts"] if not mount.get("readOnly")}
    assert mounts == {"/var/lib/holodeck", "/tmp"}
    assert yaml.safe_load(GATEWAY)["storage"]["url"].startswith("sqlite:////var/lib/holodeck/")


def test_there_is_one_pod_with_time_to_drain_and_memory_for_its_requests() -> None:
    limits = yaml.safe_load(GATEWAY)["limits"]
    assert of_kind("StatefulSet")["spec"]["replicas"] == 1
    assert POD["terminationGracePeriodSeconds"] > limits["drain_seconds"] + HEADER_TIMEOUT
    memory = int(CONTAINER["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
    assert 2 * limits["in_flight"] * limits["body_bytes"] < memory


def test_what_is_selected_by_label_is_the_pod() -> None:
    labels = of_kind("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert of_kind("Service")["spec"]["selector"] == labels
    assert of_kind("StatefulSet")["spec"]["selector"]["matchLabels"] == labels
    assert of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert of_kind("StatefulSet")["spec"]["serviceName"] == of_kind("Service")["metadata"]["name"]


def test_the_configured_gateway_answers_its_probes_refuses_strangers_and_ends_on_sigterm(tmp_path: Path) -> None:
    with _served(tmp_path) as (process, address):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            request = CONTAINER[probe]["httpGet"]
            headers = {header["name"]: header["value"] for header in request["httpHeaders"]}
            assert _status(address, request["path"], headers) == 200
        assert _status(address, "/v1/models", {}) == 401
        assert _status(address, "/v1/models", {"Authorization": f"Bearer {KEY}"}) == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 0
    assert (tmp_path / "data" / "holodeck.db").exists()


def _status(address: str, path: str, headers: Mapping[str, str]) -> int:
    connection = http.client.HTTPConnection(address, timeout=LIMIT)
    try:
        connection.request("GET", path, headers=dict(headers))
        return connection.getresponse().status
    finally:
        connection.close()


@contextmanager
def _served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command of the image as a process here; only its address and its volume are of this test."""
    file = mounted(folder / "etc")
    (folder / "data").mkdir()
    env = {
        **VARIABLES,
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "HOLODECK_LISTEN__HOST": "127.0.0.1",
        "HOLODECK_LISTEN__PORT": "0",
        "HOLODECK_STORAGE__URL": f"sqlite:///{folder / 'data' / 'holodeck.db'}",
    }
    command = [sys.executable, "-m", "holodeck", "serve", str(file)]
    with subprocess.Popen(command, env=env, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        limit = threading.Timer(2 * LIMIT, process.kill)
        limit.start()
        try:
            said = next((line for line in process.stderr if '"event":"gateway.serving"' in line), "")
            match = re.search(r"http://([^/]+)/v1", said)
            assert match, "the gateway did not start"
            yield process, match[1]
        finally:
            limit.cancel()
            process.kill()

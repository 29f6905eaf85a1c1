"""The Kubernetes manifests: valid by the schema, strict about rights, and what they configure serves."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import yaml
from deploy.containerfile import arguments_of, env_variables, read_stages
from deploy.image_gateway import TIMEOUT, serve_as_image
from deploy.manifests import DEPLOY, KEY, MANIFEST_SETS, ONE, VARIABLES, ManifestSet, read_documents
from holodeck_command import run_holodeck
from kubernetes_validate import ValidationError, validate  # type: ignore[import-untyped]

import holodeck as package
from holodeck.gateway.server.draining_server import CONNECTIONS_GRACE

OLDEST, NEWEST = "1.25", "1.37"
each_form = pytest.mark.parametrize("form", MANIFEST_SETS, ids=lambda form: form.name)


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("path", [path for form in MANIFEST_SETS for path in form.files], ids=lambda path: path.name)
def test_each_manifest_is_valid_for_kubernetes(path: Path, version: str) -> None:
    for document in read_documents(path):
        assert validate(document, version, strict=True) == version


def test_the_schema_refuses_a_key_that_kubernetes_does_not_know() -> None:
    with pytest.raises(ValidationError, match="readOnlyRootFileSystem"):
        validate({**ONE.of_kind("Service"), "readOnlyRootFileSystem": True}, NEWEST, strict=True)


@each_form
@pytest.mark.proves("004:FR-021")
def test_the_configured_gateway_is_valid_once_its_secrets_are_there(form: ManifestSet, tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    env = env_variables(read_stages(DEPLOY / "Containerfile")[1]) | VARIABLES
    if form is ONE:
        # The pod mounts a volume at the folder of its database; this machine has none there.
        env["HOLODECK_STORAGE__URL"] = f"sqlite:///{folder}/holodeck.db"
    done = run_holodeck("validate", "--strict", form.mount_config(folder), cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    (source,) = form.container["envFrom"]
    assert set(form.secrets[source["secretRef"]["name"]]["stringData"]) == set(VARIABLES)


@each_form
def test_every_variable_of_the_pod_is_one_that_the_gateway_reads(form: ManifestSet, tmp_path: Path) -> None:
    (source,) = form.container["envFrom"]
    for name in form.secrets[source["secretRef"]["name"]]["stringData"]:
        assert f"${{{name}}}" in form.gateway
    own = [
        *form.container.get("env", ()),
        *({"name": name} for name in env_variables(read_stages(DEPLOY / "Containerfile")[1])),
    ]
    ours = {variable["name"]: "x" for variable in own if variable["name"].startswith("HOLODECK_")}
    assert ours
    folder = tmp_path / "etc"
    meant = {f"{name}X": value for name, value in ours.items()}
    done = run_holodeck("validate", "--strict", form.mount_config(folder), cwd=folder, env=VARIABLES | meant)
    assert done.returncode != 0, "a slip of the pen is seen"


@each_form
def test_secrets_that_were_not_filled_in_stop_the_gateway(form: ManifestSet, tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    done = run_holodeck("validate", form.mount_config(folder), cwd=folder, env=form.secrets["holodeck"]["stringData"])
    assert done.returncode == 2
    assert "keys[0].hash" in done.stderr


@each_form
def test_applying_the_folder_never_touches_secrets(form: ManifestSet) -> None:
    applied = [
        each for path in form.files if path.suffix in {".yaml", ".yml", ".json"} for each in read_documents(path)
    ]
    kinds = {"ConfigMap", "NetworkPolicy", "Service", "StatefulSet"}
    assert {document["kind"] for document in applied} - {"PodDisruptionBudget"} == kinds


@each_form
def test_the_pod_has_no_rights_that_it_does_not_need(form: ManifestSet) -> None:
    pod, own = form.pod["securityContext"], form.container["securityContext"]
    assert (pod["runAsNonRoot"], pod["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert (own["allowPrivilegeEscalation"], own["readOnlyRootFilesystem"]) == (False, True)
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert form.pod["automountServiceAccountToken"] is False
    assert set(form.of_kind("NetworkPolicy")["spec"]["policyTypes"]) == {"Ingress", "Egress"}


@each_form
def test_the_pod_fits_the_image(form: ManifestSet) -> None:
    image, context = read_stages(DEPLOY / "Containerfile")[1], form.pod["securityContext"]
    assert arguments_of(image, "USER") == [f"{context['runAsUser']}:{context['runAsGroup']}"]
    assert form.container["image"].endswith(f"/holodeck:{package.__version__}")
    assert arguments_of(image, "EXPOSE") == [str(form.container["ports"][0]["containerPort"])]


@each_form
def test_the_pod_has_time_to_drain_and_memory_for_its_requests(form: ManifestSet) -> None:
    limits = yaml.safe_load(form.gateway)["limits"]
    pause = form.container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["", "0"])[1]
    assert form.pod["terminationGracePeriodSeconds"] > int(pause) + limits["drain_seconds"] + CONNECTIONS_GRACE
    memory = int(form.container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20
    assert 8 * limits["bodies_bytes"] + (256 << 20) <= memory


@each_form
def test_what_is_selected_by_label_is_the_pod(form: ManifestSet) -> None:
    labels = form.of_kind("StatefulSet")["spec"]["template"]["metadata"]["labels"]
    assert form.of_kind("Service")["spec"]["selector"] == labels
    assert form.of_kind("StatefulSet")["spec"]["selector"]["matchLabels"] == labels
    assert form.of_kind("NetworkPolicy")["spec"]["podSelector"]["matchLabels"] == labels
    assert form.of_kind("StatefulSet")["spec"]["serviceName"] == form.of_kind("Service")["metadata"]["name"]


def test_one_gateway_is_one_pod_that_keeps_its_file_on_a_volume() -> None:
    assert ONE.of_kind("StatefulSet")["spec"]["replicas"] == 1
    mounts = {mount["mountPath"] for mount in ONE.container["volumeMounts"] if not mount.get("readOnly")}
    assert mounts == {"/var/lib/holodeck", "/tmp"}
    assert yaml.safe_load(ONE.gateway)["storage"]["url"].startswith("sqlite:////var/lib/holodeck/")


def test_the_configured_gateway_answers_its_probes_refuses_strangers_and_ends_on_sigterm(tmp_path: Path) -> None:
    file, data = ONE.mount_config(tmp_path / "etc"), tmp_path / "data"
    data.mkdir()
    env = VARIABLES | {"HOLODECK_STORAGE__URL": f"sqlite:///{data / 'holodeck.db'}"}
    env["HOLODECK_LISTEN__ALLOWED_HOSTS"] = '["holodeck"]'
    with serve_as_image(file, env, tmp_path) as gateway:
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            request = ONE.container[probe]["httpGet"]
            assert set(request) == {"path", "port"}
            assert gateway.status(request["path"], {"Host": "10.1.2.3:8080"}) == 200, "as a kubelet asks"
        assert gateway.status("/v1/models", {"Host": "10.1.2.3:8080"}) == 421
        service = {"Host": ONE.of_kind("Service")["metadata"]["name"]}
        assert gateway.status("/v1/models", service) == 401
        assert gateway.status("/v1/models", service | {"Authorization": f"Bearer {KEY}"}) == 200
        gateway.process.send_signal(signal.SIGTERM)
        assert gateway.process.wait(TIMEOUT) == 0
    assert (data / "holodeck.db").exists()

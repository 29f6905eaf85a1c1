"""Services have no terminal: whatever starts a gateway also says that its file is trusted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from deploy.containerfile import env_variables, read_stages
from deploy.image_gateway import serve_as_image
from deploy.manifests import DEPLOY, MANIFEST_SETS, ONE, VARIABLES
from holodeck_command import run_holodeck

IMAGE = read_stages(DEPLOY / "Containerfile")[1]
COMPOSE = yaml.safe_load((DEPLOY / "compose" / "docker-compose.yaml").read_text())["services"]
PAGE = (DEPLOY.parent / "docs" / "operate" / "deploy.md").read_text()
REFUSAL = "this file is not trusted on this machine"
ALLOWS = re.compile(r"all|sha256:[0-9a-f]{64}")


def starts() -> dict[str, Mapping[str, str]]:
    """Everything that starts `holodeck serve`, with its variables: its own before those of the image."""
    image = env_variables(IMAGE)
    found: dict[str, Mapping[str, str]] = {"image": image}
    found |= {
        f"compose {name}": image | service.get("environment", {})
        for name, service in COMPOSE.items()
        if service["image"].startswith("holodeck:")
    }
    for form in MANIFEST_SETS:
        own = {variable["name"]: variable.get("value", "") for variable in form.container.get("env", ())}
        found[f"kubernetes {form.name}"] = image | own
    unit = dict(re.findall(r"^Environment=(\w+)=(.*)$", PAGE, re.MULTILINE))
    return found | {"systemd": unit}


@pytest.mark.parametrize("start", sorted(starts()))
def test_whatever_starts_a_gateway_says_that_its_file_is_trusted(start: str) -> None:
    assert ALLOWS.fullmatch(starts()[start].get("HOLODECK_TRUST", ""))


def test_no_manifest_is_left_out() -> None:
    assert len(starts()) == 1 + 2 + 2 + 1
    files = [path for path in DEPLOY.rglob("*.yaml") if re.search(r"image: .*\bholodeck:", path.read_text())]
    assert len(files) == 3, "a new manifest belongs into `starts`"


def test_without_the_variable_the_gateway_is_refused_and_with_its_digest_it_serves(tmp_path: Path) -> None:
    folder = tmp_path / "etc"
    file = ONE.mount_config(folder)
    env = VARIABLES | {"HOLODECK_STORAGE__URL": f"sqlite:///{folder}/holodeck.db"}
    refused = run_holodeck("serve", file, cwd=folder, env=env | {"HOLODECK_TRUST": ""})
    assert (refused.returncode, REFUSAL in refused.stderr, REFUSAL in PAGE) == (2, True, True)
    [digest] = re.findall(r"HOLODECK_TRUST=(sha256:[0-9a-f]{64})", refused.stderr)
    with serve_as_image(file, env | {"HOLODECK_TRUST": digest}, folder) as gateway:
        assert gateway.status("/healthz", {}) == 200

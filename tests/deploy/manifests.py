"""The two forms of the Kubernetes manifests, read as data, and their config volume as a kubelet lays it out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from holodeck.gateway.auth.callers import hash_key

DEPLOY = Path(__file__).parents[2] / "deploy"
KEY = "hd-ops"
VARIABLES = {"OPS_KEY_HASH": hash_key(KEY), "DOCS_MCP_TOKEN": "t0ken"}


def read_documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


class ManifestSet:
    """A folder of manifests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files = sorted((DEPLOY / "kubernetes" / name).iterdir())
        self.all = [document for path in self.files for document in read_documents(path)]
        self.pod: dict[str, Any] = self.of_kind("StatefulSet")["spec"]["template"]["spec"]
        (self.container,) = self.pod["containers"]
        self.gateway: str = self.of_kind("ConfigMap")["data"]["gateway.yaml"]
        self.secrets = {each["metadata"]["name"]: each for each in self.all if each["kind"] == "Secret"}

    def of_kind(self, kind: str) -> dict[str, Any]:
        (found,) = [document for document in self.all if document["kind"] == kind]
        return found

    def mount_config(self, folder: Path, files: Mapping[str, str] | None = None) -> Path:
        """The config volume: each name is a link into a folder that can be swapped as a whole. `files`: its secrets."""
        data = folder / "..2026"
        for source in self.pod["volumes"][0]["projected"]["sources"]:
            if "secret" in source:
                for item in source["secret"]["items"]:
                    assert item["key"] in self.secrets[source["secret"]["name"]]["stringData"]
                    _write(data / item["path"], (files or {}).get(item["key"], _SECRETS.get(item["key"], "k3y")) + "\n")
            else:
                assert source["configMap"]["name"] == self.of_kind("ConfigMap")["metadata"]["name"]
                _write(data / "gateway.yaml", self.gateway)
        (folder / "..data").symlink_to(data.name)
        for path in data.iterdir():
            (folder / path.name).symlink_to(f"..data/{path.name}")
        return folder / "gateway.yaml"


_SECRETS = {"database-url": "postgresql://me:k3y@database/holodeck", "seal-key": "s3al" * 8}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


ONE, MANY = ManifestSet("one"), ManifestSet("many")
MANIFEST_SETS = (ONE, MANY)

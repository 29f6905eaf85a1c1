"""The bill of materials of a release, as CycloneDX JSON: what an installation brings, at the locked versions.

Python packages are those that `holodeck-engine` needs with all its extras, as far as `requirements/dev.lock` has them;
those that only an extra needs are optional. npm packages are those whose code is in the console.
"""

from __future__ import annotations

import base64
import json
import re
import uuid
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

_DISTRIBUTION = "holodeck-engine"
_LOCKED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^ ;\\]+)", re.MULTILINE)
# It makes the console, and none of its code is in it.
_BUILD_TOOLS = ("esbuild",)


def build_sbom(sources: Path, *, version: str, built: int) -> str:
    """Return the document for the sources of a release; the same sources and time give the same text."""
    components = [*_list_python(sources / "requirements/dev.lock"), *_list_npm(sources / "console/package-lock.json")]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, built, components]))}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(built, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application",
                "name": _DISTRIBUTION,
                "version": version,
                "purl": f"pkg:pypi/{_DISTRIBUTION}@{version}",
                "licenses": [{"license": {"id": "MIT"}}],
            },
        },
        "components": components,
    }
    return json.dumps(document, indent=2) + "\n"


def _list_python(lock: Path) -> Iterator[dict[str, Any]]:
    locked = {str(canonicalize_name(name)): version for name, version in _LOCKED.findall(lock.read_text())}
    needed = _walk(_DISTRIBUTION, ())
    extras = {extra for line in requires(_DISTRIBUTION) or () for extra in re.findall(r"extra == ['\"](\w+)", line)}
    for name in sorted(_walk(_DISTRIBUTION, sorted(extras)) & locked.keys()):
        yield {
            "type": "library",
            "name": name,
            "version": locked[name],
            "scope": "required" if name in needed else "optional",
            "purl": f"pkg:pypi/{name}@{locked[name]}",
        }


def _walk(name: str, extras: Iterable[str], seen: set[tuple[str, str]] | None = None) -> set[str]:
    """Return the names of all packages that a package needs here with these extras."""
    seen = set() if seen is None else seen
    found: set[str] = set()
    try:
        lines = requires(name) or []
    except PackageNotFoundError:
        return found
    for extra in ("", *extras):
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                below = canonicalize_name(requirement.name)
                found |= {below} | _walk(below, requirement.extras, seen)
    return found


def _list_npm(lock: Path) -> Iterator[dict[str, Any]]:
    packages = json.loads(lock.read_text())["packages"]
    for path, package in sorted(packages.items()):
        name = path.rpartition("node_modules/")[2]
        is_tool = name in _BUILD_TOOLS or name.startswith("@esbuild/")
        if name and not is_tool and not any(package.get(kind) for kind in ("dev", "optional", "devOptional")):
            algorithm, _, digest = package["integrity"].partition("-")
            hashed = {"alg": algorithm.upper().replace("SHA", "SHA-"), "content": base64.b64decode(digest).hex()}
            yield {
                "type": "library",
                "name": name,
                "version": package["version"],
                "scope": "required",
                "hashes": [hashed],
                "licenses": [{"license": {"id": package["license"]}}],
                "purl": f"pkg:npm/{name.replace('@', '%40')}@{package['version']}",
            }

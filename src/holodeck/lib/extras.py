"""Optional extras of the installation: whether one is installed, and the command that installs it.

No package of an extra is imported here.
"""

from __future__ import annotations

import shlex
import sys
from importlib import metadata
from importlib.util import find_spec
from typing import Literal
from urllib.parse import unquote, urlsplit

DISTRIBUTION = "holodeck-engine"
Extra = Literal["durable", "local", "otel", "postgres"]

_MODULES: dict[Extra, tuple[str, ...]] = {
    "durable": ("dbos",),
    "local": ("xllamacpp",),
    "otel": ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"),
    "postgres": ("asyncpg",),
}


def is_installed(extra: Extra) -> bool:
    """Return whether every package of the extra can be imported."""
    try:
        return all(find_spec(module) is not None for module in _MODULES[extra])
    except ModuleNotFoundError:
        # The parent of a dotted name is absent.
        return False


def install_hint(extra: Extra) -> str:
    """Return the command that adds the extra to this installation, with its installer and from its origin."""
    python = shlex.quote(sys.executable)
    install = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f"{install} {_requirement(extra)}"


def _requirement(extra: Extra) -> str:
    """Return this distribution with the extra, from where it was installed: a folder, a file, or an index."""
    url, is_editable = _origin()
    if not url:
        return shlex.quote(f"{DISTRIBUTION}[{extra}]")
    path = unquote(urlsplit(url).path)
    if path.endswith((".whl", ".tar.gz")) or not url.startswith("file:"):
        return shlex.quote(f"{DISTRIBUTION}[{extra}] @ {url}")
    return ("-e " if is_editable else "") + shlex.quote(f"{path}[{extra}]")


def _origin() -> tuple[str, bool]:
    """Return the URL that this distribution was installed from (PEP 610), and whether its folder is used in place."""
    import json

    try:
        text = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        # It runs from a folder on the Python path.
        return "", False
    origin = json.loads(text) if text else {}
    return str(origin.get("url", "")), bool(origin.get("dir_info", {}).get("editable"))

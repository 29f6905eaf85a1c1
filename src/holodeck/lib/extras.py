"""The extras of an installation: whether one is here, and how to get it. Nothing of an extra is imported."""

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
    """Whether every package of the extra can be imported."""
    try:
        return all(find_spec(module) is not None for module in _MODULES[extra])
    except ModuleNotFoundError:
        # The parent of a dotted name is absent.
        return False


def install_hint(extra: Extra) -> str:
    """The command that adds the extra to this very installation, whichever program made it and from where."""
    python = shlex.quote(sys.executable)
    install = f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
    return f"{install} {_requirement(extra)}"


def _requirement(extra: Extra) -> str:
    """This distribution with the extra, from where it was installed: a folder, a file, or an index."""
    url, is_editable = _origin()
    if not url:
        return shlex.quote(f"{DISTRIBUTION}[{extra}]")
    path = unquote(urlsplit(url).path)
    if path.endswith((".whl", ".tar.gz")) or not url.startswith("file:"):
        return shlex.quote(f"{DISTRIBUTION}[{extra}] @ {url}")
    return ("-e " if is_editable else "") + shlex.quote(f"{path}[{extra}]")


def _origin() -> tuple[str, bool]:
    """The URL that this distribution was installed from (PEP 610), and whether its folder is used in place."""
    import json

    try:
        told = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # it runs from a folder that is on the path
        return "", False
    origin = json.loads(told) if told else {}
    return str(origin.get("url", "")), bool(origin.get("dir_info", {}).get("editable"))

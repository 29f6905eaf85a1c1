"""The npm packages that tests start with npx, as packages that a person has installed globally.

npx is started outside the folder of an agent, so it does not take the packages of that folder. It takes those of the
global prefix instead of fetching them; npm only looks up what a package is, in its cache after the first time.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ROOT / ".cache/servers/node_modules"
NPM_VARIABLES: Mapping[str, str] = {
    "npm_config_prefix": str(PACKAGES.parent),
    "npm_config_cache": str(ROOT / ".cache/npm"),
    "npm_config_prefer_offline": "true",
}


def install_servers() -> None:
    """Lay the packages out as npm does with global ones, and set the variables that lead npx to them."""
    (PACKAGES.parent / "lib").mkdir(parents=True, exist_ok=True)
    for link, target in (("lib/node_modules", "../node_modules"), ("bin", "node_modules/.bin")):
        with suppress(FileExistsError):
            (PACKAGES.parent / link).symlink_to(target)
    os.environ.update(NPM_VARIABLES)

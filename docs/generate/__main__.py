"""Write every generated page, and name those that changed."""

from __future__ import annotations

import sys
from os.path import normpath
from pathlib import Path

from generate.pages import PAGES

DOCS = Path(__file__).parents[1]


def main() -> None:
    """Write the pages whose text differs from the file."""
    for page, build_page in PAGES.items():
        path, text = DOCS / page, build_page()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"wrote {normpath(f'docs/{page}')}\n")


main()

"""How Sphinx builds the pages of this folder: `make docs` writes them to build/docs."""

from __future__ import annotations

import sys
from pathlib import Path

import holodeck

sys.path.insert(0, str(Path(__file__).parent))

project = "HoloDeck"
author = "the HoloDeck contributors"
release = version = holodeck.__version__

extensions = ["myst_parser", "generate.llms"]
exclude_patterns = ["generate"]
# A heading is linked to by the name that it has on GitHub too.
myst_heading_anchors = 4
# A `mermaid` block stays readable text.
suppress_warnings = ["misc.highlighting_failure"]

html_theme = "furo"
html_title = f"HoloDeck {release}"
html_show_sphinx = False
html_show_copyright = False
# `generate.llms` writes the Markdown of each page.
html_copy_source = False
html_use_index = False

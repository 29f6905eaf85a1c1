"""How Sphinx builds the pages of this folder: `make docs` writes them to build/docs."""

from __future__ import annotations

import sys
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

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
html_logo = html_favicon = "site/logo.svg"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_search_scorer = str(Path(__file__).parent / "site/scorer.js")
html_theme_options: dict[str, Any] = {
    "light_css_variables": {"color-brand-primary": "#0b6e6e", "color-brand-content": "#0b6e6e"},
    "dark_css_variables": {"color-brand-primary": "#5cc8c8", "color-brand-content": "#5cc8c8"},
}
# A link to the source on each page, as soon as `project.urls` of pyproject.toml names one.
_urls = dict(line.split(", ", 1) for line in metadata("holodeck-engine").get_all("Project-URL", []))
if "Source" in _urls:
    html_theme_options |= {"source_repository": _urls["Source"], "source_branch": "main", "source_directory": "docs/"}
html_show_sphinx = False
html_show_copyright = False
# `generate.llms` writes the Markdown of each page.
html_copy_source = False
html_use_index = False

"""The reference pages, generated from the code: `cd docs && python -m generate` writes them.

A module per page has `build_page() -> str`, and stands in `pages.PAGES`. Pages are plain Markdown: they are read on
GitHub, in a terminal and on the site. `console_types` writes a module of the console in the same way.
"""

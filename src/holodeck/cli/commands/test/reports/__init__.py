"""Reports of `holodeck test` as files: JSON, JUnit XML, Markdown, and a page for a browser."""

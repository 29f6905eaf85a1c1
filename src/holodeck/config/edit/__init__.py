"""Edits of configuration files as text: one entry changes, and every other byte stays as it was.

An *entry* is a name and its value in a mapping, an *item* an element of a list. `json_entries`, `yaml_entries` and
`toml_entries` find the places with a parser, and return the text with the change. `splices` has what they share: the
replacement of ranges, and the check that the new text parses to exactly the data that was meant. A text that cannot be
changed safely is refused with `ConfigError`. `file_edit` alone reads and writes files.
"""

"""Edits of configuration files as text: one entry changes, and every other byte stays as it was.

Here an *entry* is a name with its value in a mapping, and an *item* an element of a list; either can be what commands
call the entry of a server or of a key. `json_entries`, `yaml_entries` and `toml_entries` find the places with a parser,
and return the text with the change. `splices` has what they share: the replacement of ranges, and the check that the
new text parses to exactly the data that was meant. A text that cannot be changed safely is refused with `ConfigError`.
`file_edit` alone reads and writes files.
"""

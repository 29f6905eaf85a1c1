"""The formats of files with server entries, each with its parser and its edits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holodeck.config.edit.json_entries import format_json, remove_json_entry, set_json_entry
from holodeck.config.edit.toml_entries import format_toml, remove_toml_entry, set_toml_entry
from holodeck.config.edit.yaml_entries import format_yaml, remove_yaml_entry, set_yaml_entry
from holodeck.config.jsonc import parse_jsonc
from holodeck.config.mcp_json.toml_reader import parse_toml
from holodeck.config.yaml_reader import Document, KeyPath, parse_document
from holodeck.lib.record import record


@record
class EntryFormat:
    """The functions for files of one format. See `set_json_entry` and `remove_json_entry` for the edits."""

    parse: Callable[[str, str], Document]
    """From the text and the name for messages. Raises `ConfigError`."""
    set_entry: Callable[[str, KeyPath, str, Mapping[str, Any], str], str]
    remove_entry: Callable[[str, KeyPath, str, str], str]
    format_entries: Callable[[KeyPath, Mapping[str, Mapping[str, Any]]], str]
    """A file with nothing but these entries, for a person to copy from."""


def _nest(list_path: KeyPath, entries: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = dict(entries)
    for part in reversed(list_path):
        nested = {str(part): nested}
    return nested


FORMATS: Mapping[str, EntryFormat] = {
    "json": EntryFormat(
        parse=parse_jsonc,
        set_entry=set_json_entry,
        remove_entry=remove_json_entry,
        format_entries=lambda path, entries: format_json(_nest(path, entries)) + "\n",
    ),
    "yaml": EntryFormat(
        parse=parse_document,
        set_entry=set_yaml_entry,
        remove_entry=remove_yaml_entry,
        format_entries=lambda path, entries: format_yaml(_nest(path, entries)),
    ),
    "toml": EntryFormat(
        parse=parse_toml,
        set_entry=set_toml_entry,
        remove_entry=remove_toml_entry,
        format_entries=lambda path, entries: "\n".join(
            format_toml(entry, (*path, name)) for name, entry in entries.items()
        ),
    ),
}

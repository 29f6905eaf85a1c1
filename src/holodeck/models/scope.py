"""The scope of a caller, as a gateway file says it: `allow` of a key, and `allow` of tokens by a claim.

A scope has one list of patterns for each kind of thing. A pattern is a name or a glob, with `!` in front where it
denies. `gateway/auth/scope.py` compiles and matches them.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from holodeck.models.file_model import FileModel, NonEmpty, Violation, quote_value, validate_with_rules

# In front of a pattern that denies.
DENIAL_MARK = "!"
# Patterns of one list: far more than a person writes, and few enough to match for each new tool.
MAX_PATTERNS = 1_000

# Lists whose patterns name a server and something of it.
_SPLIT_KEYS = ("tools", "prompts")

Patterns = Annotated[list[NonEmpty], Field(max_length=MAX_PATTERNS)]


class Scope(FileModel):
    """What a caller may use, by names and globs. A pattern that begins with `!` denies, and wins over all others.

    A list that is absent allows everything of its kind, an empty one nothing, one with only denials all the rest.
    """

    models: Patterns | None = None
    """Models that the caller may use, by their public names. Absent: all. E.g. `[small, '!small-old']`, not `small`."""
    agents: Patterns | None = None
    """Agents that the caller may use, by their public names. Absent: all. E.g. `['*']`, not `['']`."""
    servers: Patterns | None = None
    """MCP servers that the caller may use, those of agents included. Absent: all. E.g. `['*']`, not `['!']`."""
    tools: Patterns | None = None
    """Tools of MCP servers that the caller may use, as `server.tool` with the server's own name of the tool.

    Absent: all of the servers that it may use. Reading the resources of a server is its tool `read_resource`. E.g.
    `['*.get_*', '!*.get_secret']`, not `[github]`.
    """
    prompts: Patterns | None = None
    """Prompts of MCP servers that the caller may use, as `server.prompt` with the server's own name of the prompt.

    Absent: all of the servers that it may use; none where `tools` names tools that are allowed. E.g.
    `[github.review_*]`, not `[github]`.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _check_rules(cls, data: Any, handler: ModelWrapValidatorHandler[Scope]) -> Scope:
        return validate_with_rules(cls.__name__, data, handler, _check_patterns)


class ClaimScopes(FileModel):
    """What tokens may use by the values of one of their claims."""

    claim: NonEmpty
    """Claim with the values: a text or a list of texts, such as `groups`. `scope` and `scp` are split at spaces. E.g.
    `groups`, not `''`."""
    values: Annotated[dict[str, Scope], Field(min_length=1)]
    """By value of the claim, what its tokens may use. A token with several values may use what any of them allows. E.g.
    `{admins: {}, readers: {tools: ['*.get_*']}}`, not `[admins]`."""


def split_pattern(pattern: str) -> tuple[bool, str]:
    """Return whether a pattern denies, and its name or glob."""
    return pattern.startswith(DENIAL_MARK), pattern.removeprefix(DENIAL_MARK)


def split_tool_pattern(glob: str) -> tuple[str, str]:
    """Return the globs of the server and of the tool in `server.tool`.

    Names of servers have no dots, those of tools may.
    """
    server, _, tool = glob.partition(".")
    return server, tool


def is_split(key: str) -> bool:
    """Return whether the patterns of a list are of the form `server.tool`."""
    return key in _SPLIT_KEYS


def _is_tool_pattern(pattern: str) -> bool:
    return all(split_tool_pattern(split_pattern(pattern)[1]))


def _check_patterns(data: dict[str, Any]) -> list[Violation]:
    found = []
    for key in Scope.model_fields:
        listed = data.get(key)
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, str) and entry.strip() == DENIAL_MARK:
                found.append(
                    Violation(key=key, message=f"{quote_value(entry)} denies nothing: a name or a glob follows")
                )
            elif is_split(key) and isinstance(entry, str) and not _is_tool_pattern(entry.strip()):
                mark = DENIAL_MARK if split_pattern(entry)[0] else ""
                server = split_tool_pattern(split_pattern(entry)[1])[0] or "*"
                noun = key.removesuffix("s")
                fix = f"Write server.{noun}, such as '{mark}{server}.*' for all {key}."
                found.append(Violation(key=key, message=f"{quote_value(entry)} does not name a {noun}", fix=fix))
    return found

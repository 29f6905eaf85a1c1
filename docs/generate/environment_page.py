"""`reference/environment.md`: the variables that HoloDeck reads, and those that MCP servers inherit."""

from __future__ import annotations

from generate.markdown import NOTICE, code, join_blocks, table
from holodeck.lib.environment import ENVIRONMENT
from holodeck.models.provider import PROVIDER_SPECS
from holodeck.tools.mcp.transports import stdio

_INTRO = """\
You can set these variables in the shell, in a container or in a service file. A file refers to any other variable by
`${NAME}`; HoloDeck looks for it in the environment first, and then in the `.env` file beside that file."""

_CHILDREN = """\
A server that HoloDeck starts does not see your whole environment, because that may hold keys. It gets the variables of
its `env` and `envFile`, and inherits only these:"""


_MODEL_KEYS = """\
A variable is used if the file has no `api_key`, and only the provider's own hosts get its key."""


def build_page() -> str:
    """Return the page."""
    keys = [
        (code(spec.key_variable), f"Key for {code(f'provider: {provider}')}")
        for provider, spec in PROVIDER_SPECS.items()
        if spec.key_variable
    ]
    sections = ["## Keys of models", _MODEL_KEYS, table(("Variable", "Meaning"), keys)]
    sections += [
        block
        for title, variables in ENVIRONMENT.items()
        for block in (
            f"## {title}",
            table(
                ("Variable", "Meaning", "Default", "Example"),
                ((code(each.name), each.meaning, each.default, code(each.example)) for each in variables),
            ),
        )
    ]
    return join_blocks(["# Environment variables", NOTICE, _INTRO, *sections, *_inherited_blocks()])


def _inherited_blocks() -> list[str]:
    names = sorted(stdio._INHERITED)
    any_case = sorted(stdio._INHERITED_IN_ANY_CASE)
    prefixes = sorted({*stdio._PREFIXES, stdio._NPM_PREFIX})
    marks = ", ".join(code(mark) for mark in sorted(stdio._SECRET_MARKS))
    return [
        "## What MCP servers inherit",
        _CHILDREN,
        ", ".join(code(name) for name in names) + ".",
        "In capital or small letters: " + ", ".join(code(name) for name in any_case) + ".",
        f"Variables that begin with {', '.join(map(code, prefixes))}, unless their name has one of {marks}.",
        "A variable whose value holds a login, such as `http://user:password@proxy`, is withheld; a warning names it.",
        "See also: [agent file](agent-file.md), [gateway file](gateway-file.md), [command line](cli.md).",
    ]

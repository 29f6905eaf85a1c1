"""`reference/cli.md`: every command with its arguments, options, examples and exit codes."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click

from generate.markdown import NOTICE, code, fence, join_blocks, slug, table
from holodeck.cli.main import cli

_INTRO = """\
Every command explains itself: `holodeck COMMAND --help` (or `-h`). `holodeck --version` (or `-V`) prints the version.

Results go to standard output, everything else to standard error, so `holodeck run ... > answer.txt`
stores the answer alone. [Exit codes](exit-codes.md) say how a command ended; [environment variables](environment.md)
change how all of them behave."""

_DEFAULT = re.compile(r" \(default: ([^)]*)\)")


def build_page() -> str:
    """Return the page."""
    commands = list(walk_commands())
    overview = [
        (f"[{code(ctx.command_path)}](#{slug(ctx.command_path)})", ctx.command.get_short_help_str(200))
        for ctx in commands
    ]
    sections = [_section(ctx) for ctx in commands]
    return join_blocks(["# Command line", NOTICE, _INTRO, table(("Command", "What it does"), overview), *sections])


def walk_commands() -> Iterator[click.Context]:
    """Yield a context for each command, a group before its commands."""
    yield from _walk(click.Context(cli, info_name="holodeck"))


def _walk(ctx: click.Context) -> Iterator[click.Context]:
    group = ctx.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        assert command is not None
        below = click.Context(command, info_name=name, parent=ctx)
        yield below
        yield from _walk(below)


def _section(ctx: click.Context) -> str:
    command = ctx.command
    level = "##" if ctx.parent is not None and ctx.parent.parent is None else "###"
    usage = " ".join(command.collect_usage_pieces(ctx))
    shared = _shared_options(ctx)
    above = _shared_options(ctx.parent) if ctx.parent is not None else []
    own = [option for option in _options(command) if option.opts not in [each.opts for each in above]]
    return join_blocks(
        [
            f"{level} {ctx.command_path}",
            inspect.cleandoc(command.help or "").replace("\b\n", ""),
            fence(f"{ctx.command_path} {usage}"),
            _options_table(own),
            f"Every command of `{ctx.command_path}` has these options:" if shared else "",
            _options_table(shared),
            _link_to_shared(ctx.parent) if above and ctx.parent is not None else "",
            *_epilog_blocks(command.epilog or ""),
        ]
    )


def _options(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option) and not option.hidden]


def _shared_options(ctx: click.Context) -> list[click.Option]:
    """Return the options that all commands of a group have with the same meaning; none if there is but one command."""
    group = ctx.command
    if ctx.parent is None or not isinstance(group, click.Group):
        return []
    commands = [group.get_command(ctx, name) for name in group.list_commands(ctx)]
    first, *others = [
        {(tuple(option.opts), option.help): option for option in _options(command)} for command in commands if command
    ]
    return [option for key, option in first.items() if others and all(key in other for other in others)]


def _link_to_shared(group: click.Context) -> str:
    return f"It also has [the options of every `{group.command_path}` command](#{slug(group.command_path)})."


def _options_table(options: list[click.Option]) -> str:
    return table(("Option", "Value", "Default", "Meaning"), map(_option_row, options))


def _option_row(option: click.Option) -> tuple[str, ...]:
    names = ", ".join(code(name) for name in [*option.opts, *option.secondary_opts])
    meaning, default = _DEFAULT.sub("", option.help or ""), _DEFAULT.search(option.help or "")
    return (names, _value(option), default[1] if default else _default(option), meaning)


def _value(option: click.Option) -> str:
    kind = option.type
    if option.is_flag:
        return "flag"
    if isinstance(kind, click.Choice):
        return ", ".join(code(str(choice)) for choice in kind.choices)
    if isinstance(kind, click.IntRange | click.FloatRange):
        name = "whole number" if isinstance(kind, click.IntRange) else "number"
        return f"{name}, {_range(kind)}"
    shown = option.metavar or {"integer": "whole number", "float": "number"}.get(kind.name, kind.name)
    return code(shown) if option.metavar else shown


def _range(kind: click.IntRange | click.FloatRange) -> str:
    low = None if kind.min is None else f"{'above' if kind.min_open else 'from'} {kind.min:g}"
    high = None if kind.max is None else f"{'below' if kind.max_open else 'to'} {kind.max:g}"
    return " ".join(bound for bound in (low, high) if bound)


def _default(option: click.Option) -> str:
    value = option.to_info_dict()["default"]
    if option.required:
        return "required"
    if value in (None, "", ()) or option.is_flag or isinstance(value, Path):
        return "-"
    return code(str(value))


def _epilog_blocks(epilog: str) -> Iterator[str]:
    """Yield the paragraphs below the options: a heading with indented lines is a block of examples."""
    for paragraph in re.split(r"\n\s*\n", epilog.replace("\b\n", "")):
        title, _, rest = paragraph.partition("\n")
        if rest and rest.startswith("  "):
            yield title
            yield fence(textwrap.dedent(rest))
        else:
            yield " ".join(paragraph.split())

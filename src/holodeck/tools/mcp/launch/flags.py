"""Parses command-line flags as `docker` and `uvx` do: `--flag value`, `--flag=value`, and combined letters (`-it`)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from holodeck.lib.record import record


@record
class Option:
    """One flag among the arguments."""

    name: str
    """With its dashes and without its value: `--volume`, or `-v` also when it was written as `-iv/:/host`."""
    value: str | None
    index: int
    """The argument that holds the flag."""
    is_known: bool = True


@record
class Options:
    """The flags before the first positional argument."""

    found: tuple[Option, ...]
    end: int
    """The index of that argument; the number of arguments when there is none."""

    def values(self, *names: str) -> list[str]:
        """Return the values of these flags, in order."""
        return [option.value or "" for option in self.found if option.name in names]

    def has_any(self, *names: str) -> bool:
        return any(option.name in names for option in self.found)


def scan(args: Sequence[str], start: int, *, switches: Collection[str], valued: Collection[str]) -> Options:
    """Parse the flags from `start` to the first positional argument or `--`. An unknown flag is read as a switch."""
    found: list[Option] = []
    at = start
    while at < len(args):
        arg = args[at]
        if arg == "--":
            return Options(found=tuple(found), end=at + 1)
        if len(arg) == 1 or not arg.startswith("-"):
            break
        options = list(
            _scan_long_flag(arg, at, switches, valued)
            if arg.startswith("--")
            else _scan_letters(arg, at, switches, valued)
        )
        last = options[-1]
        at += 1
        if last.name in valued and last.value is None:
            options[-1] = Option(name=last.name, value=args[at] if at < len(args) else None, index=last.index)
            at += 1
        found += options
    return Options(found=tuple(found), end=min(at, len(args)))


def _scan_long_flag(arg: str, index: int, switches: Collection[str], valued: Collection[str]) -> Iterator[Option]:
    name, equals, value = arg.partition("=")
    yield Option(name=name, value=value if equals else None, index=index, is_known=name in switches or name in valued)


def _scan_letters(arg: str, index: int, switches: Collection[str], valued: Collection[str]) -> Iterator[Option]:
    letters = arg[1:]
    for position, letter in enumerate(letters):
        name, rest = f"-{letter}", letters[position + 1 :]
        if name in valued:
            yield Option(name=name, value=rest.removeprefix("=") if rest else None, index=index)
            return
        is_known = name in switches
        if rest.startswith("=") or not is_known:
            yield Option(name=name, value=rest.removeprefix("=") or None, index=index, is_known=is_known)
            return
        yield Option(name=name, value=None, index=index)

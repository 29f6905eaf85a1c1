"""The reason why a launch is refused: the argument or variable, what it would do, and how an operator can allow it."""

from __future__ import annotations

import re

from holodeck.lib.record import record

OPT_IN = "if you trust it, write 'allow_unsafe_args: true' on this tool"

# As long as the flags of npx, uvx and docker are.
_FLAG = re.compile(r"(?:--[a-z][a-z-]{0,30}|-[A-Za-z]{1,6})(?=$|=)")


@record
class Refusal:
    """One thing in a tool that could run other code than the server it names."""

    key: tuple[str | int, ...]
    """Its path in the tool, such as `("args", 2)` or `("env", "LD_PRELOAD")`."""
    message: str
    """Names the flag or the variable, never a value: a value may be a secret."""
    fix: str


@record
class LaunchFinding:
    """A refusal by the index of an argument, before the key that the arguments come from is known."""

    index: int | None
    """None when an argument is missing."""
    message: str
    advice: str = "Remove it"

    def to_refusal(self, key: tuple[str | int, ...]) -> Refusal:
        return Refusal(key=key, message=self.message, fix=f"{self.advice}, or {OPT_IN}.")


def quote_flag(flag: str) -> str:
    """Quote an unknown flag for a message. Text that does not look like a flag is not shown: it may be a value."""
    match = _FLAG.match(flag)
    return f"'{match[0]}'" if match else "this argument"

"""Why a launch is refused: which argument or variable, what it would do, and how a person may allow it all the same."""

from __future__ import annotations

import re
from dataclasses import dataclass

OPT_IN = "if you trust it, write 'allow_unsafe_args: true' on this tool"


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """One thing in a tool that could run other code than the server it names."""

    key: tuple[str | int, ...]
    """Where it stands in the tool, such as `("args", 2)` or `("env", "LD_PRELOAD")`."""
    message: str
    """Names the flag or the variable, never a value: a value may have come out of a secret."""
    fix: str


@dataclass(frozen=True, kw_only=True)
class LaunchFinding:
    """A refusal before it is known where the arguments came from."""

    index: int | None
    """Which argument; None when it is what they lack."""
    message: str
    advice: str = "Remove it"

    def to_refusal(self, key: tuple[str | int, ...]) -> Refusal:
        return Refusal(key=key, message=self.message, fix=f"{self.advice}, or {OPT_IN}.")


def quote_flag(flag: str) -> str:
    """An unknown flag as a message may show it. What does not look like a flag's name may be a value: not shown."""
    match = _FLAG.match(flag)
    return f"'{match[0]}'" if match else "this argument"


_FLAG = re.compile(r"(?:--[a-z][a-z-]{0,30}|-[A-Za-z]{1,6})(?=$|=)")  # as long as the flags of the three commands are

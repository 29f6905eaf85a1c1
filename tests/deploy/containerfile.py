"""A container file as its instructions, stage by stage: enough to check what it says where no engine can build it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Instruction:
    """One instruction, with continued lines joined."""

    word: str
    text: str

    @property
    def exec_form(self) -> list[str]:
        """The arguments of `WORD ["a", "b"]`. Raises for the form that needs a shell."""
        value = json.loads(self.text)
        assert isinstance(value, list)
        return [str(part) for part in value]


Stage = Sequence[Instruction]


def read_stages(path: Path) -> Sequence[Stage]:
    """What stands after each FROM, which is the first instruction of its stage."""
    lines = [line for line in path.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    found: list[list[Instruction]] = []
    for line in joined.splitlines():
        word, _, text = line.partition(" ")
        if word == "FROM":
            found.append([])
        if found:  # ARG may come before the first stage
            found[-1].append(Instruction(word=word, text=text.strip()))
    return found


def arguments_of(stage: Stage, word: str) -> list[str]:
    """The arguments of every instruction of this kind, in order."""
    return [each.text for each in stage if each.word == word]


def copied_paths(stage: Stage) -> list[tuple[list[str], str]]:
    """Sources and destination of every COPY from the build context."""
    words = [text.split() for text in arguments_of(stage, "COPY") if not text.startswith("--from")]
    return [(parts[:-1], parts[-1]) for parts in words]


def env_variables(stage: Stage) -> dict[str, str]:
    """What ENV sets."""
    return dict(part.split("=", 1) for text in arguments_of(stage, "ENV") for part in text.split())

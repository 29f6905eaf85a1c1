"""Examples of errors."""

from __future__ import annotations

from generate.python_examples.example import Example

MODULE = "holodeck"
PLACE = 60

EXAMPLES = (
    Example(
        title="Handle errors",
        about=(
            "`ConfigError` carries every problem of a file at once. `HoloDeckError` is the base of all errors that "
            "are not bugs. A run that fails raises nothing: its result has the status `failed` and the `error`."
        ),
        names=("ConfigError", "HoloDeckError"),
        code="""\
from pathlib import Path

from holodeck import ConfigError, HoloDeckError, load_agent

Path("broken.yaml").write_text("name: broken\\nmax_turns: 0\\nmodle: {provider: rehearsal}\\n")
try:
    load_agent("broken.yaml")
except ConfigError as error:
    for problem in error.problems:
        print(problem.where, problem.message, problem.fix)
    print(isinstance(error, HoloDeckError))""",
        output="""\
broken.yaml:2:1 'max_turns' must be at least 1
broken.yaml:3:1 unknown key 'modle' Did you mean 'model'?
True""",
    ),
)

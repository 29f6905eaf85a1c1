"""The program of `schema_worker`: it is alone in its process, so that a check which does not end can be killed.

Each line of input is `{"slot": ..., "schema": ..., "value": ...}` and is answered with `{"violations": [[path, text]]}`
or `{"error": ...}`; a slot keeps its schema until it is given another. It needs nothing of holodeck, fetches nothing,
and starts without the caller's environment.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

_MAX_MEMORY = 1024 * 1024 * 1024
_MAX_MESSAGE = 300
_MAX_VIOLATIONS = 5


def main() -> None:
    """Answer until the input ends."""
    import jsonschema_rs
    import orjson

    _limit_memory()
    validators: dict[int, Any] = {}
    for line in sys.stdin.buffer:
        asked = orjson.loads(line)
        slot = asked["slot"]
        try:
            if "schema" in asked:
                validators[slot] = None  # unless it turns out to be one
                validators[slot] = jsonschema_rs.validator_for(asked["schema"], offline=True, validate_formats=False)
            answer: dict[str, Any] = {"violations": _find_violations(validators[slot], asked["value"])}
        except Exception as error:  # whatever is wrong with the schema, the next line is about another
            answer = {"error": str(error).partition("\n")[0][:_MAX_MESSAGE]}
        sys.stdout.buffer.write(orjson.dumps(answer) + b"\n")
        sys.stdout.buffer.flush()


def _find_violations(validator: Any, value: Any) -> list[tuple[str, str]]:
    if validator is None:
        raise ValueError("it was refused before")
    errors = islice(validator.iter_errors(value), _MAX_VIOLATIONS)
    return [(".".join(map(str, error.instance_path)), error.message[:_MAX_MESSAGE]) for error in errors]


def _limit_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))


if __name__ == "__main__":
    main()

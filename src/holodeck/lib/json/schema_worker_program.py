"""The program that `schema_worker` runs in a separate process, so that a check that does not end can be killed.

Each line of input is `{"slot": ..., "schema": ..., "value": ...}` and is answered with `{"violations": [[path, text]]}`
or `{"error": ...}`. A line without `schema` uses the last schema of its slot. The program imports nothing of holodeck,
makes no network access, limits its own memory, and starts with an empty environment.
"""

from __future__ import annotations

import sys
from itertools import islice
from typing import Any

# Bytes of address space: a hostile schema cannot exhaust the machine.
_MAX_MEMORY = 1024 * 1024 * 1024
# Characters of one message, and violations of one value: as many as the caller shows.
_MAX_MESSAGE = 300
_MAX_VIOLATIONS = 5


def main() -> None:
    """Answer requests until the input ends."""
    import jsonschema_rs
    import orjson

    _limit_memory()
    validators: dict[int, Any] = {}
    for line in sys.stdin.buffer:
        request = orjson.loads(line)
        slot = request["slot"]
        try:
            if "schema" in request:
                # If it is invalid, the slot must not keep the schema before it.
                validators[slot] = None
                validators[slot] = jsonschema_rs.validator_for(request["schema"], offline=True, validate_formats=False)
            answer: dict[str, Any] = {"violations": _find_violations(validators[slot], request["value"])}
        except Exception as error:
            # Any failure belongs to this schema; the next line may be about another one.
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

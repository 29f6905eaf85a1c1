"""The program that checks values against schemas which might not end: it is alone in its process, so it can be killed.

Each line of input is `{"key": ..., "schema": ..., "value": ...}` and is answered with `{"problem": ...}`; the schema
of a key is given once. It needs nothing of holodeck, and starts without the caller's environment.
"""

from __future__ import annotations

import sys
from typing import Any

_MAX_MEMORY = 1024 * 1024 * 1024
_MAX_MESSAGE = 300


def main() -> None:
    """Answer until the input ends."""
    import jsonschema_rs
    import orjson

    _limit_memory()
    validators: dict[str, Any] = {}
    for line in sys.stdin.buffer:
        asked = orjson.loads(line)
        key = asked["key"]
        if "schema" in asked:
            try:
                validators[key] = jsonschema_rs.validator_for(asked["schema"], offline=True, validate_formats=False)
            except Exception as error:
                validators[key] = f"has a schema that cannot be used: {_first_line(error)}"
        sys.stdout.buffer.write(orjson.dumps({"problem": _problem(validators[key], asked["value"])}) + b"\n")
        sys.stdout.buffer.flush()


def _problem(validator: Any, value: Any) -> str | None:
    if isinstance(validator, str):
        return validator
    try:
        error = next(validator.iter_errors(value), None)
    except Exception as error:
        return f"has a schema that cannot be used: {_first_line(error)}"
    return None if error is None else f"does not fit its schema: {error.message[:_MAX_MESSAGE]}"


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:_MAX_MESSAGE]


def _limit_memory() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))


if __name__ == "__main__":
    main()

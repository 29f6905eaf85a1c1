"""Checks an answer against the schema that its server promised, within a time budget; a mismatch is a warning."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import orjson

from holodeck.lib import log
from holodeck.lib.limits import (
    CHECK_BUDGET,
    CHECK_START_BUDGET,
    MAX_CHECKED_BYTES,
    MAX_INLINE_VALUE_BYTES,
    MAX_RAW_SHOWN,
)
from holodeck.lib.process import Process, spawn
from holodeck.tools.mcp.lines import Lines
from holodeck.tools.mcp.schemas import is_cheap

Check = Callable[[Any], str | None]
MISSING = "the tool promises structured content and gave none"
_PROGRAM = Path(__file__).with_name("checker.py")


class OutputChecks:
    """The checks of one server's answers."""

    def __init__(self) -> None:
        self._checks: dict[str, tuple[Mapping[str, Any], Check | None]] = {}
        self._too_slow: dict[str, Mapping[str, Any]] = {}
        self._checker = _Checker()

    async def close(self) -> None:
        await self._checker.close()

    async def problem(self, tool: str, schema: Mapping[str, Any], value: Any) -> str | None:
        """What is wrong with the value, or why it was not checked. Never raises, never takes long."""
        if value is None:
            return MISSING
        try:
            encoded = orjson.dumps(value)
        except (TypeError, ValueError):
            return "the structured content was not checked: it is nested too deeply"
        check = self._check(tool, schema)
        if check is not None and len(encoded) <= MAX_INLINE_VALUE_BYTES:
            problem = check(value)
        elif len(encoded) > MAX_CHECKED_BYTES:
            problem = f"was not checked: it has {len(encoded)} bytes"
        else:
            problem = await self._elsewhere(tool, schema, encoded)
        return f"the structured content {problem}" if problem else None

    def _check(self, tool: str, schema: Mapping[str, Any]) -> Check | None:
        """The check to make here and now, if the schema allows that."""
        known = self._checks.get(tool)
        if known is None or known[0] is not schema:
            known = (schema, _compiled(schema) if is_cheap(schema) else None)
            self._checks[tool] = known
        return known[1]

    async def _elsewhere(self, tool: str, schema: Mapping[str, Any], encoded: bytes) -> str | None:
        if self._too_slow.get(tool) is schema:
            return "was not checked: its schema took too long before"
        try:
            return await self._checker.problem(tool, schema, encoded)
        except TimeoutError:
            self._too_slow[tool] = schema
            log.warning("mcp.schema_too_slow", tool=tool, budget=CHECK_BUDGET)
            return f"was not checked: its schema took more than {CHECK_BUDGET:g} s"
        except OSError as error:
            log.warning("mcp.checker_failed", tool=tool, error=error)
            return "was not checked: the checking process could not run"


class _Checker:
    """The process that checks, started when it is first needed and killed when it takes too long."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._process: Process | None = None
        self._answer: asyncio.Future[bytes | bytearray] | None = None
        self._given: dict[str, Mapping[str, Any]] = {}

    async def problem(self, key: str, schema: Mapping[str, Any], encoded: bytes) -> str | None:
        """Raises TimeoutError when the budget is used up, OSError when there is no process to ask."""
        async with self._turn:
            process = await self._running()
            schema_part = b"" if self._given.get(key) is schema else b'"schema":' + orjson.dumps(schema) + b","
            line = b'{"key":' + orjson.dumps(key) + b"," + schema_part + b'"value":' + encoded + b"}\n"
            self._given[key] = schema
            try:
                found = await self._asked(process, line, CHECK_BUDGET)
            except BaseException:
                await self.close()
                raise
            problem = orjson.loads(found)["problem"]
            return str(problem) if problem is not None else None

    async def close(self) -> None:
        process, self._process = self._process, None
        self._given = {}
        if process is not None:
            process.kill()
            await process.close()

    async def _running(self) -> Process:
        if self._process is not None and not self._process.exited.is_set():
            return self._process
        await self.close()
        lines = Lines(limit=MAX_CHECKED_BYTES, on_line=self._answered, on_dropped=lambda *_: None, on_end=self._ended)
        argv = [sys.executable, "-I", str(_PROGRAM)]
        self._process = await spawn(argv, env={}, cwd="/", stdout=lines, stdin=asyncio.BaseProtocol())
        # Its start is not the schema's fault, so it has a budget of its own.
        await self._asked(self._process, b'{"key":"","schema":true,"value":null}\n', CHECK_START_BUDGET)
        return self._process

    async def _asked(self, process: Process, line: bytes, budget: float) -> bytes | bytearray:
        self._answer = asyncio.get_running_loop().create_future()
        process.stdin.write(line)
        async with asyncio.timeout(budget):
            return await self._answer

    def _answered(self, line: bytes | bytearray) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(line)

    def _ended(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(OSError("the checking process ended"))


def _compiled(schema: Mapping[str, Any]) -> Check | None:
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(dict(schema), offline=True, validate_formats=False)
    except Exception as error:  # whatever is wrong with a stranger's schema, it is the stranger's
        text = f"has a schema that cannot be used: {str(error).partition(chr(10))[0][:MAX_RAW_SHOWN]}"
        return lambda _: text

    def check(value: Any) -> str | None:
        if validator.is_valid(value):
            return None
        error = next(validator.iter_errors(value), None)
        return f"does not fit its schema: {error.message[:MAX_RAW_SHOWN]}" if error is not None else None

    return check

"""Checks values against untrusted schemas without blocking the event loop.

`SchemaChecker` is the entry point: a cheap schema is compiled once and checked on the event loop, any other is sent to
the checker's `SchemaWorker`. The worker is a separate process, started by the first costly check and killed when a
check takes more than `CHECK_BUDGET`; a schema that exceeded the budget is not checked again. The worker checks one
value at a time, in order of arrival. The owner of a checker closes it, which ends the process.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from holodeck.lib.json.schema import CompiledSchema, SchemaError, Violation, compile_schema, is_cheap_schema
from holodeck.lib.limits import KIB, MAX_CHECKED_BYTES
from holodeck.lib.line_splitter import LineSplitter
from holodeck.lib.system.process import Process, spawn_process

# Seconds for one check in the worker. A schema that needs more is an attack or a mistake.
CHECK_BUDGET = 1.0
# Seconds to wait for other checks of the same worker, some of which may be attacks.
CHECK_QUEUE_BUDGET = 3.0
# Seconds for the worker process to start on a busy machine.
CHECK_START_BUDGET = 10.0
# Violations reported for one value: a model corrects a few at a time.
MAX_VIOLATIONS_SHOWN = 5
# Cheap schemas that stay compiled: more than the tools in use at one time.
MAX_COMPILED_SCHEMAS = 512
# Costly schemas that stay compiled in the worker; a new one replaces the oldest.
MAX_WORKER_SCHEMAS = 64
# Size of a value that is checked on the event loop; a larger one goes to the worker even with a cheap schema.
MAX_INLINE_VALUE_BYTES = 64 * KIB

_PROGRAM = Path(__file__).with_name("schema_worker_program.py")


class UncheckedError(Exception):
    """The value was not checked; the message says why."""


class SchemaChecker:
    """Checks values on the event loop where that takes microseconds, and in a worker process otherwise."""

    def __init__(self, *, in_process: bool = False) -> None:
        """`in_process`: never use a worker; for schemas from files of the user, which are not hostile."""
        self._worker = SchemaWorker()
        self._in_process = in_process
        # Keyed by identity; the value refers to the schema, so that its id is not reused. Only cheap, small schemas.
        self._compiled: dict[int, tuple[Mapping[str, Any], CompiledSchema | SchemaError]] = {}

    async def find_violations(self, schema: Mapping[str, Any], value: Any) -> list[Violation]:
        """Return the first few violations. The schema must not be modified afterwards: it is cached by identity.

        Raises `SchemaError` for a schema that cannot be used, and `UncheckedError` if the value was not checked.
        """
        try:
            encoded = orjson.dumps(value)
        except (TypeError, ValueError):
            raise UncheckedError("it is nested too deeply") from None
        compiled = self._compile(schema)
        if isinstance(compiled, SchemaError):
            raise SchemaError(str(compiled))
        if len(encoded) > MAX_CHECKED_BYTES:
            raise UncheckedError(f"it has {len(encoded)} bytes")
        if compiled is not None and (self._in_process or len(encoded) <= MAX_INLINE_VALUE_BYTES):
            return compiled.find_violations(value, limit=MAX_VIOLATIONS_SHOWN)
        return await self._worker.find_violations(schema, encoded)

    async def close(self) -> None:
        """End the worker. A later check starts another."""
        await self._worker.close()

    def _compile(self, schema: Mapping[str, Any]) -> CompiledSchema | SchemaError | None:
        """Return the compiled schema or its error, or None for a costly schema."""
        known = self._compiled.get(id(schema))
        if known is not None:
            return known[1]
        if not self._in_process and not is_cheap_schema(schema):
            return None
        compiled: CompiledSchema | SchemaError
        try:
            compiled = compile_schema(schema)
        except SchemaError as error:
            compiled = error
        if len(self._compiled) >= MAX_COMPILED_SCHEMAS:
            self._compiled.clear()
        self._compiled[id(schema)] = (schema, compiled)
        return compiled


class SchemaWorker:
    """Owns the worker process, which checks one value at a time."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._process: Process | None = None
        self._answer: asyncio.Future[bytes | bytearray] | None = None
        # The schemas that the process has compiled, by identity, each with its slot number; the oldest first.
        self._slots: dict[int, tuple[int, Mapping[str, Any]]] = {}
        self._too_slow: dict[int, Mapping[str, Any]] = {}

    async def find_violations(self, schema: Mapping[str, Any], encoded: bytes) -> list[Violation]:
        """Return the first few violations.

        Raises `SchemaError` for a schema that cannot be used, `UncheckedError` if there is no answer in time.
        """
        self._refuse_slow(schema)
        try:
            async with asyncio.timeout(CHECK_QUEUE_BUDGET):
                await self._lock.acquire()
        except TimeoutError:
            raise UncheckedError("other checks took too long") from None
        try:
            self._refuse_slow(schema)
            return await self._find_violations(schema, encoded)
        finally:
            self._lock.release()

    async def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        self._slots = {}
        if process is not None:
            process.kill()
            await process.close()

    async def _find_violations(self, schema: Mapping[str, Any], encoded: bytes) -> list[Violation]:
        try:
            process = await self._require_process()
            answer = orjson.loads(await self._ask(process, self._request(schema, encoded), CHECK_BUDGET))
        except TimeoutError:
            await self.close()
            self._remember_slow(schema)
            raise UncheckedError(f"its schema took more than {CHECK_BUDGET:g} s") from None
        except OSError as error:
            await self.close()
            raise UncheckedError(f"the checking process could not run: {error}") from None
        except BaseException:
            await self.close()
            raise
        if "error" in answer:
            raise SchemaError(answer["error"])
        return [Violation(path=path, message=message) for path, message in answer["violations"]]

    async def _require_process(self) -> Process:
        if self._process is not None and not self._process.exited.is_set():
            return self._process
        await self.close()
        lines = LineSplitter(
            limit=MAX_CHECKED_BYTES, on_line=self._set_answer, on_dropped=lambda *_: None, on_end=self._set_end_error
        )
        argv = [sys.executable, "-I", str(_PROGRAM)]
        self._process = await spawn_process(argv, env={}, cwd="/", stdout=lines, stdin=asyncio.BaseProtocol())
        # The start has a budget of its own, so that a slow start is not attributed to the schema.
        try:
            await self._ask(self._process, b'{"slot":0,"schema":true,"value":null}\n', CHECK_START_BUDGET)
        except TimeoutError:
            raise OSError("it did not start in time") from None
        return self._process

    def _request(self, schema: Mapping[str, Any], encoded: bytes) -> bytes:
        known = self._slots.get(id(schema))
        if known is not None:
            return b'{"slot":%d,"value":%b}\n' % (known[0], encoded)
        try:
            text = orjson.dumps(schema)
        except (TypeError, ValueError) as error:
            raise SchemaError(f"this is not a valid JSON Schema: {error}") from None
        slot = len(self._slots)
        if slot >= MAX_WORKER_SCHEMAS:
            slot, _ = self._slots.pop(next(iter(self._slots)))
        self._slots[id(schema)] = (slot, schema)
        return b'{"slot":%d,"schema":%b,"value":%b}\n' % (slot, text, encoded)

    async def _ask(self, process: Process, line: bytes, budget: float) -> bytes | bytearray:
        self._answer = asyncio.get_running_loop().create_future()
        process.stdin.write(line)
        async with asyncio.timeout(budget):
            return await self._answer

    def _refuse_slow(self, schema: Mapping[str, Any]) -> None:
        if id(schema) in self._too_slow:
            raise UncheckedError("its schema took too long before")

    def _remember_slow(self, schema: Mapping[str, Any]) -> None:
        if len(self._too_slow) >= MAX_WORKER_SCHEMAS:
            del self._too_slow[next(iter(self._too_slow))]
        self._too_slow[id(schema)] = schema

    def _set_answer(self, line: bytes | bytearray) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(line)

    def _set_end_error(self) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(OSError("it ended"))

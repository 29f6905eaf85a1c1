"""The audit log of a gateway: the interface for everything that calls tools, decides about calls, or serves operators.

`AuditLog` writes entries to a `ChainedFile`, to the log of the process, or to both. `NullAuditLog` stands for a gateway
without one. Nothing here depends on an API: the door of a call is one of its fields.

For one call: `record_call` before it is executed, which raises `StorageError` if the call must not be executed because
it could not be recorded; then `record_outcome`. A call that is not executed has a `record_refusal` instead of both. All
but `record_call` never raise: what they report has happened already. Every entry is in the file when they return.

No entry has the value of a secret that the gateway knows, and none has an argument or a result unless the operator
has chosen `values`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holodeck import __version__
from holodeck.gateway.audit.chained_file import AuditFileLockedError, AuditWriter, ChainedFile
from holodeck.gateway.audit.entry import (
    APPROVAL_DECIDED,
    APPROVAL_REQUESTED,
    AUTH_REFUSED,
    ELICITATION_ANSWERED,
    END_MISSING,
    LOGGED_IN,
    LOGGED_OUT,
    LOGIN_FINISHED,
    OPERATOR_REQUEST,
    RELOAD_REFUSED,
    RELOADED,
    START,
    STOP,
    TAKEN_OVER,
    TOOL_CALL,
    TOOL_RESULT,
    ChainPosition,
    Decision,
    Door,
    Outcome,
    encode_canonical_json,
    format_now,
    hash_arguments,
)
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.record import record
from holodeck.lib.redaction import LOG_SECRETS
from holodeck.models.gateway import Audit
from holodeck.storage.store import ResponseStore

# Characters of arguments and of a result in an entry: enough to see what happened, and a line stays readable.
MAX_VALUE_CHARS = 16_384
# Seconds in which refused credentials make one entry: a stranger without a key must not be able to fill the disk.
AUTH_REFUSED_INTERVAL = 1.0
# Seconds in which the same read of an operator makes one entry: the console repeats its reads every few seconds.
SAME_READ_INTERVAL = 60.0
# Different reads that are remembered for it; beyond them each makes an entry.
MAX_REMEMBERED_READS = 1_000
# Seconds between two looks at whether the end of the file has to be stored.
END_INTERVAL = 1.0
DECIDED_BY_RULE = "rule"
"""`decided_by` of a decision that no caller made."""
_LASTING_KEY_FIX = (
    "An audit log needs a seal key that lasts: after a restart nothing can tell whether its lines were changed. "
    "Set 'seal_key'."
)


@record
class AuditedCall:
    """A tool call as the audit log names it, by whichever API it came."""

    door: Door
    caller: str
    tool: str
    server: str = ""
    """The MCP server. Empty for a Python function of an agent."""
    host: str = ""
    """The host of a server that the request declared by its URL: its name is the caller's choice."""
    arguments: Mapping[str, Any] | None = None
    """None: they are not known, or not JSON."""
    call_id: str = ""
    """Equal in all entries about one call."""
    request_id: str = ""
    response_id: str = ""
    model: str = ""

    def to_fields(self) -> dict[str, object]:
        """Return the fields that all entries about the call have, without its arguments."""
        return {
            "caller": self.caller,
            "request_id": self.request_id,
            "response_id": self.response_id,
            "door": self.door,
            "model": self.model,
            "call_id": self.call_id,
            "server": self.server,
            "host": self.host,
            "tool": self.tool,
        }


class AuditLog:
    """Writes the audit log that the gateway file describes. `open` comes first, `close` last."""

    is_enabled = True

    def __init__(self, settings: Audit, folder: Path, *, keys: Sequence[bytes], store: ResponseStore) -> None:
        """`folder`: that of the gateway file. `keys`: as of `ChainedFile`. `store` has the end of the file."""
        self._settings = settings
        self._store = store
        self._name = name_audit_file(settings, folder)
        self._stored_end: ChainPosition | None = None
        self._has_unstored_end = False
        """True from a failed storing of the end to the next one that succeeds."""
        self._file: ChainedFile | None = None
        self._writer: AuditWriter | None = None
        if settings.file is not None:
            self._file = ChainedFile(folder / settings.file, keys=keys, fsync=settings.durability == "safe")
            self._writer = AuditWriter(self._file)
        self._is_open = False
        self._has_failed = False
        """True from a failed write to the next one that succeeds."""
        self._next_auth_entry = 0.0
        self._auth_refusals = 0
        """Refusals without an entry."""
        self._next_read_entries: dict[tuple[object, ...], float] = {}
        """When the same read of an operator makes an entry again."""

    async def open(self) -> None:
        """Lock the file, continue its chain, compare its end with the stored one, and write `start`.

        Raises `AuditFileLockedError` if another process writes the file, and `StorageError` if it cannot be written and
        calls are to be refused then.
        """
        missing: ChainPosition | None = None
        if self._file is not None and self._writer is not None:
            try:
                missing = await self._find_missing_end(await asyncio.to_thread(self._file.open))
            except AuditFileLockedError:
                raise
            except StorageError as error:
                if self._settings.on_failure == "refuse":
                    raise
                self._note_failure(error)
            self._writer.start()
        self._is_open = True
        if missing is not None:
            log.error("audit.end_missing", file=self._name, expected_seq=missing.seq)
            await self._write(END_MISSING, {"expected_seq": missing.seq, "expected_hash": missing.hash})
        await self._write(START, {"version": __version__})

    async def run(self) -> None:
        """Store the end of the file while there are new entries, at most once a second. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(END_INTERVAL)
            await self._store_end()

    async def close(self) -> None:
        """Write `stop`, close the file and store its end. Does nothing if it is not open."""
        if not self._is_open:
            return
        self._is_open = False
        if self._auth_refusals:
            self._post_refused_auth({})
        await self._write(STOP, {})
        if self._writer is not None:
            await self._writer.close()
        await self._store_end()

    async def record_call(self, call: AuditedCall, *, decision: Decision = "not_needed", decided_by: str = "") -> None:
        """Record a call that is about to be executed.

        Raises `StorageError` if that failed and the operator has not chosen to continue without entries.
        """
        fields = {"decision": decision, "decided_by": decided_by}
        failure = await self._write(TOOL_CALL, call.to_fields(), call.arguments, after=fields)
        if failure is not None and self._settings.on_failure == "refuse":
            raise failure

    async def record_refusal(
        self, call: AuditedCall, *, error_code: str, outcome: Outcome = "refused", decided_by: str = DECIDED_BY_RULE
    ) -> None:
        """Record a call that is not executed, in one entry."""
        fields = {"decision": "refused", "decided_by": decided_by, "outcome": outcome, "error_code": error_code}
        await self._write(TOOL_CALL, call.to_fields(), call.arguments, after=fields)

    async def record_outcome(
        self, call: AuditedCall, *, outcome: Outcome, seconds: float, error_code: str = "", result: str = ""
    ) -> None:
        """Record how a call ended that `record_call` has recorded. `result`: its text, written only with `values`."""
        fields = self._outcome_fields(outcome, seconds, error_code, result)
        await self._write(TOOL_RESULT, {**call.to_fields(), **fields})

    def post_outcome(self, call: AuditedCall, *, outcome: Outcome, seconds: float, error_code: str = "") -> None:
        """Do as `record_outcome`, without waiting for the file: for a call that is being cancelled."""
        self._post(TOOL_RESULT, {**call.to_fields(), **self._outcome_fields(outcome, seconds, error_code, "")})

    async def record_decision(self, call: AuditedCall, *, decision: Decision, decided_by: str = "") -> None:
        """Record that approval of a call was requested (`asked`), or what was decided about it."""
        event = APPROVAL_REQUESTED if decision == "asked" else APPROVAL_DECIDED
        after = {"decision": decision, "decided_by": decided_by}
        await self._write(event, call.to_fields(), call.arguments, after=after)

    async def record_answer(
        self, *, caller: str, request_id: str, response_id: str, call_id: str, server: str, action: str
    ) -> None:
        """Record that a caller has answered a question of a server, and how; not what it has answered."""
        call = AuditedCall(
            door="responses",
            caller=caller,
            tool="",
            server=server,
            call_id=call_id,
            request_id=request_id,
            response_id=response_id,
        )
        await self._write(ELICITATION_ANSWERED, {**call.to_fields(), "decision": action, "decided_by": caller})

    async def record_operator_request(self, fields: Mapping[str, object], *, is_read: bool) -> None:
        """Record what an operator has changed, or has read of other callers. The same read again is left out a while.

        `fields`: `caller`, `request_id`, `method`, `route`, `status`, and what the request is about.
        """
        if not (is_read and self._is_repeated(fields)):
            await self._write_or_post(OPERATOR_REQUEST, _cut_fields(fields))

    def post_operator_request(self, fields: Mapping[str, object]) -> None:
        """Do as `record_operator_request` of a change, without waiting for the file: for a cancelled one."""
        self._post(OPERATOR_REQUEST, _cut_fields(fields))

    async def record_reload(self, changes: Mapping[str, Sequence[str]], *, request_id: str) -> None:
        """Record that the configuration was replaced, with the names of what changed.

        `request_id`: the request that has asked for it; empty if none has.
        """
        names = {kind: ", ".join(each) for kind, each in changes.items()}
        await self._write_or_post(RELOADED, {"request_id": request_id, **_cut_fields(names)})

    async def record_refused_reload(self, problems: Sequence[str], *, request_id: str) -> None:
        """Record that changed files were not applied, and why."""
        fields = {"problems": "; ".join(problems)}
        await self._write_or_post(RELOAD_REFUSED, {"request_id": request_id, **_cut_fields(fields)})

    def post_login(self, *, caller: str, server: str, outcome: str) -> None:
        """Record how a login at a server ended that this operator has started, without waiting for the file."""
        self._post(LOGIN_FINISHED, {"caller": caller, "server": server, "outcome": outcome})

    async def record_session(self, *, caller: str, request_id: str, session: str, about: str, is_end: bool) -> None:
        """Record that a person has logged in, or has ended a session of its browser or program, `about`."""
        fields = {"caller": caller, "request_id": request_id, "session": session, "about": about}
        await self._write_or_post(LOGGED_OUT if is_end else LOGGED_IN, _cut_fields(fields))

    async def record_takeover(self, *, caller: str, response_id: str, model: str) -> None:
        """Record that this gateway continues a response of a process that has ended."""
        await self._write(TAKEN_OVER, {"caller": caller, "response_id": response_id, "model": model})

    def post_refused_auth(
        self, *, door: Door, request_id: str, error_code: str, caller: str = "", address: str = ""
    ) -> None:
        """Record refused credentials, without waiting for the file. Many at once make one entry, with their `count`."""
        self._auth_refusals += 1
        now = time.monotonic()
        if now >= self._next_auth_entry:
            self._next_auth_entry = now + AUTH_REFUSED_INTERVAL
            fields = {"caller": caller, "request_id": request_id, "door": door, "address": address}
            self._post_refused_auth({**fields, "error_code": error_code})

    async def find_failure(self) -> str:
        """Return why calls are refused at this moment. Empty: they are not. Tries to write again after a failure."""
        if self._writer is None or self._writer.failure is None:
            return ""
        try:
            await self._writer.recover()
        except StorageError as error:
            return str(error) if self._settings.on_failure == "refuse" else ""
        self._note_success()
        return ""

    async def _find_missing_end(self, end: ChainPosition) -> ChainPosition | None:
        """Return the stored end of the file, if the file ends before it or differently.

        None: it does not, or is not known.
        """
        try:
            stored = await self._store.read_audit_end(self._name)
        except StorageError as error:
            log.warning("audit.end_unknown", error=error)
            return None
        if stored is None:
            return None
        expected = ChainPosition(seq=stored[0], hash=stored[1])
        return expected if end != expected and end.seq <= expected.seq else None

    async def _store_end(self) -> None:
        end = None if self._file is None else self._file.end
        if end is None or end == self._stored_end:
            return
        try:
            await self._store.store_audit_end(self._name, end.seq, end.hash)
        except StorageError as error:
            if not self._has_unstored_end:
                log.warning("audit.end_not_stored", error=error)
            self._has_unstored_end = True
        else:
            self._stored_end, self._has_unstored_end = end, False

    def _post_refused_auth(self, fields: Mapping[str, object]) -> None:
        count, self._auth_refusals = self._auth_refusals, 0
        self._post(AUTH_REFUSED, {**fields, "count": count})

    def _is_repeated(self, fields: Mapping[str, object]) -> bool:
        """Return whether the same read has made an entry lately. It is remembered if not."""
        now, known = time.monotonic(), self._next_read_entries
        read = tuple(value for name, value in fields.items() if name != "request_id")
        if now < known.get(read, 0.0):
            return True
        if len(known) >= MAX_REMEMBERED_READS:
            known = self._next_read_entries = {each: until for each, until in known.items() if now < until}
        if len(known) < MAX_REMEMBERED_READS:
            known[read] = now + SAME_READ_INTERVAL
        return False

    def _outcome_fields(self, outcome: Outcome, seconds: float, error_code: str, result: str) -> dict[str, object]:
        fields = {"outcome": outcome, "error_code": error_code, "duration_ms": round(seconds * 1_000)}
        return {**fields, "result": _cut_value(result)} if result and self._settings.values else fields

    async def _write(
        self,
        event: str,
        fields: Mapping[str, object],
        arguments: Mapping[str, Any] | None = None,
        after: Mapping[str, object] | None = None,
    ) -> StorageError | None:
        """Write an entry: its fields, the arguments of a call, and the fields after them. Returns the failure."""
        build = partial(
            _build_line, format_now(), event, fields, arguments, after or {}, has_values=self._settings.values
        )
        self._log_entry(event, {**fields, **(after or {})}, arguments)
        if self._writer is None:
            return None
        try:
            await self._writer.append(build)
        except StorageError as error:
            self._note_failure(error)
            return error
        self._note_success()
        return None

    async def _write_or_post(self, event: str, fields: Mapping[str, object]) -> None:
        """Write an entry, without waiting for the file where this task is being cancelled.

        An operator that replaces its own key cancels its own request, which would end at a wait, before its reply.
        """
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            self._post(event, fields)
        else:
            await self._write(event, fields)

    def _post(self, event: str, fields: Mapping[str, object]) -> None:
        self._log_entry(event, fields)
        if self._writer is not None and self._writer.is_running:
            self._writer.post(partial(_build_line, format_now(), event, fields, None, {}, has_values=False))

    def _log_entry(self, event: str, fields: Mapping[str, object], arguments: Mapping[str, Any] | None = None) -> None:
        if not self._settings.logger:
            return
        shown: dict[str, object] = {key: value for key, value in fields.items() if value != "" and key != "result"}
        if arguments is not None:
            shown["arguments_sha256"] = hash_arguments(arguments)
        log.info(f"audit.{event}", **shown)

    def _note_failure(self, error: StorageError) -> None:
        if not self._has_failed:
            log.error("audit.failed", error=error, on_failure=self._settings.on_failure)
        self._has_failed = True

    def _note_success(self) -> None:
        if self._has_failed:
            log.info("audit.recovered")
        self._has_failed = False


class NullAuditLog(AuditLog):
    """The audit log of a gateway without one: it does nothing."""

    is_enabled = False

    def __init__(self) -> None:
        """Open and write nothing."""

    async def open(self) -> None: ...

    async def run(self) -> None: ...

    async def close(self) -> None: ...

    async def record_call(
        self, call: AuditedCall, *, decision: Decision = "not_needed", decided_by: str = ""
    ) -> None: ...

    async def record_refusal(
        self, call: AuditedCall, *, error_code: str, outcome: Outcome = "refused", decided_by: str = DECIDED_BY_RULE
    ) -> None: ...

    async def record_outcome(
        self, call: AuditedCall, *, outcome: Outcome, seconds: float, error_code: str = "", result: str = ""
    ) -> None: ...

    def post_outcome(self, call: AuditedCall, *, outcome: Outcome, seconds: float, error_code: str = "") -> None: ...

    async def record_decision(self, call: AuditedCall, *, decision: Decision, decided_by: str = "") -> None: ...

    async def record_answer(
        self, *, caller: str, request_id: str, response_id: str, call_id: str, server: str, action: str
    ) -> None: ...

    async def record_operator_request(self, fields: Mapping[str, object], *, is_read: bool) -> None: ...

    def post_operator_request(self, fields: Mapping[str, object]) -> None: ...

    async def record_reload(self, changes: Mapping[str, Sequence[str]], *, request_id: str) -> None: ...

    async def record_refused_reload(self, problems: Sequence[str], *, request_id: str) -> None: ...

    def post_login(self, *, caller: str, server: str, outcome: str) -> None: ...

    async def record_session(self, *, caller: str, request_id: str, session: str, about: str, is_end: bool) -> None: ...

    async def record_takeover(self, *, caller: str, response_id: str, model: str) -> None: ...

    def post_refused_auth(
        self, *, door: Door, request_id: str, error_code: str, caller: str = "", address: str = ""
    ) -> None: ...

    async def find_failure(self) -> str:
        return ""


def build_audit_log(
    settings: Audit | None, folder: Path, *, keys: Sequence[bytes], store: ResponseStore, has_lasting_key: bool
) -> AuditLog:
    """Return the audit log of a gateway file in this folder.

    `has_lasting_key`: the keys are the same after a restart.
    """
    if settings is None:
        return NullAuditLog()
    if settings.file is not None and not has_lasting_key:
        log.warning("audit.key_is_temporary", fix=_LASTING_KEY_FIX)
    return AuditLog(settings, folder, keys=keys, store=store)


def name_audit_file(settings: Audit, folder: Path) -> str:
    """Return the path by which the end of the audit log of a gateway file in this folder is stored."""
    return "" if settings.file is None else str((folder / settings.file).resolve())


def _build_line(
    now: str,
    event: str,
    fields: Mapping[str, object],
    arguments: Mapping[str, Any] | None,
    after: Mapping[str, object],
    *,
    has_values: bool,
) -> dict[str, object]:
    """Return the fields of a line, without those that are empty, and with secrets masked."""
    line: dict[str, object] = {"time": now, "event": event, **fields}
    if arguments is not None:
        line["arguments_sha256"] = hash_arguments(arguments)
        if has_values:
            line["arguments"] = _cut_value(encode_canonical_json(arguments).decode())
    line |= after
    return {
        key: LOG_SECRETS.mask(value) if isinstance(value, str) else value for key, value in line.items() if value != ""
    }


def _cut_fields(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: _cut_value(value) if isinstance(value, str) else value for name, value in fields.items()}


def _cut_value(text: str) -> str:
    if len(text) <= MAX_VALUE_CHARS:
        return text
    # Masked before it is cut: half a secret would not be found later. No secret is longer than a value.
    shown = LOG_SECRETS.mask(text[: 2 * MAX_VALUE_CHARS])[:MAX_VALUE_CHARS]
    return f"{shown}... (cut: {len(text)} characters)"

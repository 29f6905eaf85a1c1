"""Questions of MCP servers that the client of a response answers while the call waits (elicitation).

`Elicitations` is one per gateway. `ask` stores a question, waits for its answer and deletes it however it ends. An
answer that comes to this gateway wakes `ask` at once; one that comes to another gateway is found in storage, which is
read every `ANSWER_POLL` seconds while the question is open.

`RunElicitations` is one per run of a request with `"elicitation": "ask"`. It is the client of all calls of the run, so
that a legacy server, which does not say which call a question belongs to, is answered where only this run calls it.
The questions of a server end with the last call of the run at this server: nothing waits for their answers then.

Answers may be secrets. They are neither logged nor traced.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import orjson

from holodeck.gateway.wire.item_ids import mcp_id_of
from holodeck.lib import log
from holodeck.lib.errors import StorageError
from holodeck.lib.ids import new_id
from holodeck.lib.json.schema import SchemaError, check_parsed_schema_size
from holodeck.storage.elicitations import ElicitationStore, StoredElicitation
from holodeck.tools.executor import ToolCall
from holodeck.tools.mcp.protocol.peer import ELICITATION_METHOD, Params, Peer
from holodeck.tools.mcp.protocol.server_requests import ANSWER_TIMEOUT

# Seconds between two reads of an answer that another gateway may have stored.
ANSWER_POLL = 1.0

_DECLINED: Mapping[str, Any] = {"action": "decline"}
_CANCELLED: Mapping[str, Any] = {"action": "cancel"}

Answer = asyncio.Future[Mapping[str, Any]]


class Elicitations:
    """The questions of this gateway that wait for an answer."""

    def __init__(self, store: ElicitationStore) -> None:
        self._store = store
        self._open: dict[str, Answer] = {}

    def follow_run(self, response_id: str, caller_id: str, *, has_mcp_items: bool) -> RunElicitations:
        """Build the asker of the questions of one run. `has_mcp_items`: calls are `mcp_call` items of the response."""
        return RunElicitations(self, response_id, caller_id, has_mcp_items=has_mcp_items)

    def wake(self, elicitation_id: str, answer: Mapping[str, Any]) -> None:
        """Give a stored answer to the call that waits for it. Does nothing if that is not at this gateway."""
        _resolve(self._open.get(elicitation_id), answer)

    async def ask(self, asked: StoredElicitation, answer: Answer) -> Mapping[str, Any]:
        """Store a question and wait for its answer, from `wake`, from storage, or from the owner of `answer`.

        Raises `StorageError` if it cannot be stored, and the cancellation of `answer`.
        """
        self._open[asked.id] = answer
        try:
            await self._store.add_elicitation(asked)
            while not answer.done():
                await asyncio.wait({answer}, timeout=ANSWER_POLL)
                if not answer.done():
                    await self._read_stored_answer(asked.id, answer)
            return answer.result()
        finally:
            del self._open[asked.id]
            await self._delete(asked.id)

    async def _read_stored_answer(self, elicitation_id: str, answer: Answer) -> None:
        try:
            stored = await self._store.read_elicitation_answer(elicitation_id)
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)
            return
        if stored is not None:
            _resolve(answer, orjson.loads(stored))

    async def _delete(self, elicitation_id: str) -> None:
        try:
            await self._store.delete_elicitation(elicitation_id)
        # It is not listed after it has expired, and deleted with what is old.
        except StorageError as error:
            log.warning("gateway.storage_failed", error=error)


class RunElicitations:
    """Asks the questions of servers that work on calls of one run."""

    def __init__(self, elicitations: Elicitations, response_id: str, caller_id: str, *, has_mcp_items: bool) -> None:
        self._elicitations = elicitations
        self._response_id = response_id
        self._caller_id = caller_id
        self._has_mcp_items = has_mcp_items
        self._running: Counter[str] = Counter()
        """By server, how many calls of the run are there."""
        self._open: dict[Answer, str] = {}
        """The questions that are open, with their servers."""

    @contextmanager
    def follow_call(self, server: str, call: ToolCall, *, is_hosted: bool = False) -> Iterator[Peer]:
        """Ask the questions of a server during the `with` block, in which it works on a call.

        `is_hosted`: the call is of a hosted tool, whose item has an id of its own kind.
        """
        engine_id = call.key or call.call_id
        item_id = "" if is_hosted else mcp_id_of(engine_id) if self._has_mcp_items else engine_id
        self._running[server] += 1
        try:
            yield _CallPeer(self, server, item_id)
        finally:
            self._running[server] -= 1
            if not self._running[server]:
                is_handed_over = call.resume is not None and call.resume.is_handed_over
                self._end_questions(server, is_handed_over=is_handed_over)

    async def ask(self, server: str, item_id: str, params: Params, *, is_of_call: bool) -> Mapping[str, Any]:
        """Ask one question. `is_of_call`: the server has said that it belongs to the call of this item."""
        is_of_call = is_of_call or self._running[server] == 1
        question = _read_question(server, item_id if is_of_call else "", params)
        if question is None:
            return self._log_end(server, _DECLINED)
        now, answer = time.time(), asyncio.get_running_loop().create_future()
        asked = StoredElicitation(
            id=new_id("elic"),
            response_id=self._response_id,
            caller_id=self._caller_id,
            created_at=now,
            expires_at=now + ANSWER_TIMEOUT,
            question=question,
        )
        self._open[answer] = server
        try:
            return self._log_end(server, await self._elicitations.ask(asked, answer))
        except (asyncio.CancelledError, StorageError):
            self._log_end(server, {"action": "none"})
            raise
        finally:
            del self._open[answer]

    def _end_questions(self, server: str, *, is_handed_over: bool) -> None:
        for answer in [answer for answer, asking in self._open.items() if asking == server]:
            if is_handed_over:
                # The server is not answered: the process that goes on with the call is asked again.
                answer.cancel()
            else:
                _resolve(answer, _CANCELLED)

    def _log_end(self, server: str, answer: Mapping[str, Any]) -> Mapping[str, Any]:
        log.info("mcp.elicitation", server=server, action=answer.get("action"), response=self._response_id)
        return answer


class _CallPeer:
    """The client of a response as the peer of one call: answers questions of its server, and nothing else."""

    log_level: str | None = None
    meta: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, run: RunElicitations, server: str, item_id: str) -> None:
        self._run = run
        self._server = server
        self._item_id = item_id

    @property
    def client(self) -> object:
        return self._run

    def can_answer(self, method: str, params: Params) -> bool:
        return method == ELICITATION_METHOD

    async def ask(self, method: str, params: Params, key: str = "") -> Mapping[str, Any]:
        return await self._run.ask(self._server, self._item_id, params, is_of_call=key != "")

    def notify(self, method: str, params: Params) -> None:
        """Drop the notification: the client reads its own stream only."""


def _resolve(answer: Answer | None, value: Mapping[str, Any]) -> None:
    if answer is not None and not answer.done():
        answer.set_result(value)


def _read_question(server: str, item_id: str, params: Params) -> bytes | None:
    """Return the question in the parameters of a server's request, as JSON. None if no person should be asked it.

    That is one that is too large, or that leads to something else than a web page.
    """
    question: dict[str, Any] = {"call_id": item_id} if item_id else {}
    question |= {"server_label": server, "message": str(params.get("message") or "")}
    if params.get("mode") == "url":
        url = str(params.get("url") or "")
        if not _is_web_page(url):
            log.warning("mcp.elicitation_refused", server=server, reason="its URL is not one of http or https")
            return None
        question |= {"mode": "url", "url": url}
    else:
        schema = params.get("requestedSchema")
        question |= {"mode": "form", "requested_schema": schema if isinstance(schema, dict) else {}}
    try:
        # The limits of schemas are large for a form that a person fills in, with its message.
        return check_parsed_schema_size(question)
    except SchemaError as error:
        log.warning("mcp.elicitation_refused", server=server, reason=error)
        return None


def _is_web_page(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)

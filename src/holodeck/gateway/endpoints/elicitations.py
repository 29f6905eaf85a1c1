"""`/v1/responses/{id}/elicitations`: questions of MCP servers to the client of a response, and the answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson

from holodeck.gateway.api import examples
from holodeck.gateway.api.models.other_bodies import AnswerElicitation
from holodeck.gateway.api.route import route
from holodeck.gateway.audit.log import AuditLog
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.http.error_codes import STORED_ERRORS
from holodeck.gateway.http.errors import APIError, not_found_error
from holodeck.gateway.http.replies import Reply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.mcp.elicitations import Elicitations
from holodeck.gateway.runs.active_runs import ActiveRuns
from holodeck.gateway.wire.item_ids import item_id_of
from holodeck.gateway.wire.request.json_fields import refuse
from holodeck.gateway.wire.request.validation import read_body
from holodeck.lib import log
from holodeck.lib.json.schema import SchemaError
from holodeck.lib.json.schema_worker import SchemaChecker, UncheckedError
from holodeck.storage.elicitations import StoredElicitation
from holodeck.storage.runs import UNFINISHED_STATUSES
from holodeck.storage.store import ResponseStore
from holodeck.tools.mcp.protocol.server_requests import with_defaults

_route = partial(route, tag="Responses", is_counted=False)
# Characters of a mismatch in an error text.
_MAX_PROBLEM_CHARS = 200


class ElicitationEndpoints:
    """Routes of the questions of a response. A caller sees and answers those of its own responses only."""

    def __init__(self, store: ResponseStore, runs: ActiveRuns, elicitations: Elicitations, audit: AuditLog) -> None:
        self._store = store
        self._runs = runs
        self._elicitations = elicitations
        self._audit = audit
        self._checker = SchemaChecker()

    @_route(
        "GET",
        "/v1/responses/{id}/elicitations",
        id="listElicitations",
        summary="List the open questions of MCP servers",
        description=(
            "An MCP server may ask the person something while it works on a call (elicitation). A request with "
            '`"elicitation": "ask"` says that its client reads these questions and answers them; the call waits '
            "meanwhile. Ask about once a second while a call runs. A response that has ended has no open questions."
        ),
        reply="ElicitationList",
        example={"object": "list", "data": [examples.QUESTION]},
        errors=STORED_ERRORS,
    )
    async def list_open(self, request: Request) -> Reply:
        """Return the open questions of a response. One that has ended has none."""
        found = await self._read_questions(request.path_params["id"], request.caller)
        return json_reply({"object": "list", "data": [_resource_of(each) for each in found if each.answer is None]})

    @_route(
        "POST",
        "/v1/responses/{id}/elicitations/{elicitation_id}",
        id="answerElicitation",
        summary="Answer a question of an MCP server",
        description=(
            "The answer goes to the server, at whichever gateway its call runs, and is not stored for longer than "
            "that takes. `decline` says no to the question, `cancel` that it was put aside without an answer. Content "
            "that does not fit the schema of the question is refused, and the question stays open."
        ),
        body="AnswerElicitation",
        example_body={"action": "accept", "content": {"people": 2}},
        reply="Elicitation",
        example={**examples.QUESTION, "status": "answered"},
        errors=(*STORED_ERRORS, "fields", "elicitation"),
    )
    async def answer(self, request: Request) -> Reply:
        """Answer a question, once. What does not fit its schema is refused, and the question stays open."""
        asked = await self._require_question(request)
        question = orjson.loads(asked.question)
        answer = await self._read_answer(request, question)
        is_stored = await self._store.elicitations.answer_elicitation(
            asked.id, asked.response_id, request.caller.id, orjson.dumps(answer)
        )
        if not is_stored:
            raise _answered_error()
        self._elicitations.wake(asked.id, answer)
        await self._audit.record_answer(
            caller=request.caller.id,
            request_id=request.id,
            response_id=asked.response_id,
            call_id=item_id_of(question["call_id"]) if "call_id" in question else "",
            server=question["server_label"],
            action=answer["action"],
        )
        return json_reply({**_resource_of(asked), "status": "answered"})

    async def close(self) -> None:
        """End the process that checks answers, if one was started."""
        await self._checker.close()

    async def _read_questions(self, response_id: str, caller: Caller) -> list[StoredElicitation]:
        """Return the questions of a running response, answered ones included. Raises the 404 for one that is not there.

        A response that a client waits for is not stored before its end, and other gateways know of it by its questions
        only.
        """
        elicitations = self._store.elicitations
        live = self._runs.find(response_id, caller.id)
        if live is not None and live.writer.is_stored:
            return await elicitations.list_elicitations(response_id, caller.id)
        run = await self._store.runs.get_run(response_id, caller.id)
        if run is not None and run.status not in UNFINISHED_STATUSES:
            return []
        found = await elicitations.list_elicitations(response_id, caller.id)
        # A response of an old version is not in the index of runs.
        if run is None and not found and await self._store.get(response_id, caller.id) is None:
            raise not_found_error("Response", response_id)
        return found

    async def _require_question(self, request: Request) -> StoredElicitation:
        elicitation_id = request.path_params["elicitation_id"]
        for each in await self._read_questions(request.path_params["id"], request.caller):
            if each.id == elicitation_id:
                if each.answer is not None:
                    raise _answered_error()
                return each
        message = f"Elicitation with id '{elicitation_id}' not found. It was answered, or its call waits no longer."
        raise APIError(404, message, kind="not_found", code="not_found")

    async def _read_answer(self, request: Request, question: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer as MCP has it. Raises `BadRequestError`, which names the field."""
        sent = read_body(AnswerElicitation, request.json())
        action, content = sent.action, sent.content
        if action != "accept" or question["mode"] == "url":
            if content:
                about = "A page that a person visits has no" if action == "accept" else "Only an accepted form has"
                refuse(f"{about} 'content': leave it out.", "content")
            return {"action": action}
        schema = question["requested_schema"]
        answer = dict(with_defaults({"action": action, "content": content or {}}, {"requestedSchema": schema}))
        await self._check_content(question["server_label"], schema, answer["content"])
        return answer

    async def _check_content(self, server: str, schema: Mapping[str, Any], content: Mapping[str, Any]) -> None:
        try:
            violations = await self._checker.find_violations(schema, content)
        # The server checks what it gets as well.
        except (SchemaError, UncheckedError) as error:
            log.warning("mcp.elicitation_unchecked", server=server, reason=error)
            return
        if violations:
            first = violations[0]
            where = f"content.{first.path}" if first.path else "content"
            refuse(f"Invalid '{where}': {first.message[:_MAX_PROBLEM_CHARS]}. The question is still open.", where)


def _answered_error() -> APIError:
    message = "This elicitation was answered already. An answer cannot be changed."
    return APIError(409, message, kind="invalid_request", code="elicitation_answered")


def _resource_of(elicitation: StoredElicitation) -> dict[str, Any]:
    return {
        "id": elicitation.id,
        "object": "elicitation",
        "response_id": elicitation.response_id,
        **orjson.loads(elicitation.question),
        "created_at": int(elicitation.created_at),
        "expires_at": int(elicitation.expires_at),
    }

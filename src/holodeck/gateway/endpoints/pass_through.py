"""`/v1/embeddings` and `/v1/completions`: bodies that are handed on to the provider of a model as they are.

Only the name of the model is replaced, in both directions. The connection, the key, retries and timeouts are those of
other requests to models, and so are the limits of the caller. No tool is involved and nothing is stored.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import orjson

from holodeck.engine.tokens import CHARS_PER_TOKEN
from holodeck.gateway.api import examples
from holodeck.gateway.api.models.other_bodies import HandedOnBody
from holodeck.gateway.api.route import route
from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.backends import Backend
from holodeck.gateway.http.error_codes import ErrorGroup
from holodeck.gateway.http.errors import encode_chat_error, reply_for_failed_run
from holodeck.gateway.http.replies import Reply, StreamedReply, json_reply
from holodeck.gateway.http.request import Request
from holodeck.gateway.runs.run_builder import RunBuilder
from holodeck.gateway.usage.accounts import Accounts
from holodeck.gateway.usage.budgets import Budgets
from holodeck.gateway.wire.request.json_fields import refuse, refuse_missing
from holodeck.gateway.wire.request.validation import read_body
from holodeck.gateway.wire.response.output_items import SSE_DONE
from holodeck.lib import log
from holodeck.lib.errors import ModelError
from holodeck.models.events import Failure, RunResult
from holodeck.models.items import Usage
from holodeck.providers.base import ModelProvider
from holodeck.providers.http.pass_through import PassedDocument, PassThroughRequest

_ERRORS: tuple[ErrorGroup, ...] = ("fields", "model", "run")
_NO_ANSWER = "The model sent no answer."


class PassThroughEndpoints:
    def __init__(self, run_builder: RunBuilder, accounts: Accounts, budgets: Budgets) -> None:
        self._accounts = accounts
        self._budgets = budgets
        self._run_builder = run_builder

    @route(
        "POST",
        "/v1/embeddings",
        id="createEmbeddings",
        tag="Embeddings and completions",
        summary="Create embeddings",
        description="The body and the reply are those of the provider, under the name that the model has here.",
        body="CreateEmbeddings",
        example_body={"model": "demo", "input": "Hello"},
        reply={"type": "object"},
        example=examples.NO_EMBEDDINGS,
        errors=_ERRORS,
        is_paid=True,
    )
    async def create_embeddings(self, request: Request) -> Reply | StreamedReply:
        """Hand on a request for embeddings."""
        return await self._hand_on(request, "/embeddings", needed="input")

    @route(
        "POST",
        "/v1/completions",
        id="createCompletion",
        tag="Embeddings and completions",
        summary="Complete a prompt",
        description=(
            "The body, the reply and the chunks of a stream are those of the provider, under the name that the model "
            "has here."
        ),
        body="CreateCompletion",
        example_body={"model": "demo", "prompt": "Hello"},
        reply={"type": "object"},
        example=examples.NO_COMPLETIONS,
        stream="CompletionChunk",
        errors=_ERRORS,
        is_paid=True,
    )
    async def create_completion(self, request: Request) -> Reply | StreamedReply:
        """Hand on a request for a completion of a prompt, streamed or not."""
        return await self._hand_on(request, "/completions", needed="prompt")

    async def _hand_on(self, request: Request, path: str, *, needed: str) -> Reply | StreamedReply:
        body = request.json()
        sent = read_body(HandedOnBody, body)
        backend = self._run_builder.require_backend(sent.model, request.caller)
        if body.get(needed) is None:
            refuse_missing(needed)
        model = backend.pass_through.get(path)
        if model is None:
            message = f"The model '{backend.name}' has no {path}. Name one whose provider has it."
            refuse(message, "model")
        exchange = _Exchange(backend, model, body, request.caller.id, model_input=body[needed])
        documents = exchange.send()
        if self._budgets.has_limit(request.caller):
            documents = exchange.send_charged(self._budgets, request.caller)
        if sent.stream:
            return StreamedReply(chunks=self._encode_sse(exchange, documents, request), encode_error=encode_chat_error)
        try:
            async with aclosing(documents):
                answers = [document async for document in documents]
        finally:
            result = self._count(exchange, request)
        if result.error is not None:
            return reply_for_failed_run(result, {"id": request.id})
        return json_reply(answers[-1])

    async def _encode_sse(
        self, exchange: _Exchange, documents: AsyncGenerator[dict[str, Any], None], request: Request
    ) -> AsyncGenerator[bytes, None]:
        try:
            async with aclosing(documents):
                async for document in documents:
                    yield b"data: %b\n\n" % orjson.dumps(document)
        finally:
            result = self._count(exchange, request)
        if result.error is not None:
            yield b"data: %b\n\n" % reply_for_failed_run(result, {"id": request.id}).body
        yield SSE_DONE

    def _count(self, exchange: _Exchange, request: Request) -> RunResult:
        result = exchange.build_result()
        backend = exchange.backend
        self._accounts.record_request(request.caller.id, backend.name, result, is_charged=exchange.is_charged)
        log.add_fields(model=exchange.backend.name, run=result.status, input_tokens=result.usage.input_tokens)
        return result


class _Exchange:
    """One request to a model, and how it ended."""

    def __init__(
        self, backend: Backend, model: ModelProvider, body: Mapping[str, Any], caller_id: str, *, model_input: object
    ) -> None:
        """`model_input`: the part of the body that the model counts."""
        self.backend = backend
        self.is_charged = False
        """Whether its cost is counted already."""
        self._model = model
        self._body = body
        self._caller_id = caller_id
        self._started_at = time.perf_counter()
        self._model_input = model_input
        self._told = Usage()
        self._document_count = self._characters = 0
        self._has_ended = False
        """Whether the model has; otherwise the client has left it."""
        self._error: Failure | None = Failure(code="model_error", message=_NO_ANSWER, public_message=_NO_ANSWER)

    async def send(self) -> AsyncGenerator[dict[str, Any], None]:
        """Yield what the model answers, with its public name. An error ends it; `build_result` has the error."""
        try:
            request = PassThroughRequest(items=(), body=self._body, caller_id=self._caller_id)
            async with aclosing(self._model.stream(request)) as events:
                async for event in events:
                    if isinstance(event, PassedDocument):
                        self._note(event.document)
                        yield {**event.document, "model": self.backend.name}
            self._has_ended = True
        except ModelError as error:
            self._has_ended = True
            self._fail(error)

    def _note(self, document: Mapping[str, Any]) -> None:
        self._error = None
        self._told = _read_usage(document.get("usage")) or self._told
        self._document_count += 1
        self._characters += _count_characters(document)

    async def send_charged(self, budgets: Budgets, caller: Caller) -> AsyncGenerator[dict[str, Any], None]:
        """Do as `send` for a caller with a limit: the cost is reserved before, and charged after."""
        self.is_charged = True
        limit = self._body.get("max_tokens")
        estimate = self._estimate_usage(limit if isinstance(limit, int) and limit > 0 else 0)
        try:
            reservation = await budgets.reserve(caller, estimate.total_tokens, self._find_cost(estimate) or 0.0)
        except ModelError as error:
            self._has_ended = True
            self._fail(error)
            return
        try:
            async with aclosing(self.send()) as documents:
                async for document in documents:
                    yield document
        finally:
            has_failed = self._has_ended and not self._document_count
            usage = Usage() if has_failed else self._find_usage()
            reservation.settle(None if has_failed else usage, self._find_cost(usage) or 0.0)
        await budgets.store_spending(caller)

    def _find_usage(self) -> Usage:
        """Return the tokens that the provider has told, or else an estimate by what was sent and received."""
        if self._told.total_tokens or (self._has_ended and not self._document_count):
            return self._told
        return self._estimate_usage(-(-self._characters // CHARS_PER_TOKEN))

    def _estimate_usage(self, output_tokens: int) -> Usage:
        input_tokens = -(-len(orjson.dumps(self._model_input)) // CHARS_PER_TOKEN)
        return Usage(
            input_tokens=input_tokens, output_tokens=output_tokens, estimated_tokens=input_tokens + output_tokens
        )

    def _find_cost(self, usage: Usage) -> float | None:
        price = self.backend.llm.effective_price
        return None if price is None else price.cost_of(usage)

    def _fail(self, error: ModelError) -> None:
        log.warning("gateway.hand_on_failed", model=self.backend.name, error=error)
        self._error = Failure(
            code=error.code or "model_error",
            message=str(error),
            public_message=error.public_text,
            is_retryable=error.is_retryable,
            retry_after=error.retry_after,
        )

    def build_result(self) -> RunResult:
        usage = self._find_usage()
        return RunResult(
            status="cancelled" if not self._has_ended else "completed" if self._error is None else "failed",
            text="",
            error=self._error if self._has_ended else None,
            turns=1,
            usage=usage,
            seconds=time.perf_counter() - self._started_at,
            cost=self._find_cost(usage),
        )


def _count_characters(document: Mapping[str, Any]) -> int:
    """Count the characters of the texts in an answer."""
    choices = document.get("choices")
    found = [each.get("text") for each in choices if isinstance(each, dict)] if isinstance(choices, list) else ()
    return sum(len(text) for text in found if isinstance(text, str))


def _read_usage(usage: object) -> Usage | None:
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(key) for key in ("prompt_tokens", "completion_tokens")]
    sent, received = (count if isinstance(count, int) else 0 for count in counts)
    return Usage(input_tokens=sent, output_tokens=received)

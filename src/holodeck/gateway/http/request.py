"""A parsed HTTP request, and the routes that requests are dispatched to.

Every handler is `async def handler(request: Request) -> Reply | StreamedReply`. An error that a handler raises becomes
a wire error in `http/errors.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from holodeck.gateway.auth.callers import Caller
from holodeck.gateway.http.replies import Reply, StreamedReply
from holodeck.gateway.http.request_body import RequestReservation, too_many_values_error
from holodeck.gateway.wire.client_kind import ClientKind
from holodeck.lib.errors import BadRequestError
from holodeck.lib.json.parse import JSONLimitError, TooManyValuesError, parse_json
from holodeck.lib.record import record


@record
class Request:
    """One authenticated HTTP request with its whole body."""

    caller: Caller
    path_params: Mapping[str, str]
    headers: Mapping[str, str]
    """With names in lower case."""
    query: Mapping[str, str]
    reservation: RequestReservation
    """Bytes of the gateway's budget that this request holds beside its body; the application releases them."""
    scheme: str = "http"
    """Of the connection, which may be one from a proxy."""
    body: bytes = b""
    client_kind: ClientKind = "openai"
    id: str = ""
    """The id for logs and traces, which the reply has in its `x-request-id`."""

    def json(self) -> Any:
        """Parse the body. Raises `BadRequestError` where it is not JSON.

        Not in a thread: the parser holds the interpreter lock, so a thread would block the loop for as long (32 MB:
        0.2 to 0.4 s). 'limits.body_bytes' bounds it.
        """
        try:
            return parse_json(self.body)
        except TooManyValuesError:
            raise too_many_values_error() from None
        except JSONLimitError as error:
            raise BadRequestError(f"The body is {error}.", code="invalid_json") from None
        except ValueError:
            raise BadRequestError("The body is not valid JSON.", code="invalid_json") from None


Handler = Callable[[Request], Awaitable[Reply | StreamedReply]]


@record
class Route:
    """A method and a path with the handler that answers it."""

    method: str
    path: str
    """May have parameters in braces: `/v1/responses/{id}`."""
    handler: Handler
    is_public: bool = False
    """Needs no key. The host is not checked either: probes come by address."""
    is_admin: bool = False
    """Needs an operator's key."""
    is_unscoped: bool = False
    """Needs an operator's key without a scope: it is about what all callers may do."""
    is_counted: bool = True
    """Counts against the request limits of its caller. Public routes are never counted."""
    is_paid: bool = False
    """Uses a model, so that the budget of its caller is checked before its body is read."""
    may_have_slashes: bool = False
    """The path parameter may contain slashes, as names of models do."""
    counts_itself: bool = False
    """The handler counts what counts. It is cancelled when its client disconnects, like one that is counted."""
    is_plain_read: bool = False
    """An operator's route that changes nothing and shows no content of callers: it leaves no entry in the audit log."""
    shows_other_callers: bool = False
    """Shows the caller its own content, and an operator also that of others."""

    def is_audited_for(self, caller: Caller) -> bool:
        """Whether a request of this caller is one of an operator that the audit log must have."""
        if self.is_admin:
            return not self.is_plain_read
        return self.shows_other_callers and caller.can_read_all_callers

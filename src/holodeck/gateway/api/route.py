"""Routes, each declared on the handler that answers it.

    @route("GET", "/v1/models/{id}", id="getModel", tag="Models", summary="Get a model", ...)
    async def get_model(self, request: Request) -> Reply: ...

A route is plain data: what the application does with a request before and after the handler, and what the OpenAPI
document and the reference say of it. `collect_routes` finds the routes of endpoint objects and binds them to their
methods; `list_declared` finds those of the classes, for what only describes them.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from holodeck.lib.record import record

if TYPE_CHECKING:
    from holodeck.gateway.auth.callers import Caller
    from holodeck.gateway.http.error_codes import ErrorGroup
    from holodeck.gateway.http.request import Handler
    from holodeck.models.callers import Role

HandlerT = TypeVar("HandlerT", bound=Callable[..., Awaitable[Any]])
# The attribute of a handler that has its declarations.
_DECLARED = "declared_routes"


class Parameter(Protocol):
    """A parameter of a query or a header, which a handler reads by the same object that describes it."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    def build_schema(self) -> dict[str, Any]:
        """Build the JSON Schema of its values."""
        ...


# No `record`: a decorator is read with its method and path first, without their names.
@dataclass(frozen=True)
class Route:
    """A method and a path, what a request needs there, and what the document says of it. Decorates the handler."""

    method: str
    path: str
    """May have parameters in braces: `/v1/responses/{id}`."""
    _: KW_ONLY
    id: str
    """The name of the operation in the document."""
    tag: str
    """Of `TAGS` in `openapi/document.py`."""
    summary: str
    description: str
    reply: str | Mapping[str, Any] | None
    """The schema of a successful reply, or the name of one of the document. None: it has no body."""
    example: Any = None
    body: str | None = None
    """The name of the schema of the request body."""
    is_body_required: bool = True
    example_body: Any = None
    stream: str | None = None
    """The name of the schema of each event, for routes that can stream."""
    query: tuple[Parameter, ...] = ()
    headers: tuple[Parameter, ...] = ()
    """The headers of a request that it may have."""
    errors: tuple[ErrorGroup, ...] = ()
    """Beside those that the flags imply."""
    media_type: str = "application/json"
    other_media_types: tuple[str, ...] = ()
    """Others of a successful reply, for clients that accept them: text."""
    error: str = "Error"
    """The name of the schema of an error."""
    unready_reply: str | None = None
    """The name of the schema of a reply with status 503 that is no error."""
    empty_replies: Mapping[int, str] = field(default_factory=dict)
    """Successful replies without a body: their statuses, and what each means."""
    other_replies: Mapping[int, str] = field(default_factory=dict)
    """Replies of JSON with statuses that a standard prescribes, and errors in its form: names of schemas, by status."""
    error_pages: Mapping[int, str] = field(default_factory=dict)
    """Errors that a person sees in a browser, as pages of HTML: by status, when they happen."""
    refusals: Mapping[int, str] = field(default_factory=dict)
    """Errors of a route with JSON-RPC that have no code in the table of errors: by status, when they happen."""

    is_public: bool = False
    """Needs no key. The host is not checked either: probes come by address."""
    roles: tuple[Role, ...] = ()
    """The roles of which a caller needs one. Empty: every caller may use it, but those with the role `metrics`."""
    checks_caller: bool = False
    """The handler decides itself which callers without one of the roles may use it, and refuses the others."""
    is_unscoped: bool = False
    """Needs a key without a scope: it is about what all callers may do."""
    is_counted: bool = True
    """Counts against the request limits of its caller. Public routes are never counted."""
    is_paid: bool = False
    """Uses a model, so that the budget of its caller is checked before its body is read."""
    may_have_slashes: bool = False
    """The path parameter may contain slashes, as names of models do."""
    counts_itself: bool = False
    """The handler counts what counts. It is cancelled when its client disconnects, like one that is counted."""
    is_plain_read: bool = False
    """A route for a role that changes nothing and shows no content of callers: it leaves no entry in the audit log."""
    takes_form: bool = False
    """Takes a form as its body, as OAuth has it, and no JSON."""
    shows_other_callers: bool = False
    """Shows the caller its own content, and an operator also that of others."""

    def __call__(self, handler: HandlerT) -> HandlerT:
        """Declare the route on its handler, before those that are declared on it already."""
        setattr(handler, _DECLARED, (self, *_routes_of(handler)))
        return handler

    def compile_path(self) -> re.Pattern[str]:
        """Compile the pattern of its paths, with a group for each parameter."""
        part = ".+" if self.may_have_slashes else "[^/]+"
        return re.compile(re.sub(r"\{(\w+)\}", rf"(?P<\1>{part})", self.path))

    def is_audited_for(self, caller: Caller) -> bool:
        """Return whether a request of this caller is one of an operator that the audit log must have."""
        if self.roles:
            return not self.is_plain_read
        return self.shows_other_callers and caller.can_read_all_figures


route = Route
"""The decorator of a handler: `@route("GET", "/healthz", ...)`."""


@record
class BoundRoute:
    """A route with the method of an endpoint object that answers it."""

    route: Route
    handler: Handler


def collect_routes(*endpoints: object) -> list[BoundRoute]:
    """Return the routes of these objects, in the order of the objects and then of their methods."""
    return [
        BoundRoute(route=declared, handler=getattr(endpoint, name))
        for endpoint in endpoints
        for name, declared in _find_declared(type(endpoint))
    ]


def list_declared(endpoints: Iterable[type]) -> list[Route]:
    """Return the routes of these classes, in the order in which `collect_routes` has them."""
    return [declared for endpoint in endpoints for _, declared in _find_declared(endpoint)]


def _find_declared(endpoint: type) -> Iterator[tuple[str, Route]]:
    """Yield each route with the name of its method, those of base classes first."""
    for owner in reversed(endpoint.__mro__):
        for name, member in vars(owner).items():
            yield from ((name, declared) for declared in _routes_of(member))


def _routes_of(handler: object) -> tuple[Route, ...]:
    declared: tuple[Route, ...] = getattr(handler, _DECLARED, ())
    return declared

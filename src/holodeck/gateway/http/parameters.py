"""Parameters of a request beside its body: those of the query, and the header `Idempotency-Key`.

A parameter is one object that a route declares, that its handler reads by, and that the OpenAPI document is built from.
`read` raises the `APIError` of an invalid value.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

from holodeck.gateway.http.errors import APIError
from holodeck.gateway.http.request import Request
from holodeck.lib.errors import BadRequestError
from holodeck.lib.limits import MAX_SHOWN_CHARS
from holodeck.lib.record import record
from holodeck.storage.idempotency_keys import IdempotencyKey

LIST_LIMIT = 20
MAX_LIST_LIMIT = 100
# The latest time that a query may name, in seconds since 1970: the year 9999, the last one of many calendars.
MAX_TIME = 253_402_300_799

IDEMPOTENCY_HEADER = "idempotency-key"
# As much as other APIs allow: a UUID has 36.
MAX_KEY_CHARS = 255
REPLAYED_HEADER = {"idempotent-replayed": "true"}
"""The header of a reply that another request was answered with before."""

Order = Literal["asc", "desc"]
ChoiceT = TypeVar("ChoiceT", bound=str)
Schema = dict[str, Any]
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@record
class TextParameter:
    """Any text."""

    name: str
    about: str = ""
    values: tuple[str, ...] = ()
    """The values that mean something, where there are few. Others are accepted, and find nothing."""
    min_length: int | None = None
    max_length: int | None = None

    def read(self, query: Mapping[str, str]) -> str | None:
        return query.get(self.name)

    def build_schema(self) -> Schema:
        lengths = {"minLength": self.min_length, "maxLength": self.max_length}
        limits = {key: value for key, value in lengths.items() if value is not None}
        return {"type": "string", **({"enum": list(self.values)} if self.values else {}), **limits}


@record
class ChoiceParameter(Generic[ChoiceT]):
    """One of a few words."""

    name: str
    about: str = ""
    values: tuple[ChoiceT, ...]
    default: ChoiceT
    joint: str = ", "
    """Between the words in the refusal of another one."""

    def read(self, query: Mapping[str, str]) -> ChoiceT:
        given = query.get(self.name, self.default)
        for value in self.values:
            if value == given:
                return value
        raise _unknown_value_error(self.name, given, self.values, self.joint)

    def build_schema(self) -> Schema:
        return {"type": "string", "enum": list(self.values)}


@record
class WordsParameter:
    """Some of a few words, with commas between them, each once."""

    name: str
    values: tuple[str, ...]
    example: str

    @property
    def about(self) -> str:
        return f"Words with commas between them: {', '.join(f'`{value}`' for value in self.values)}."

    def read(self, query: Mapping[str, str]) -> tuple[str, ...]:
        words = tuple(dict.fromkeys(filter(None, query.get(self.name, "").split(","))))
        for word in words:
            if word not in self.values:
                raise _unknown_value_error(self.name, word, self.values)
        return words

    def build_schema(self) -> Schema:
        return {"type": "string", "examples": [self.example]}


@record
class IntegerParameter:
    """A whole number between two others."""

    name: str
    about: str
    default: int
    minimum: int
    maximum: int

    def read(self, query: Mapping[str, str]) -> int:
        text = query.get(self.name)
        if text is None:
            return self.default
        try:
            number = int(text)
        except ValueError:
            message = f"Invalid type for '{self.name}': expected an integer."
            raise _invalid_query_error(self.name, message, "invalid_type") from None
        if number < self.minimum:
            message = f"Expected at least {self.minimum}, but got {number}."
            message = f"Invalid '{self.name}': integer below minimum value. {message}"
            raise _invalid_query_error(self.name, message, "integer_below_min_value")
        if number > self.maximum:
            message = f"Expected at most {self.maximum}, but got {number}."
            message = f"Invalid '{self.name}': integer above maximum value. {message}"
            raise _invalid_query_error(self.name, message, "integer_above_max_value")
        return number

    def build_schema(self) -> Schema:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}


@record
class TimeParameter:
    """A time in seconds since 1970."""

    name: str
    about: str

    def read(self, query: Mapping[str, str]) -> float | None:
        """Return the seconds. None: it is left out."""
        text = query.get(self.name)
        if text is None:
            return None
        try:
            seconds = float(text)
        except ValueError:
            seconds = math.nan
        if not 0 <= seconds <= MAX_TIME:
            message = f"Invalid value for '{self.name}': expected seconds since 1970, from 0 to {MAX_TIME}."
            raise _invalid_query_error(self.name, message)
        return seconds

    def build_schema(self) -> Schema:
        return {"type": "number", "minimum": 0}


@record
class FlagParameter:
    """A boolean, as client languages spell it (`true`, `True`, `1`); false by default."""

    name: str
    about: str

    def read(self, query: Mapping[str, str]) -> bool:
        text = query.get(self.name, "false")
        if text.lower() not in _FLAGS:
            message = f"Invalid value for '{self.name}': {text!r}. Supported values are: 'true' and 'false'."
            raise _invalid_query_error(self.name, message)
        return _FLAGS[text.lower()]

    def build_schema(self) -> Schema:
        return {"type": "boolean"}


def build_limit(what: str) -> IntegerParameter:
    """Build the parameter for the largest number of entries of a page. `what`: the word for several of them."""
    about = f"{what} of a page. Left out: {LIST_LIMIT}."
    return IntegerParameter(name="limit", about=about, default=LIST_LIMIT, minimum=1, maximum=MAX_LIST_LIMIT)


ORDER: ChoiceParameter[Order] = ChoiceParameter(
    name="order",
    about="`desc`, the default, has the newest first.",
    values=("asc", "desc"),
    default="desc",
    joint=" and ",
)
AFTER = TextParameter(name="after", about="`last_id` of the page before.")
ITEM_AFTER = TextParameter(name="after", about="The id of the last item of the page before.")
ITEM_LIMIT = build_limit("Items")
ITEMS_PAGE = (ORDER, ITEM_AFTER, ITEM_LIMIT)
IDEMPOTENCY_KEY = TextParameter(
    name="Idempotency-Key",
    about=(
        "A request that is sent again with the same key within 24 hours has the response of the first, and the header "
        "`idempotent-replayed: true`. Needs `store`."
    ),
    min_length=1,
    max_length=MAX_KEY_CHARS,
)


def page_of(entries: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """Build the page of `entries` that the parameters of `ITEMS_PAGE` select. `entries` are the oldest first."""
    listed = list(entries) if ORDER.read(query) == "asc" else list(reversed(entries))
    after = ITEM_AFTER.read(query)
    if after is not None:
        index = next((index for index, entry in enumerate(listed) if entry.get("id") == after), None)
        if index is None:
            raise item_not_listed_error(after)
        listed = listed[index + 1 :]
    limit = ITEM_LIMIT.read(query)
    return build_page(listed[:limit], has_more=len(listed) > limit)


def item_not_listed_error(after: str) -> APIError:
    """Build the error for an `after` that is the id of no item in the list."""
    shown = after[:MAX_SHOWN_CHARS]
    return _invalid_query_error("after", f"There is no item with id {shown!r} in this list.", "item_not_found")


def build_page(entries: Sequence[dict[str, Any]], *, has_more: bool = False) -> dict[str, Any]:
    """Build the list object of the API, of all entries or of one page of them."""
    return {
        "object": "list",
        "data": entries,
        "first_id": entries[0]["id"] if entries else None,
        "last_id": entries[-1]["id"] if entries else None,
        "has_more": has_more,
    }


def read_idempotency_key(request: Request, body: Any) -> IdempotencyKey:
    """Return the key of a request that has one. Raises `BadRequestError` where it cannot be used."""
    value = request.headers[IDEMPOTENCY_HEADER]
    if not value or len(value) > MAX_KEY_CHARS or not (value.isascii() and value.isprintable()):
        message = f"The header 'Idempotency-Key' has 1 to {MAX_KEY_CHARS} printable characters of ASCII."
        raise BadRequestError(message, code="invalid_value", param="Idempotency-Key")
    if isinstance(body, dict) and body.get("store") is False:
        message = "The header 'Idempotency-Key' needs 'store': true: what is not stored cannot be returned again."
        raise BadRequestError(message, code="invalid_value", param="Idempotency-Key")
    return IdempotencyKey(caller_id=request.caller.id, value=value, digest=hashlib.sha256(request.body).digest())


def check_same_request(key: IdempotencyKey, stored: IdempotencyKey) -> None:
    """Raise `APIError` 422 if a key was first sent with another body."""
    if key.digest != stored.digest:
        message = "This 'Idempotency-Key' was sent with another body before. Use a new key for another request."
        raise APIError(422, message, kind="invalid_request", code="idempotency_key_reused")


def _unknown_value_error(name: str, value: str, known: Iterable[str], joint: str = ", ") -> APIError:
    listed = joint.join(f"'{each}'" for each in known)
    message = f"Invalid value for '{name}': {value[:MAX_SHOWN_CHARS]!r}. Supported values are: {listed}."
    return _invalid_query_error(name, message)


def _invalid_query_error(param: str, message: str, code: str = "invalid_value") -> APIError:
    return APIError(400, message, kind="invalid_request", code=code, param=param)

"""What every model that comes from a file shares: no unknown key, no silent coercion, no change after loading."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints
from pydantic_core import PydanticCustomError

from holodeck.lib.limits import MAX_SHOWN_CHARS


class Substituted(str):
    """Text in which a `${VARIABLE}` was replaced: `written` is how it stands in the file, the only form ever shown."""

    __slots__ = ("written",)
    written: str

    def __new__(cls, value: str, written: str) -> Substituted:
        self = super().__new__(cls, value)
        self.written = written
        return self

    def __repr__(self) -> str:
        """A list or mapping that is quoted in a message quotes what is in it by this."""
        return repr(self.written)

    def __deepcopy__(self, memo: object) -> Substituted:
        return self


def as_written(value: object) -> str:
    """A value as it stands in the file, with its references still in it."""
    return value.written if isinstance(value, Substituted) else str(value)


def quote_value(value: object) -> str:
    """A value as a message may quote it: as written in the file, short, on one line."""
    text = as_written(value)
    text = "".join(char if char.isprintable() else "?" for char in text)
    return f"'{text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + '...'}'"


class FileModel(BaseModel):
    """A mapping in a file of ours."""

    model_config = ConfigDict(
        # Built with the first file that needs it: a command reads one or two of the dozen kinds.
        defer_build=True,
        extra="forbid",
        frozen=True,
        strict=True,
        populate_by_name=True,
        hide_input_in_errors=True,
    )


def text_or_mapping(value: Any) -> str:
    """Which of the two forms a value has, so that an error speaks of the form the person chose."""
    return "mapping" if isinstance(value, (dict, FileModel)) else "text"


def _coerce_number(value: Any) -> Any:
    """A number may come out of a variable, which is always text; a quoted number in the file itself is a mistake."""
    if isinstance(value, Substituted):
        for kind in (int, float):
            try:
                return kind(value)
            except ValueError:
                continue
        raise PydanticCustomError("number_in_variable", "the variable does not hold a number")
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)  # 1e3 and 60.0 are whole numbers to a person
    return value


def _coerce_boolean(value: Any) -> Any:
    if isinstance(value, Substituted):
        known = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
        if value.strip().lower() not in known:
            raise PydanticCustomError("boolean_in_variable", "the variable does not hold true or false")
        return known[value.strip().lower()]
    return value


Integer = Annotated[int, BeforeValidator(_coerce_number)]
Number = Annotated[float, BeforeValidator(_coerce_number)]
Boolean = Annotated[bool, BeforeValidator(_coerce_boolean)]
NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

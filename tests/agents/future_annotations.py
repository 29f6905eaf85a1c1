"""A module of a user whose annotations are texts at run time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from holodeck import RunContext

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Address:
    street: str
    number: int = 1


def send(context: RunContext[str], to: Address, urgent: Annotated[bool, Field(description="At once?")]) -> Decimal:  # type: ignore[return]
    """Send a letter.

    Args:
        to: Where it goes.
        urgent: Not used, because the annotation says more.
    """
    print(context.deps, to, urgent)


def hidden(amount: Decimal) -> None:
    """Has a type that only type checkers see."""

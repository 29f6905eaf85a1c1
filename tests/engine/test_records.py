"""Records compare, hash and show themselves as dataclasses do."""

from __future__ import annotations

from dataclasses import dataclass, field

from holodeck.lib.record import record


@record
class _Place:
    name: str
    marks: list[int] = field(default_factory=list, hash=False)
    note: str = field(default="", compare=False, repr=False)


@dataclass(kw_only=True, unsafe_hash=True)
class _DataclassPlace:
    name: str
    marks: list[int] = field(default_factory=list, hash=False)
    note: str = field(default="", compare=False, repr=False)


@record
class _Named:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Named)

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return "named"


@record
class _Empty:
    pass


def test_a_record_is_equal_by_the_fields_that_count_and_to_its_own_kind_only() -> None:
    place = _Place(name="here", marks=[1], note="old")
    assert place == _Place(name="here", marks=[1], note="new")
    assert place != _Place(name="here", marks=[2], note="old")
    others: list[object] = [_DataclassPlace(name="here", marks=[1], note="old"), _Empty()]
    assert place not in others
    assert _Empty() == _Empty()


def test_the_hash_and_the_text_of_a_record_are_those_of_a_dataclass() -> None:
    place, other = _Place(name="here", marks=[1], note="x"), _DataclassPlace(name="here", marks=[1], note="x")
    assert hash(place) == hash(other) == hash(_Place(name="here", marks=[2]))
    assert repr(place) == repr(other).replace("_DataclassPlace", "_Place")
    assert (repr(_Empty()), hash(_Empty())) == ("_Empty()", hash(()))


def test_a_record_keeps_the_methods_of_its_class() -> None:
    one, other = _Named(name="one"), _Named(name="other")
    assert (one == other, hash(one), repr(one)) == (True, 1, "named")

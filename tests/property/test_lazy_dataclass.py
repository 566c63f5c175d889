"""`penstock.lazy_dataclass` against the standard library's dataclass: both make the same of a class."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.lazy_dataclass import compile_all
from penstock.lazy_dataclass import dataclass as lazy

OPTIONS = st.fixed_dictionaries(
    {"frozen": st.booleans(), "slots": st.booleans(), "eq": st.booleans(), "kw_only": st.booleans()}
)
FIELDS = st.lists(
    st.fixed_dictionaries(
        {
            "with_default": st.sampled_from(["", "value", "factory"]),
            "repr": st.booleans(),
            "compare": st.booleans(),
        }
    ),
    max_size=5,
)
VALUES = st.lists(st.integers(0, 2), min_size=5, max_size=5)


def body(shape: list[dict[str, Any]]) -> dict[str, Any]:
    """The namespace of a class with the fields a0, a1, ...; those with a default come last."""
    shape = sorted(shape, key=lambda one: bool(one["with_default"]))
    namespace: dict[str, Any] = {"__annotations__": {"TAG": "ClassVar[int]"}, "TAG": 7, "__doc__": "Made up."}
    for at, one in enumerate(shape):
        more = {"": {}, "value": {"default": at}, "factory": {"default_factory": lambda: 1}}
        namespace[f"a{at}"] = dataclasses.field(
            **more[one["with_default"]], repr=one["repr"], compare=one["compare"]
        )
        namespace["__annotations__"][f"a{at}"] = "int"
    return namespace


def outcome(call: Callable[[], Any]) -> Any:
    """The value of a call, or its error."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def copied(one: Any) -> dict[str, Any]:
    """The fields of a copy."""
    return dataclasses.asdict(copy.copy(one))


@given(OPTIONS, FIELDS, VALUES, VALUES, st.integers(0, 6))
def test_both_make_the_same_of_a_class(
    options: dict[str, bool], shape: list[dict[str, Any]], one: list[int], other: list[int], given_count: int
) -> None:
    seen = []
    for decorate in (lazy, dataclasses.dataclass):
        made: Any = decorate(**options)(type("Made", (), body(shape)))
        names = [field.name for field in dataclasses.fields(made)]

        def build(values: list[int], made: Any = made, names: list[str] = names) -> Any:
            if options["kw_only"]:
                return made(**dict(zip(names, values[:given_count], strict=False)))
            return made(*values[:given_count])

        first = outcome(lambda: build(one))
        told: list[Any] = [made.__match_args__, made.__doc__, hasattr(made, "__slots__")]
        if isinstance(first, made):
            same, second = build(one), build(other)
            told += [repr(first), first == second, first == same, first == 1, dataclasses.asdict(first)]
            told += [copied(first), outcome(lambda: hash(first) == hash(same))]  # noqa: B023 - called at once
            if names:
                told.append(outcome(lambda: dataclasses.asdict(dataclasses.replace(same, a0=5))))  # noqa: B023
                told.append(outcome(lambda: setattr(same, "a0", 9)))  # noqa: B023
                told.append(outcome(lambda: delattr(same, "a0")))  # noqa: B023
        else:
            told.append(first)
        seen.append(told)
    assert seen[0] == seen[1]


@lazy(frozen=True, slots=True)
class Point:
    x: int
    y: int = dataclasses.field(default=0, compare=False)
    NAME: ClassVar = "point"


@lazy(slots=True)
class Counted:
    values: list[int] = dataclasses.field(default_factory=list)
    total: int = dataclasses.field(init=False)
    seen: int = dataclasses.field(default=3, init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.values)


@lazy(slots=True)
class Named(Counted):
    name: str = ""


def test_objects_that_do_not_change_are_copied_and_pickled() -> None:
    point = Point(1, 2)
    assert pickle.loads(pickle.dumps(point)) == point == copy.deepcopy(point)
    assert pickle.loads(pickle.dumps(point)).y == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 3  # type: ignore[misc]


def test_fields_that_are_not_given_are_set_afterwards() -> None:
    assert (Counted([1, 2]).total, Counted().values, Counted().seen) == (3, [], 3)
    assert Counted().values is not Counted().values
    named = Named([4], "a")
    assert (named.total, named.name) == (4, "a")
    with pytest.raises(TypeError, match=r"Named.__init__\(\) takes from 1 to 3 positional arguments but 4"):
        Named([4], "a", 1)  # type: ignore[call-arg]


def test_methods_that_the_class_has_stay() -> None:
    @lazy(eq=False)
    class Own:
        x: int

        def __repr__(self) -> str:
            return "own"

    assert repr(Own(1)) == "own"
    assert Own(1) != Own(1)
    assert len({Own(1), Own(1)}) == 2


def test_a_class_that_made_no_object_has_compiled_nothing() -> None:
    @lazy(frozen=True, slots=True)
    class Made:
        x: int

    file = sys.modules[lazy.__module__].__file__
    assert Made.__init__.__code__.co_filename == file
    assert Made(1) == Made(1)
    assert Made.__init__.__code__.co_filename != file


def test_all_classes_can_be_compiled_before_they_make_an_object() -> None:
    @lazy(frozen=True, slots=True)
    class Place:
        x: int
        y: int = 2

    @lazy()
    class Own:
        x: int

        def __init__(self) -> None:
            self.x = 5

    own = Own.__init__
    assert hasattr(Place.__init__, "is_first")
    compile_all()
    assert not hasattr(Place.__init__, "is_first")
    assert Place(1) == Place(1, 2)
    assert Own.__init__ is own and Own().x == 5

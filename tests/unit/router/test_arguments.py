"""Tables of arguments: kept exactly, compared as a broker compares; equal tables have equal encodings."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.router.arguments import decode_table, encode_table, same_value

TEXT = st.text(max_size=8) | st.binary(max_size=4).map(lambda data: data.decode("utf-8", "surrogateescape"))
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=8)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.datetimes(timezones=st.just(UTC))
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8
)


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_a_table_comes_back_as_it_was(table: dict[str, object]) -> None:
    encoded = encode_table(table)
    assert decode_table(encoded) == table
    assert encode_table(dict(reversed(table.items()))) == encoded


def test_types_survive() -> None:
    table = {
        "t": True,
        "i": 1,
        "f": 1.0,
        "b": b"x",
        "d": Decimal("1.50"),
        "z": datetime(2024, 1, 2, tzinfo=UTC),
    }
    decoded = decode_table(encode_table(table))
    assert {name: type(value) for name, value in decoded.items()} == {
        name: type(value) for name, value in table.items()
    }
    assert math.isnan(decode_table(encode_table({"n": math.nan}))["n"])


def test_different_tables_have_different_encodings() -> None:
    tables: list[dict[str, object]] = [
        {},
        {"a": None},
        {"a": 1},
        {"a": "1"},
        {"a": b"1"},
        {"a": True},
        {"a": [1]},
        {"a": {"o": 1}},
        {"a": {"b": "MQ=="}},
    ]
    assert len({encode_table(table) for table in tables}) == len(tables)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, False),
        (1, Decimal(1), False),
        (1.0, Decimal(1), False),
        (Decimal("1.0"), Decimal("1.0"), True),
        (Decimal("1.0"), Decimal(1), False),
        ([1], [1.0], False),
        ({"a": [1]}, {"a": [True]}, False),
        ({"a": {"b": 1}}, {"a": {"b": 1}}, True),
        ({"a": 1}, {"a": 1, "b": 1}, False),
        (1, True, False),
        (0, False, False),
        (True, True, True),
        ("a", b"a", True),
        ("1", 1, False),
        (None, None, True),
        (None, 0, False),
        ([1], [1], True),
    ],
)
def test_values_are_the_same_as_a_broker_sees_them(left: object, right: object, same: bool) -> None:
    assert same_value(left, right) is same
    assert same_value(right, left) is same


def test_values_that_no_table_can_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="set"):
        encode_table({"a": {1, 2}})
    with pytest.raises(ValueError, match="key"):
        encode_table({"a": {1: 2}})
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="deeper"):
        encode_table({"a": deep})

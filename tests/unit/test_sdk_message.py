"""The names of messages."""

from __future__ import annotations

import pickle

import pytest

from penstock.protocols.native._records import fitting, message_ids
from penstock.sdk.message import MessageId


def test_ids_are_values_in_the_order_of_the_log() -> None:
    one, later = MessageId(7), MessageId(7, 5)
    assert one == MessageId(7, due_ms=0) and hash(one) == hash(MessageId(7)) and one != later
    assert one != 7 and not one == "pos:7"
    assert one < later < MessageId(8) and MessageId(8) >= later > one <= one
    assert sorted([MessageId(9), later, one]) == [one, later, MessageId(9)]
    assert (str(later), repr(later)) == ("pos:7", "MessageId(position=7, due_ms=5)")
    assert pickle.loads(pickle.dumps(later)) == later
    with pytest.raises(TypeError):
        one < 7  # type: ignore[operator]  # noqa: B015
    with pytest.raises(AttributeError):
        one.position = 8
    assert message_ids(7, 3, 1) == [MessageId(7, 1), MessageId(8, 1), MessageId(9, 1)]
    assert message_ids(0, 2, 0) == [MessageId(0), MessageId(0)]


def test_a_batch_takes_what_fits() -> None:
    bodies = [b"x" * 10] * 5
    assert fitting(bodies, 0, 3, 1000) == (3, 30)
    assert fitting(bodies, 3, 3, 1000) == (5, 20)
    assert fitting(bodies, 0, 9, 15) == (2, 20)
    assert fitting(bodies, 5, 9, 15) == (5, 0)
    with pytest.raises(TypeError):
        fitting([b"", "text"], 0, 9, 9)  # type: ignore[list-item]

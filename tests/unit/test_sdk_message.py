"""The names of messages."""

from __future__ import annotations

import pickle

import pytest

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

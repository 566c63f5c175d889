"""The effect of an outcome on a delivery."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.protocols.amqp10.channel._core import (
    HOW_ACCEPTED,
    HOW_DEFAULT,
    HOW_FAILED,
    HOW_REJECTED,
    HOW_RELEASED,
    end_delivery,
)
from penstock.protocols.amqp10.channel.refusals import SessionError
from penstock.protocols.amqp10.codec.performatives import Accepted, Modified, Rejected
from penstock.protocols.amqp10.codec.values import Symbol
from penstock.protocols.amqp10.messages.annotating import NOTE_MAX, merged

if TYPE_CHECKING:
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["annotate", "how_of", "settle"]


_CONDITION: Final = Symbol("x-opt-rejected-condition")
_DESCRIPTION: Final = Symbol("x-opt-rejected-description")
_DESCRIPTION_MAX: Final = 1024


def how_of(outcome: Any) -> int:
    """How a delivery with this outcome ends; unknown ones: it was not processed. None: as its link says."""
    match outcome:
        case None:
            return HOW_DEFAULT
        case Accepted():
            return HOW_ACCEPTED
        case Rejected() | Modified(undeliverable_here=True):
            return HOW_REJECTED
        case Modified(delivery_failed=True):
            return HOW_FAILED
    return HOW_RELEASED


def annotate(cursor: Cursor, seq: int, outcome: Any) -> None:
    """Keep the annotations of an outcome with the message, and the error of one that is rejected.

    Raises SessionError: there is no room for annotations. An error without room is left out.
    """
    if isinstance(outcome, Rejected) and outcome.error is not None:
        error = outcome.error
        why = {_CONDITION: error.condition, _DESCRIPTION: (error.description or "")[:_DESCRIPTION_MAX]}
        note = merged(cursor.note_of(cursor.position(seq)), why)
        if len(note) <= NOTE_MAX:
            cursor.note(seq, note)
        return
    if not isinstance(outcome, Modified) or not outcome.message_annotations:
        return
    note = merged(cursor.note_of(cursor.position(seq)), outcome.message_annotations)
    if len(note) > NOTE_MAX:
        raise SessionError(
            "amqp:resource-limit-exceeded",
            f"annotations of modified messages have at most {NOTE_MAX} bytes each",
        )
    if not cursor.note(seq, note):
        raise SessionError(
            "amqp:resource-limit-exceeded", "the queue keeps annotations of modified messages up to 1 MiB"
        )


def settle(cursor: Cursor, seq: int, outcome: Any) -> None:
    """The delivery has this outcome; its annotations are kept already."""
    end_delivery(cursor, seq, how_of(outcome))

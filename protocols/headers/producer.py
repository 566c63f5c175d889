"""Which message of which producer it is, by headers: what comes again is confirmed and not appended.

x-penstock-producer     text, at most 255 bytes: the producer's name, its user's in the vhost
x-penstock-sequence     an integer in [0, 2^63): the message's number, higher than any before it
"""

from __future__ import annotations

from typing import Final

from penstock.protocols.headers.errors import HeaderRefused
from penstock.protocols.properties.values import Table
from penstock.router.names import wire
from penstock.router.rows import ProducerName, producer_name

__all__ = ["numbered"]

_PRODUCER: Final = "x-penstock-producer"
_SEQUENCE: Final = "x-penstock-sequence"


def numbered(vhost: str, user: str, headers: Table) -> tuple[ProducerName, int] | None:
    """The producer's name, and the message's number; None: it has none.

    Raises:
        HeaderRefused: one header without the other, or a value of another type.

    """
    name, sequence = headers.get(_PRODUCER), headers.get(_SEQUENCE)
    if name is None and sequence is None:
        return None
    if not isinstance(name, str) or not 0 < len(wire(name)) <= 255:
        raise HeaderRefused(f"invalid header '{_PRODUCER}': a text of 1 to 255 bytes is wanted{_found(name)}")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 2**63:
        raise HeaderRefused(
            f"invalid header '{_SEQUENCE}': an integer from 0 to 2^63 - 1 is wanted{_found(sequence)}"
        )
    return producer_name("amqp", vhost, user, name), sequence


def _found(value: object) -> str:
    return ", and there is none" if value is None else f", not {str(value)[:64]!r}"

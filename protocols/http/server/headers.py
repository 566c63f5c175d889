"""Headers of a message that are for the gateway: when it is due, who else gets it, which one it is.

    x-penstock-deliver-after            ms from now
    x-penstock-deliver-at               ms since the epoch
    x-penstock-delay-id                 its name while it waits
    CC, BCC                             lists of further routing keys; BCC is taken out
    x-penstock-producer, -sequence      a producer's name and the message's number

They mean what they mean in AMQP (docs/reference/amqp.md). Mistakes are refused with 400.
"""

from __future__ import annotations

from typing import Any, Final

from penstock.protocols.http.server.messages import HttpError
from penstock.protocols.http.server.numbers import whole
from penstock.router.messages.delay_names import delay_name
from penstock.router.messages.delayed import HORIZON_MS
from penstock.router.names import wire
from penstock.router.rows import ProducerName, producer_name

__all__ = [
    "DELAY_ID",
    "DELIVER_AFTER",
    "DELIVER_AT",
    "PRODUCER",
    "SEQUENCE",
    "check_delay",
    "copies_of",
    "delay_name_of",
    "due_from",
    "due_of",
    "numbered",
]

DELIVER_AFTER: Final = "x-penstock-deliver-after"
DELIVER_AT: Final = "x-penstock-deliver-at"
DELAY_ID: Final = "x-penstock-delay-id"
PRODUCER: Final = "x-penstock-producer"
SEQUENCE: Final = "x-penstock-sequence"


def due_from(wait_ms: Any, at_ms: Any, wall_ms: int, names: tuple[str, str]) -> int:
    """When a message is due, in ms since the epoch; 0 = now.

    Args:
        wait_ms: Milliseconds from now, or None.
        at_ms: Milliseconds since the epoch, or None.
        names: The names of the two where they came from.

    Raises:
        HttpError: 400, not a number, both at once, or more than 100 years away.

    """
    if wait_ms is None and at_ms is None:
        return 0
    if wait_ms is not None and at_ms is not None:
        raise _bad(names[0], f"{names[1]} is there, too: set one of them")
    name, given = (names[0], wait_ms) if at_ms is None else (names[1], at_ms)
    value = whole(given)
    if value is None:
        raise _bad(name, "a whole number of milliseconds")
    wait = value if at_ms is None else value - wall_ms
    if wait > HORIZON_MS:
        raise _bad(name, f"more than {HORIZON_MS} ms (100 years) from now")
    # The millisecond under way is not over: with one more nothing is early.
    return wall_ms + wait + 1 if wait > 0 else 0


def due_of(headers: dict[str, Any], wall_ms: int) -> int:
    """The same by the headers, which are taken out. Raises HttpError 400."""
    wait_ms, at_ms = headers.pop(DELIVER_AFTER, None), headers.pop(DELIVER_AT, None)
    return due_from(wait_ms, at_ms, wall_ms, (DELIVER_AFTER, DELIVER_AT))


def delay_name_of(headers: dict[str, Any], vhost: str, exchange: str) -> bytes | None:
    """The key of its name while it waits, by the header, which is taken out. Raises HttpError 400."""
    name = headers.pop(DELAY_ID, None)
    if name is None:
        return None
    if not isinstance(name, str) or not 0 < len(wire(name)) <= 255:
        raise _bad(DELAY_ID, "a text of 1 to 255 bytes")
    return delay_name(vhost, exchange, name)


def check_delay(value: Any) -> None:
    """The header x-delay of a message to an exchange that delays. Raises HttpError 400."""
    if isinstance(value, bool) or not isinstance(value, int) or value > HORIZON_MS:
        raise _bad("x-delay", f"a whole number of milliseconds, at most {HORIZON_MS}")


def copies_of(headers: dict[str, Any]) -> list[str]:
    """Further routing keys; BCC is taken out. Raises HttpError 400."""
    keys: list[str] = []
    for name, value in (("CC", headers.get("CC")), ("BCC", headers.pop("BCC", None))):
        if value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
            raise _bad(name, "a list of routing keys")
        keys += value
    return keys


def numbered(vhost: str, user: str, headers: dict[str, Any]) -> tuple[ProducerName, int] | None:
    """The producer's name in AMQP, and the message's number; None: it has none.

    Raises:
        HttpError: 400, one without the other, or a value of another type.

    """
    name, sequence = headers.get(PRODUCER), headers.get(SEQUENCE)
    if name is None and sequence is None:
        return None
    if not isinstance(name, str) or not 0 < len(wire(name)) <= 255:
        raise _bad(PRODUCER, "a text of 1 to 255 bytes, beside the number")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence < 2**63:
        raise _bad(SEQUENCE, "a whole number from 0 to 2^63 - 1, beside the producer")
    return producer_name("amqp", vhost, user, name), sequence


def _bad(name: str, detail: str) -> HttpError:
    return HttpError(400, "bad_field", f"{name}: {detail}")

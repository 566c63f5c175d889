"""Half messages over AMQP: headers that prepare, commit and roll back; questions come by a queue.

    x-penstock-half              the name of a message that is kept and not published
    x-penstock-check-queue       the queue where is asked about it
    x-penstock-check-after, x-penstock-check-each    ms: when is asked first, and then (6,000, 30,000)
    x-penstock-max-checks, x-penstock-half-expires   when it is given up: questions, ms (15, 3 days)
    x-penstock-half-dead-letter  the queue for what is given up; without it that is dropped
    x-penstock-commit            the message of this name is published; this one goes nowhere
    x-penstock-rollback          the message of this name is forgotten; this one goes nowhere

A confirm says that it is on the disk. A decision that cannot be made (any more) is refused: with basic.nack
or, on a channel without confirms, the end of the channel; in AMQP 1.0 with the outcome rejected. A question
is a message with the headers `x-penstock-check` (the name) and `x-penstock-checks` (how often was asked), and
the body of the half message.

Names are a user's in a vhost: any of its connections may decide. A repeated message with an undecided
name is confirmed, and nothing new is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.lazy_dataclass import dataclass
from penstock.log_core.batch._batch import PERSISTENT
from penstock.protocols.headers.errors import HeaderRefused
from penstock.protocols.properties.properties import encode_properties
from penstock.protocols.properties.values import Table
from penstock.router.errors import NotFound
from penstock.router.messages.half import Half, HalfMessage, Place, Rules
from penstock.router.names import ENC_AMQP091, join_key_block, wire

if TYPE_CHECKING:
    from penstock.router.authorization.identity import Identity
    from penstock.router.broker import Broker
    from penstock.router.vhost.vhost import Vhost

__all__ = ["HALF_HEADERS", "Decided", "Prepared", "decide", "half_of", "prepare", "serve_questions"]

_HALF: Final = "x-penstock-half"
_COMMIT: Final = "x-penstock-commit"
_ROLLBACK: Final = "x-penstock-rollback"
_QUEUE: Final = "x-penstock-check-queue"
_DEAD_LETTER: Final = "x-penstock-half-dead-letter"
_DAY_MS: Final = 86_400_000
_NUMBERS: Final = {
    "x-penstock-check-after": ("check_after_ms", 100, _DAY_MS),
    "x-penstock-check-each": ("check_each_ms", 100, _DAY_MS),
    "x-penstock-max-checks": ("max_checks", 1, 1000),
    "x-penstock-half-expires": ("expires_ms", 100, 365 * _DAY_MS),
}
HALF_HEADERS: Final = (_HALF, _COMMIT, _ROLLBACK, _QUEUE, _DEAD_LETTER, *_NUMBERS)
"""All of them; consumers do not get them."""
_SCHEME: Final = "queue"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A message that is to be kept."""

    name: str
    queue: str
    """Where is asked."""
    rules: Rules


@dataclass(frozen=True, slots=True)
class Decided:
    """A message's decision about a half one."""

    name: str
    commits: bool


def half_of(headers: Table) -> Prepared | Decided | None:
    """Its part in half messages, by its headers; None: nothing of half messages. Raises HeaderRefused."""
    found = [name for name in (_HALF, _COMMIT, _ROLLBACK) if name in headers]
    if not found:
        for name in (*_NUMBERS, _QUEUE, _DEAD_LETTER):
            if name in headers:
                raise HeaderRefused(f"header '{name}' without '{_HALF}'")
        return None
    if len(found) > 1:
        raise HeaderRefused(f"headers '{found[0]}' and '{found[1]}' in one message; set one of them")
    name = _text(headers, found[0])
    if found[0] != _HALF:
        return Decided(name, found[0] == _COMMIT)
    if _QUEUE not in headers:
        raise HeaderRefused(
            f"a message with '{_HALF}' has '{_QUEUE}', too: the queue where is asked about it"
        )
    numbers = {}
    for header, (rule, least, most) in _NUMBERS.items():
        if header in headers:
            value = headers[header]
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                raise HeaderRefused(f"invalid header '{header}': a number from {least} to {most} is wanted")
            numbers[rule] = value
    dead_letter = _text(headers, _DEAD_LETTER) if _DEAD_LETTER in headers else ""
    return Prepared(name, _text(headers, _QUEUE), Rules(**numbers, dead_letter=dead_letter))


def _text(headers: Table, header: str) -> str:
    value = headers[header]
    if not isinstance(value, str) or not 0 < len(wire(value)) <= 255:
        raise HeaderRefused(f"invalid header '{header}': a text of 1 to 255 bytes is wanted")
    return value


def prepare(vhost: Vhost, identity: Identity, prepared: Prepared, key: bytes, message: HalfMessage) -> int:
    """Keep a message that may be published; the LSN to wait for. It is without `HALF_HEADERS`.

    Raises RoutingError.
    """
    asked = vhost.route(identity, ENC_AMQP091, join_key_block("", prepared.queue))
    if asked.error is not None:
        raise asked.error
    if not asked.routed:
        raise NotFound("queue", prepared.queue, vhost.name)
    place = Place(vhost.name, identity.username, prepared.queue, key)
    halves = vhost.broker.halves
    address = f"{_SCHEME}:{prepared.queue}"
    return halves.prepare(identity, place, prepared.rules, message, name=prepared.name, ask_at=address)[1]


def decide(vhost: Vhost, identity: Identity, decided: Decided) -> int:
    """Publish the message of that name, or forget it; the LSN to wait for.

    Raises:
        HalfUnknown: it is not to be decided (any more).
        RoutingError: it cannot be published, or not by this user any more; it stays undecided.

    """
    halves = vhost.broker.halves
    half = halves.named(decided.name, vhost.name, identity.username)
    if not decided.commits:
        return halves.rollback(half)
    route = vhost.route(identity, ENC_AMQP091, half.place.key)
    if route.error is not None:
        raise route.error
    return halves.commit(half)[1]


def serve_questions(broker: Broker) -> None:
    """Ask by queues about half messages that say so."""

    def ask(half: Half, message: HalfMessage) -> bool:
        vhost = broker.vhost(half.place.vhost)
        key = join_key_block("", half.ask_at.partition(":")[2])
        route = vhost.route(None, ENC_AMQP091, key)
        if route.error is None and route.routed:
            headers: Table = {"x-penstock-check": half.name, "x-penstock-checks": half.checks}
            block = encode_properties({"headers": headers, "delivery_mode": 2})
            vhost.publishing.append(route, key, block, message.body, PERSISTENT, 0, ENC_AMQP091, 0)
            return True
        return False

    broker.halves.couriers[_SCHEME] = ask

"""Orders the content of a database into steps that leave penstock with the same sessions and messages.

A session holds the messages that came since its client left. So it is made just before the first message that
waits for it is published, and gets that message and all later ones by its own subscriptions. Each message is
published once, however many sessions wait for it:

1. retained messages, before there is a session that would get them
2. waiting messages in the order of their numbers, and before each the sessions for which it is the first
3. sessions for which nothing waits
4. messages of QoS 2 that Mosquitto had taken and not yet given on

A session gets more than waited for it in two cases: its client acknowledged out of order, or Mosquitto
dropped messages at `max_queued_messages` that another session still has. It never gets less.

The steps depend on the database only, so a move that was interrupted goes on with the number of its step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from penstock.lazy_dataclass import dataclass
from penstock.migrate.mosquitto.database import Database, Held, Message, Session, Subscription

__all__ = ["Make", "Publish", "Step", "is_waiting", "steps"]

_RECEIVED: Final = frozenset({6, 9})
"""States in which the client has the message: resend PUBREL, wait for PUBCOMP."""
_EXPIRY_MAX_S: Final = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish a message."""

    message: Message
    retain: bool


@dataclass(frozen=True, slots=True)
class Make:
    """Make sessions that begin here."""

    sessions: tuple[tuple[Session, dict[str, Any]], ...]
    """Each with its definition (`mqtt_sessions`), without `vhost`."""


Step = Publish | Make


def steps(database: Database, owner: Callable[[str], str]) -> list[Step]:
    """The steps in order.

    Args:
        database: The content of the file.
        owner: The user in penstock of a client's user name there, "" for none.

    """
    found: list[Step] = [Publish(database.messages[number], True) for number in sorted(database.retained)]
    first: dict[str, int] = {}
    incoming: set[int] = set()
    waiting: set[int] = set()
    for held in database.held:
        if not held.outgoing:
            incoming.add(held.number)
        elif is_waiting(held):
            waiting.add(held.number)
            first[held.client_id] = min(held.number, first.get(held.client_id, held.number))
    beginning: dict[int, list[tuple[Session, dict[str, Any]]]] = {}
    rest: list[tuple[Session, dict[str, Any]]] = []
    subscriptions: dict[str, list[Subscription]] = {}
    for one in database.subscriptions:
        subscriptions.setdefault(one.client_id, []).append(one)
    for session in sorted(database.sessions.values(), key=lambda session: session.client_id):
        if session.expiry_s == 0:
            continue
        made = _session(session, subscriptions.get(session.client_id, []), owner(session.username))
        number = first.get(session.client_id)
        (rest if number is None else beginning.setdefault(number, [])).append((session, made))
    for number in sorted(waiting):
        if number in beginning:
            found.append(Make(tuple(beginning[number])))
        found.append(Publish(database.messages[number], False))
    if rest:
        found.append(Make(tuple(rest)))
    found += [
        Publish(database.messages[number], database.messages[number].retain) for number in sorted(incoming)
    ]
    return found


def is_waiting(held: Held) -> bool:
    """Whether a client has yet to get a message."""
    return held.outgoing and held.state not in _RECEIVED


def _session(session: Session, subscriptions: list[Subscription], user: str) -> dict[str, Any]:
    return {
        "client_id": session.client_id,
        "user": user,
        "expiry_s": min(session.expiry_s, _EXPIRY_MAX_S),
        "subscriptions": [
            {
                "filter": one.topic,
                "qos": one.qos,
                "no_local": bool(one.options & 0x04),
                "retain_as_published": bool(one.options & 0x08),
                "retain_handling": min(one.options >> 4 & 0x03, 2),
                "identifier": one.identifier,
            }
            for one in sorted(subscriptions, key=lambda one: one.topic)
        ],
    }

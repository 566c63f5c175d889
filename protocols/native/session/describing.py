"""Descriptions of topics and their subscriptions for native clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.subscriptions.streams.lag import figures, when_known
from penstock.subscriptions.streams.stream import Stream

if TYPE_CHECKING:
    from penstock.protocols.native.codec.frames import Fields
    from penstock.protocols.native.session.session import Session

__all__ = ["describe", "topics"]


def topics(session: Session, id: int, fields: Fields) -> None:
    """The topics that the user may read."""
    fields.done()
    vhost, allow = session.vhost, session.broker.authorizer.allow
    session.codec.spend(256 * len(vhost.queues))
    names = [
        name
        for name, entry in vhost.queues.items()
        if isinstance(entry.queue, Stream) and allow(session.identity, vhost.name, "read", name)
    ]
    session.answer(id, {"topics": sorted(names)})


def describe(session: Session, id: int, stream: Stream) -> None:
    """The contents of a topic, and its subscriptions; answered when the heads are in memory."""
    subscriptions = session.vhost.subscriptions.of(stream.name)
    session.codec.spend(4096 * len(subscriptions))

    def told() -> None:
        if session.running:
            described = {
                name: {**figures(session.log, one), "mark": one.cursor.mark}
                for name, one in subscriptions.items()
            }
            session.answer(id, {**_topic(stream), "subscriptions": described})

    when_known(session.log, subscriptions.values(), told)


def _topic(stream: Stream) -> dict[str, Any]:
    return {
        "topic": stream.name,
        "messages": stream.ready_count,
        "first_offset": stream.first_offset,
        "next_offset": stream.next_offset,
        "last_position": stream.feed.last_position,
    }

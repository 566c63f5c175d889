"""Notes of a node about itself, for others to see: records of a topic beside that of the journal.

They are no offsets of consumer groups. While the coordinator of a group is away, a consumer with a commit
under way uses a whole core and reads nothing, and an admin client whose request times out may end the process
(librdkafka 2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from penstock.log_core.replication.journal_options import KafkaOptions

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

__all__ = ["SETTINGS", "KafkaNotes", "notes_topic"]

SETTINGS: Final = {"cleanup.policy": "delete", "retention.ms": "3600000", "segment.ms": "600000"}
"""Of the topic."""

_LOST_MS: Final = 5000
"""A note that was not written within this time is dropped."""


def notes_topic(topic: str) -> str:
    """The topic of the notes of a journal's nodes."""
    return f"{topic}.nodes"


class KafkaNotes:
    """Writes them. One thread calls it."""

    def __init__(self, library: Any, options: KafkaOptions) -> None:
        self._producer = library.Producer(
            options.client() | {"acks": 1, "message.timeout.ms": _LOST_MS, "error_cb": lambda error: None}
        )
        self._topic = notes_topic(options.topic)
        self._under_way = False

    def note(self, text: str) -> None:
        """Write a note, without waiting; none while the one before is under way."""
        self._producer.poll(0)
        if self._under_way:
            return

        def delivered(error: KafkaError | None, message: Message) -> None:
            self._under_way = False

        self._under_way = True
        self._producer.produce(self._topic, value=text, partition=0, on_delivery=delivered)

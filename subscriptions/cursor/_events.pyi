"""The events of messages and connections, noted for the table of events, which is off by default."""

from collections.abc import Callable, Collection
from typing import Final

from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.dispatch.consumer import QueueConsumer
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick._stored_batches import BatchConsumer

Traced = tuple[int, str, int, bool, str, str, str, str, str]
"""(ns since the epoch, kind, position, redelivered, vhost, queue, connection, user, detail); "" is none."""
KINDS: Final[tuple[str, ...]]
"""By their numbers in the log."""

def start(kinds: Collection[str], wake: Callable[[], object]) -> None:
    """Note these kinds from now on (none: nothing); ValueError for one that is none.

    `wake` is called when the first event of a block is noted: a turn must come, within some milliseconds.
    """

def keep(kinds: Collection[str]) -> None:
    """Note these kinds from now on, between `start` and `stop`; ValueError for one that is none."""

def kept() -> tuple[str, ...]:
    """The kinds that are noted."""

def stop() -> None:
    """Note nothing more; what was not appended is forgotten."""

def hold(held: bool) -> None:
    """While the log takes nothing, events are only counted; a `gap` says afterwards how many."""

def is_on() -> bool:
    """Whether any kind is noted."""

def trace(ratio: float) -> None:
    """Trace what becomes of this part of the messages, 0 to 1, from now on until `stop`; 0: of none.

    A message is in the sample or not by its position, so all its events are traced, or none.
    """

def traced() -> tuple[list[Traced], int]:
    """The events of messages in the sample since the last call, and how many more there was no room for."""

def note(
    kind: str, *, vhost: str = "", queue: str = "", connection: str = "", user: str = "", detail: str = ""
) -> None:
    """Note what is no message's; "" is none."""

def published(
    first: int, count: int, *, vhost: str = "", connection: str = "", user: str = "", detail: str = ""
) -> None:
    """`count` positions from `first` on were appended by what a publisher sent; `detail`: its protocol."""

def attached(kind: str, queue: Queue, consumer: QueueConsumer) -> None:
    """A consumer came to a queue (`subscribe`) or left it (`unsubscribe`)."""

def delivered(cursor: Cursor, first: int, step: int, took: int, consumer: QueueConsumer | None) -> None:
    """Of the last take, `took` items from `first` on, each `step`-th, went to `consumer`."""

def deliver_to(consumer: BatchConsumer) -> None:
    """Whole batches that are taken from here on go to `consumer`."""

def settled_as(cursor: Cursor, seq: int, kind: str, detail: str) -> None:
    """Settle what leaves a queue without an acknowledgement: `kind` dead_letter or drop, and why."""

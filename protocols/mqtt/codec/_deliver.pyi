"""The face of the kernel `_deliver`; how it works stands in _deliver.pyx."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.log_core.batch._batch import Batch
from penstock.protocols.mqtt.codec._packet_ids import Inflight
from penstock.protocols.mqtt.codec._publish import PublishEncoder
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick._fast_path import FastPath
from penstock.subscriptions.tick._tick import Sink

class Choice:
    """The terms of delivery that a set of matching subscriptions gives a record."""

    qos: int
    retain_as_published: bool
    ids: bytes
    """Subscription identifiers, encoded as properties."""
    no_local: bool
    """Other terms hold for the session's own messages."""
    own: Choice | None
    """Those: something less, or None for nothing."""

    def __init__(
        self,
        qos: int,
        retain_as_published: bool,
        ids: bytes,
        own: Choice | None = None,
        no_local: bool = False,
    ) -> None: ...

class Deliverer(PublishEncoder):
    """The output side of one connection; messages above `max_packet` are skipped and settled."""

    origin: int
    """Number of the session, for no-local."""
    skip_qos0_before: int
    """Records below this position that would be sent at QoS 0 are skipped: the client was away."""
    persistent: bool
    """New QoS 2 packets go to `held`: send them when the packet ids are durable."""
    inflight: Inflight
    held: OutBuffer
    delivered: int
    """Messages encoded."""
    skipped: int
    """Messages that were too large."""

    def __init__(
        self,
        inflight: Inflight,
        out: OutBuffer,
        version: int,
        choose: Callable[[tuple[int, ...]], Choice | None],
        translate: Callable[[bytes, bytes], tuple[bytes | None, bytes]],
    ) -> None:
        """`choose` answers for the tags of a match; `translate` is `translate.mqtt5_from_amqp091`."""

    def forget_choices(self) -> None:
        """The subscriptions changed."""

    def filter(self, guard: Callable[[bytes], bool] | None) -> None:
        """Ask `guard` about each topic before it is sent, once for 4,096 topics each; messages under a topic
        that it denies are settled without being sent. Packets begun before are completed. None: ask nobody.
        """

    def may_send(self, topic: bytes) -> bool:
        """The verdict of the guard of `filter` on a topic."""

    def deliver(
        self,
        cursor: Cursor,
        first: int,
        step: int,
        capacity: int,
        now_ms: int,
        shared: Choice | None = None,
        claims: dict[int, Any] | None = None,
    ) -> int:
        """Encode items first, first + step ... of the cursor, about `capacity` bytes; how many were taken.

        `shared`: the cursor is that of a shared subscription, and this is what each item means. Items whose
        positions are in `claims` are taken but not sent: see `take_claimed`.
        """

    def again(self, batch: Batch, index: int, choice: Choice, packet_id: int, now_ms: int) -> bool:
        """Send a shared QoS 2 message again, with DUP; False: it is expired, lost or too large."""

    def take_claimed(self) -> list[tuple[int, int]]:
        """(position, seq) of the items that were claimed, since the last call."""

    def publish(
        self,
        topic: bytes,
        block: bytes,
        body: bytes,
        qos: int,
        retain: bool,
        ids: bytes,
        packet_id: int,
        duplicate: bool,
        elapsed_s: int,
    ) -> bool:
        """Encode one message that is no item of a cursor; False: too large or expired. No guard is asked."""

    def take_pubrels(self) -> list[int]:
        """Packet ids for which PUBREL is to be sent, their messages being gone."""

class SessionFastPath(FastPath):
    """The fast path from a session's queue to its connection; see `subscriptions.tick._fast_path`."""

    needs_ids: bool
    """Some subscription has QoS above 0: what is delivered is limited by the window of packet ids."""

    def __init__(self, deliverer: Deliverer, queue: Queue, sink: Sink, after: Callable[[], None]) -> None:
        """`sink`: the connection; `after`: has packet ids put, PUBRELs sent."""

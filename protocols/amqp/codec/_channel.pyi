"""A channel's state in C, and its consumers. Its work and its layouts are in `_channel.pyx`."""

from collections.abc import Callable

from penstock.log_core.batch._batch import Batch
from penstock.log_core.feeds._feed import Feed
from penstock.protocols.amqp.codec._confirms import Confirms
from penstock.protocols.net.outbuffer import OutBuffer
from penstock.subscriptions.cursor._cursor import Cursor
from penstock.subscriptions.queue.queue import Queue
from penstock.subscriptions.tick._consumer_path import DirectConsumer
from penstock.subscriptions.tick._tick import Sink

class Channel(Confirms):
    """Unacknowledged deliveries, publisher confirms and the message under way of one channel."""

    owner: object
    """The session's side of the channel; None: it is over."""
    closing: bool
    sink: Sink | None
    """The connection, for kernels: `dirty` and a consumer's `output_capacity` are not called then."""
    """channel.close was sent: everything but its answer is ignored, and no consumer gets anything."""
    first_tag: int
    next_tag: int
    outstanding: int
    """Deliveries to consumers that are not settled."""
    limit: int
    """Shared prefetch limit, 0 = none."""
    give_back: Callable[[Cursor, int], object] | None
    """Requeues a delivery (cursor, seq) that the client gives back; None: it comes again at once. Not asked
    about what the channel returns."""
    tap: Callable[[Queue, Batch, int, bool], object] | None
    """Called with each delivery: where from, the batch and the index of the record in it, redelivered or not.
    It may not publish."""
    published: int
    delivered: int
    """Messages to consumers and to basic.get, redeliveries included."""
    delivered_auto: int
    """Of these, to consumers without acknowledgements."""
    redelivered: int
    got: int
    """By basic.get; `got_auto` of them without acknowledgement."""
    got_auto: int
    get_empty: int
    acked: int
    returned: int
    """Publishes that went nowhere and were mandatory; `dropped`: that were not."""
    dropped: int

    def __init__(
        self, number: int, out: OutBuffer, frame_max: int, owner: object, dirty: Callable[[], object]
    ) -> None:
        """`dirty` is called after deliveries were encoded into `out`."""

    def let_go(self) -> None:
        """The channel is over and all is given back: refer to nobody, so that no cycle is left."""

    @property
    def unacked_count(self) -> int:
        """Deliveries that are not settled, those of basic.get included."""

    def requeue_all(self) -> int:
        """Give back every delivery that is neither settled nor, on an open channel, planned; how many."""

    transactional: bool
    """Acknowledgements are planned."""
    def queues_before(self, tag: int) -> list[Queue]:
        """The queues, each once, that have deliveries out with tags below `tag`."""

    def tx_select(self) -> None:
        """Plan acknowledgements from now on instead of carrying them out. Idempotent."""

    def settle_planned(self) -> list[Queue]:
        """Carry out what was planned; the queues it came from that are still there, each once."""

    def drop_planned(self) -> None:
        """Forget what was planned: these deliveries await their acknowledgement again."""

    def feed_starved(self) -> None:
        """After a read: tell the queues of consumers that had no credit that they may have some again.

        Consumers that wait for the shared limit get equal shares of it, longest wait first.
        """

    def pump(self) -> None:
        """The tick has served the queues of those that got a share: others get what is left of it."""

    def encode_get(self, cursor: Cursor, no_ack: bool, left: Callable[[], int]) -> bytes:
        """basic.get-ok and the content of the cursor's first item; `left` messages remain in the queue.

        It gets a delivery tag and awaits its acknowledgement, or is settled with `no_ack`.
        """

    def encode_direct(self, tag: bytes, key: bytes, props: bytes, body: bytes) -> None:
        """basic.deliver of a message that is in no queue, into the output; it awaits no acknowledgement.

        `tag` is the consumer tag, at most 255 bytes; `key` the key block.
        """

    def encode_return(self, code: int, text: bytes, key: bytes, props: bytes, body: bytes) -> None:
        """basic.return with its content, into the output. `key` is the key block."""

class Consumer(DirectConsumer):
    """A consumer of a queue: encodes deliveries into its channel's output, within its prefetch."""

    channel: Channel
    tag: bytes
    no_ack: bool
    priority: int
    queue: Queue
    limit: int
    """Prefetch, 0 = none."""
    in_flight: int
    served: int
    """The channel's next delivery tag when it got something last; 0: it never did."""
    named: Callable[[], str] | None
    """Says its connection's name."""

    def __init__(
        self,
        channel: Channel,
        tag: bytes,
        queue: Queue,
        no_ack: bool,
        limit: int,
        priority: int,
        output_capacity: Callable[[], int],
        on_cancelled: Callable[[Consumer, str], object],
    ) -> None:
        """`output_capacity()`: how many bytes the connection takes now; `on_cancelled`: the queue let go."""

    def of_stream(self, offsets: Feed, base: int, wanted: Callable[[Batch, int], bool] | None) -> None:
        """It reads a stream: entry i of `offsets` has offset base + i. `wanted`: a filter of records."""

    def peer(self) -> str:
        """The connection's name."""

    def cancelled(self, reason: str) -> None:
        """The queue let go of it."""

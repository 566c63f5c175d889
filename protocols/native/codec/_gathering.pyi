"""The output of a producer: batches that grow as their frames, and what becomes of their messages."""

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.protocols.native.codec._records import MessageId

MESSAGE_BYTES: int
"""Bytes that a message counts for besides its own."""

class Pending:
    """A batch: gathered, sealed when it is sent, and kept until it is confirmed."""

    loop: asyncio.AbstractEventLoop
    frame: bytes | None
    """The whole PRODUCE frame; None: it is not sealed, or done."""
    count: int
    size: int
    """Its bytes under way: bodies, properties, and 64 for each message."""
    sequence: int
    due_ms: int
    name: bytes | None
    whole: asyncio.Future[list[MessageId]] | None
    """The future that waits for all of it."""
    mandatory: Callable[[], BaseException] | None
    """Makes the exception of its messages that go nowhere; None: they are sent like the others."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None: ...
    def seal(self, handle: int, sequence: int, acks: int) -> None:
        """Nothing more is added: make its frame. Raises ValueError: it has no messages, or over 2 GiB."""

    def renumber(self, sequence: int) -> None:
        """It is sealed, and to be sent by another number."""

    @property
    def records(self) -> bytes:
        """A copy of its records as they stand in its frame."""

    def sent_again(self) -> None:
        """Forget the parts that were confirmed over a connection that is lost."""

    def done(self, position: int, count: int, routed: bool | None) -> bool:
        """Its next `count` messages are confirmed; whether all of them are, or it was done before.

        The first of them is at `position`, 0: nobody knows where. `routed`: whether a queue or subscription
        gets them, None: that is not known. Only the first word counts, also of `failed`.
        """

    def failed(self, error: BaseException, *, quietly: bool = False) -> None:
        """It was refused. Unless somebody asks for the exception the loop's handler gets it when the batch
        is gone; `quietly`: it does not."""

class Sent(asyncio.Future[MessageId]):
    """The future of one message. A future to asyncio (`asyncio.isfuture`), though not to `isinstance`: it is
    made without a callback, a context or a lock, and learns from its batch what became of it.

    Cancelled, it is not waited for; whether the message is kept nobody says.
    """

    def __init__(self, *never: Any) -> None: ...

class Gathering:
    """The batch that messages are added to, and how much is under way."""

    batch: Pending | None
    under_way: int
    """Bytes that are gathered, sent, or given to who waits for room."""
    buffer_bytes: int
    frame_max: int
    """The largest frame that may be sent."""
    loop: asyncio.AbstractEventLoop
    mandatory: Callable[[], BaseException] | None
    """`Pending.mandatory` of new batches."""
    is_plain: bool
    """Bodies are sent as they are, so that `plain` may take them."""

    def __init__(self, usual: bytes, batch_bytes: int, batch_messages: int, buffer_bytes: int) -> None:
        """`usual`: the properties of a plain message."""

    def plain(self, body: object) -> Sent | None:
        """Add a message with nothing to encode behind others; None: that takes more than that."""

    def fits(self, size: int) -> bool:
        """Whether a message of so many bytes, properties included, fits into the batch's frame."""

    def has_room(self, size: int) -> bool:
        """Whether so many bytes may be under way besides the others: anything may be alone."""

    def carries(self, batch: Pending) -> bool:
        """Whether the batch may be sent as one frame."""

    def add(self, body: bytes, block: bytes) -> Sent:
        """Add a message that fits, to a new batch if there is none."""

    @property
    def is_full(self) -> bool:
        """The batch is to be sent."""

    def take(self) -> Pending | None:
        """The batch, which is given away."""

    def whole(self, bodies: list[bytes], at: int, block: bytes) -> Pending:
        """A batch of its own of the bodies from `at` on, as many as go into one, at least one if there is one
        (which may be too large: see `fits`); all have the properties `block`.

        Raises TypeError: one is not bytes.
        """

"""`_gathering.pyi` in Python alone: for the client where no compiled kernel is."""

from __future__ import annotations

import asyncio
import struct
from asyncio import CancelledError, InvalidStateError
from collections.abc import Callable, Generator
from contextvars import Context, copy_context
from typing import Any, Final

from penstock.protocols.native.codec._records import MessageId
from penstock.protocols.native.codec.kinds import PRODUCE

_RECORD: Final = struct.Struct(">II")
_HEAD: Final = struct.Struct(">IIIQII")
"""Of a PRODUCE frame: size, kind and three bytes 0, handle, sequence, acks and three bytes 0, count."""
_HEADS: Final = 64
"""More than a frame has besides its records."""
_NUMBER_AT: Final = 12
MESSAGE_BYTES: Final = 64

_OPEN, _DONE, _FAILED = range(3)


class Pending:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._parts: list[bytes] = []
        self.used = 0
        """Bytes of its frame so far; 0: there is none."""
        self.nbytes = 0
        self.state = _OPEN
        self._position = 0
        self.error: BaseException | None = None
        self.is_known = False
        self._told = 0
        self._routed: bool | None = None
        self._unrouted: bytearray | None = None
        self.waiting: list[Sent] | None = None
        self.frame: bytes | None = None
        self.count = self.size = self.sequence = self.due_ms = 0
        self.name: bytes | None = None
        self.whole: asyncio.Future[list[MessageId]] | None = None
        self.mandatory: Callable[[], BaseException] | None = None

    def __del__(self) -> None:
        if self.error is not None and not self.is_known:
            became = "were not sent" if self.state == _FAILED else "were sent, not all of them to a queue"
            said = f"{self.count} messages {became}, and nobody asked for their futures' exception"
            self.loop.call_exception_handler({"message": said, "exception": self.error})

    def put(self, body: bytes, block: bytes) -> None:
        """Add a message."""
        size = len(body) + len(block)
        self._parts += (_RECORD.pack(len(block), len(body)), block, body)
        self.used = (self.used or _HEAD.size) + _RECORD.size + size
        self.count += 1
        self.nbytes += size
        self.size += size + MESSAGE_BYTES

    def seal(self, handle: int, sequence: int, acks: int) -> None:
        if not self.used or self.used > 0x7FFFFFFF:
            raise ValueError(f"a batch of {self.used} bytes; a frame has some, and at most 2 GiB")
        head = _HEAD.pack(self.used - 4, PRODUCE << 24, handle, sequence, acks << 24, self.count)
        self.frame = b"".join([head, *self._parts])
        self._parts.clear()
        self.sequence = sequence

    def renumber(self, sequence: int) -> None:
        assert self.frame is not None
        self.frame = self.frame[:_NUMBER_AT] + sequence.to_bytes(8, "big") + self.frame[_NUMBER_AT + 8 :]
        self.sequence = sequence

    @property
    def records(self) -> bytes:
        assert self.frame is not None
        return self.frame[_HEAD.size :]

    def sent_again(self) -> None:
        self._told = 0
        self._unrouted = None

    def done(self, position: int, count: int, routed: bool | None) -> bool:
        first = self._told
        if self.state != _OPEN:
            return True
        if not first:
            self._position = position
            self._routed = None if routed is None else True
        self._told = min(first + count, self.count)
        if routed is False:
            if self._unrouted is None:
                self._unrouted = bytearray(self.count)
            for index in range(first, self._told):
                self._unrouted[index] = True
        if self._told < self.count:
            return False
        self.state = _DONE
        if self._unrouted is not None and self.mandatory is not None:
            self.error = self.mandatory()
        self._settle()
        return True

    def failed(self, error: BaseException, *, quietly: bool = False) -> None:
        if self.state == _OPEN:
            self.state = _FAILED
            self.error = error
            self.is_known = quietly
            self._settle()

    def _settle(self) -> None:
        waiting, self.waiting, self.frame = self.waiting, None, None
        for sent in waiting or ():
            sent.tell()
        whole, self.whole = self.whole, None
        if whole is None or whole.done():
            return
        if self.error is None:
            whole.set_result([self.id(index) for index in range(self.count)])
            return
        whole.set_exception(self.error)
        if self.is_known:
            whole.exception()  # who does not look at it hears nothing
        self.is_known = True

    def is_unrouted(self, index: int) -> bool:
        """Whether that message is known to have gone nowhere."""
        return self._unrouted is not None and bool(self._unrouted[index])

    def id(self, index: int) -> MessageId:
        """Of one of its messages, when it is done."""
        routed = False if self.is_unrouted(index) else self._routed
        return MessageId(self._position + index if self._position else 0, self.due_ms, routed)


class Sent:
    __slots__ = (
        "__weakref__",
        "_asyncio_future_blocking",
        "_callbacks",
        "_cancel_message",
        "_index",
        "_is_cancelled",
        "_pending",
    )

    _pending: Pending
    _index: int
    _callbacks: list[tuple[Callable[[Sent], object], Context]] | None
    _is_cancelled: bool
    _cancel_message: Any
    _asyncio_future_blocking: bool

    def __init__(self) -> None:
        raise TypeError("made by Producer.send_nowait")

    @classmethod
    def of(cls, pending: Pending, index: int) -> Sent:
        """That of a message of a batch."""
        self = cls.__new__(cls)
        self._pending = pending
        self._index = index
        self._callbacks = None
        self._is_cancelled = self._asyncio_future_blocking = False
        self._cancel_message = None
        return self

    def done(self) -> bool:
        return self._is_cancelled or self._pending.state != _OPEN

    def cancelled(self) -> bool:
        return self._is_cancelled

    def cancel(self, msg: Any = None) -> bool:
        if self.done():
            return False
        self._is_cancelled = True
        self._cancel_message = msg
        self.tell()
        return True

    def result(self) -> MessageId:
        error = self.exception()
        if error is not None:
            raise error.with_traceback(None)
        return self._pending.id(self._index)

    def exception(self) -> BaseException | None:
        if self._is_cancelled:
            raise self._make_cancelled_error()
        if self._pending.state == _OPEN:
            raise InvalidStateError("the message is not confirmed yet")
        error = self._error()
        if error is not None:
            self._pending.is_known = True
        return error

    def _error(self) -> BaseException | None:
        if self._pending.state == _DONE and not self._pending.is_unrouted(self._index):
            return None
        return self._pending.error

    def _make_cancelled_error(self) -> CancelledError:
        return CancelledError() if self._cancel_message is None else CancelledError(self._cancel_message)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._pending.loop

    def add_done_callback(
        self, function: Callable[[Sent], object], *, context: Context | None = None
    ) -> None:
        if context is None:
            context = copy_context()
        if self.done():
            self._pending.loop.call_soon(function, self, context=context)
            return
        if self._callbacks is None:
            self._callbacks = []
            if self._pending.waiting is None:
                self._pending.waiting = []
            self._pending.waiting.append(self)
        self._callbacks.append((function, context))

    def remove_done_callback(self, function: Callable[[Sent], object]) -> int:
        if self._callbacks is None:
            return 0
        left = [one for one in self._callbacks if one[0] != function]
        removed = len(self._callbacks) - len(left)
        self._callbacks = left
        return removed

    def tell(self) -> None:
        """It is done: once, for what is cancelled has no callbacks when its batch is."""
        callbacks, self._callbacks = self._callbacks, []
        for function, context in callbacks or ():
            self._pending.loop.call_soon(function, self, context=context)

    def __await__(self) -> Generator[Any, None, MessageId]:
        if not self.done():
            self._asyncio_future_blocking = True
            yield self
            if not self.done():
                raise RuntimeError("await wasn't used with the future of a message")
        return self.result()

    __iter__ = __await__

    def __repr__(self) -> str:
        if self._is_cancelled:
            return "<Sent cancelled>"
        if self._pending.state == _OPEN:
            return "<Sent pending>"
        return f"<Sent {self._error() or self._pending.id(self._index)!r}>"


class Gathering:
    def __init__(self, usual: bytes, batch_bytes: int, batch_messages: int, buffer_bytes: int) -> None:
        self._usual = usual
        self._batch_bytes = batch_bytes
        self._batch_messages = batch_messages
        self.buffer_bytes = buffer_bytes
        self.batch: Pending | None = None
        self.under_way = 0
        self.frame_max = 0x7FFFFFFF
        self.loop: Any = None
        self.mandatory: Callable[[], BaseException] | None = None
        self.is_plain = False

    def plain(self, body: object) -> Sent | None:
        if self.batch is None or not self.is_plain or type(body) is not bytes:
            return None
        size = len(body) + len(self._usual)
        if (
            self.batch.nbytes + size >= self._batch_bytes
            or self.batch.count + 1 >= self._batch_messages
            or self.under_way + size + MESSAGE_BYTES > self.buffer_bytes
            or not self.fits(size)
        ):
            return None
        return self.add(body, self._usual)

    def fits(self, size: int) -> bool:
        used = 0 if self.batch is None else self.batch.used
        return used + _RECORD.size + size + _HEADS <= self.frame_max

    def has_room(self, size: int) -> bool:
        return not self.under_way or self.under_way + size <= self.buffer_bytes

    def carries(self, batch: Pending) -> bool:
        return batch.used - _HEAD.size + _HEADS <= self.frame_max

    def _new_batch(self) -> Pending:
        batch = Pending(self.loop)
        batch.mandatory = self.mandatory
        return batch

    def add(self, body: bytes, block: bytes) -> Sent:
        if self.batch is None:
            self.batch = self._new_batch()
        sent = Sent.of(self.batch, self.batch.count)
        self.batch.put(body, block)
        self.under_way += len(body) + len(block) + MESSAGE_BYTES
        return sent

    @property
    def is_full(self) -> bool:
        return self.batch is not None and (
            self.batch.nbytes >= self._batch_bytes or self.batch.count >= self._batch_messages
        )

    def take(self) -> Pending | None:
        batch, self.batch = self.batch, None
        return batch

    def whole(self, bodies: list[bytes], at: int, block: bytes) -> Pending:
        batch = self._new_batch()
        last = min(len(bodies), at + max(self._batch_messages, 1))
        size = wire = 0
        for body in bodies[at:last]:
            if not isinstance(body, bytes):
                raise TypeError(f"Expected bytes, got {type(body).__name__}")
            if batch.count and size >= self._batch_bytes:
                break
            wire += _RECORD.size + len(block) + len(body)
            if wire + _HEADS > self.frame_max and batch.count:
                break
            size += len(body)
            batch.put(body, block)
        self.under_way += batch.size
        return batch

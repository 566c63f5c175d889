"""The client without asyncio: the names of `penstock.connect`'s client, and no `await`.

    with penstock.sync.connect("penstock://127.0.0.1") as client:
        with client.producer("orders") as producer:
            producer.send("one")
        with client.subscribe("orders", "billing", start="earliest") as consumer:
            for message in consumer:
                with consumer.process(message):
                    ...

Each client has a thread with an event loop, in which the asyncio client does the work; what is called here
waits for it. Objects may be used by several threads, but not by a forked child (WrongContext): it connects by
itself. Not for programs that have a loop of their own: a call would stop it; they have `penstock.connect`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, cast, overload

from penstock.sdk import admin as aio_admin
from penstock.sdk import client as aio
from penstock.sdk import transaction as aio_transaction
from penstock.sdk.connection.loop_affinity import of_parent
from penstock.sdk.consuming import consumer as aio_consumer
from penstock.sdk.consuming import reader as aio_reader
from penstock.sdk.consuming import retrying as aio_retrying
from penstock.sdk.consuming import topics as aio_topics
from penstock.sdk.consuming.receiving import Receiving
from penstock.sdk.consuming.worker_pool import By, answered, given_back, handling
from penstock.sdk.errors import Closed
from penstock.sdk.message import Message, MessageId
from penstock.sdk.producing import half as aio_half
from penstock.sdk.producing import producer as aio_producer
from penstock.sdk.producing.outbox import Row
from penstock.sdk.producing.outbox import sent as aio_sent
from penstock.sdk.tables import table as aio_table

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from typing_extensions import TypeVar as TypeVarWithDefault

    from penstock.sdk.addresses import Start

    V = TypeVarWithDefault("V", default=bytes)
    Sent = TypeVarWithDefault("Sent", default=bytes | str)
else:
    V = TypeVar("V")
    Sent = TypeVar("Sent")

__all__ = [
    "Admin",
    "Client",
    "Consumer",
    "Half",
    "Producer",
    "Reader",
    "RetryingConsumer",
    "Table",
    "TopicsConsumer",
    "Transaction",
    "connect",
    "sent",
]

P = ParamSpec("P")
T = TypeVar("T")
Inner = TypeVar("Inner", covariant=True)
"""Of the asyncio client: a method of a base of it is one of its own."""


class _Portal:
    """A thread with an event loop, and the way into it."""

    def __init__(self, address: str) -> None:
        """`address`: of the gateway, for errors."""
        self._address = address
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-client", daemon=True)
        self._thread.start()
        self._pid = os.getpid()

    @property
    def is_forked(self) -> bool:
        """Whether this is a child of the process that has the thread: nothing here is its own."""
        return os.getpid() != self._pid

    def start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Have it done. Raises Closed, WrongContext."""
        if self.is_forked:
            work.close()
            raise of_parent(self._address, self._pid)
        if self._loop.is_closed():
            work.close()
            raise Closed("the client is closed", remedy="connect again: penstock.sync.connect(...)")
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Have it done, and wait; who is interrupted meanwhile (Ctrl-C) gives it up."""
        future = self.start(work)
        try:
            return future.result()
        finally:
            future.cancel()

    def soon(self, call: Callable[[], object]) -> None:
        """Have it called in the loop; nothing when that has ended, or is the parent's."""
        if not self.is_forked:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(call)

    def end(self, work: Coroutine[Any, Any, object]) -> None:
        """Have something closed, and wait. A forked child has nothing to close."""
        if self.is_forked:
            work.close()
        else:
            self.run(work)

    def close(self) -> None:
        """End the thread. Idempotent; nothing in a forked child."""
        if not self._loop.is_closed() and not self.is_forked:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()


class _Face(Generic[Inner]):
    """An object of the asyncio client, and the way to where it lives."""

    def __init__(self, portal: _Portal, inner: Inner) -> None:
        self._portal = portal
        self._inner = inner


def _waits(
    method: Callable[Concatenate[Inner, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Face[Inner], P], T]:
    """The method of the asyncio client, waited for."""

    @functools.wraps(method)
    def call(self: _Face[Inner], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._portal.run(method(self._inner, *args, **kwargs))

    return call


def _makes(
    method: Callable[Concatenate[Inner, P], T], kind: Callable[[_Portal, T], Made]
) -> Callable[Concatenate[_Face[Inner], P], Made]:
    """The method of the asyncio client, with the face of what it makes."""

    @functools.wraps(method)
    def make(self: _Face[Inner], /, *args: P.args, **kwargs: P.kwargs) -> Made:
        return kind(self._portal, method(self._inner, *args, **kwargs))

    return make


Made = TypeVar("Made")


class Admin(_Face[aio_admin.Admin]):
    """See `penstock.sdk.admin.Admin`."""

    create_topic = _waits(aio_admin.Admin.create_topic)
    delete_topic = _waits(aio_admin.Admin.delete_topic)
    topics = _waits(aio_admin.Admin.topics)
    describe = _waits(aio_admin.Admin.describe)
    lag = _waits(aio_admin.Admin.lag)
    declare_queue = _waits(aio_admin.Admin.declare_queue)
    delete_queue = _waits(aio_admin.Admin.delete_queue)
    purge_queue = _waits(aio_admin.Admin.purge_queue)
    queues = _waits(aio_admin.Admin.queues)
    describe_queue = _waits(aio_admin.Admin.describe_queue)
    bind = _waits(aio_admin.Admin.bind)
    unbind = _waits(aio_admin.Admin.unbind)
    delete_subscription = _waits(aio_admin.Admin.delete_subscription)
    seek = _waits(aio_admin.Admin.seek)
    pause = _waits(aio_admin.Admin.pause)
    resume = _waits(aio_admin.Admin.resume)


class _Block(_Face[Inner]):
    """The decision at the end of a `with` block."""

    def _end(self, ok: bool) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(kind is None)


class Transaction(_Block[aio_transaction.Transaction]):
    """`with producer.transaction() as tx`: see `penstock.sdk.transaction.Transaction`."""

    commit = _waits(aio_transaction.Transaction.commit)

    def send(self, body: Any, *, to: Producer[Any] | None = None, **options: Any) -> None:
        """Send a message by `to`, or by the producer the transaction was made by, with the commit."""
        self._inner.send(body, to=to._inner if isinstance(to, Producer) else to, **options)

    def ack(self, messages: Message[Any] | list[Message[Any]]) -> None:
        """They are done with the commit."""
        self._inner.ack(messages)

    def abort(self) -> None:
        """Forget it."""
        self._inner.abort()

    def _end(self, ok: bool) -> None:
        if ok:
            self.commit()
        else:
            self.abort()


class Half(_Block[aio_half.Half]):
    """`with producer.prepare(body) as half`: see `penstock.sdk.producing.half.Half`."""

    commit = _waits(aio_half.Half.commit)
    rollback = _waits(aio_half.Half.rollback)

    @property
    def transaction(self) -> int:
        """Its number: what a local transaction keeps to answer questions by."""
        return self._inner.transaction

    def _end(self, ok: bool) -> None:
        if ok:
            self.commit()
        else:
            self.rollback()


class Producer(_Face[aio_producer.Producer[Sent]], Generic[Sent]):
    """See `penstock.Producer`; `with` opens it, and flushes and closes it at the end."""

    send = _waits(aio_producer.Producer[Sent].send)
    send_many = _waits(aio_producer.Producer[Sent].send_many)
    flush = _waits(aio_producer.Producer[Sent].flush)
    transaction = _makes(aio_producer.Producer[Sent].transaction, Transaction)

    def send_nowait(self, body: Sent, **options: Any) -> Future[MessageId]:
        """`send` without waiting for the answer: a future with the message's id. Raises BufferFull."""

        async def begin() -> asyncio.Future[MessageId]:
            return self._inner.send_nowait(body, **options)

        async def end(waiting: asyncio.Future[MessageId]) -> MessageId:
            return await waiting

        return self._portal.start(end(self._portal.run(begin())))

    def prepare(self, body: Sent, **options: Any) -> Half:
        """Send a half message: published when it is committed. See `penstock.Producer.prepare`."""
        return Half(self._portal, self._portal.run(self._inner.prepare(body, **options)))

    def open(self) -> Self:
        """Register with the gateway. Raises ClientError."""
        self._portal.run(self._inner.open())
        return self

    def close(self) -> None:
        """Flush and close. Idempotent. See `penstock.Producer.close`."""
        self._portal.end(self._inner.close())

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # It is the asyncio one that knows what to do after an error.
        self._portal.end(self._inner.__aexit__(kind, error, trace))


Taking = TypeVar("Taking", bound=Receiving[Any])


def sent(producer: Producer[Sent], rows: Iterable[Row[Sent]], *, ahead: int = 1000) -> Iterator[int]:
    """Send rows in their order; the number of each, once it is kept. See `penstock.sent`."""
    numbers = aio_sent(producer._inner, rows, ahead=ahead)

    async def following() -> int | None:
        return await anext(numbers, None)

    try:
        while (number := producer._portal.run(following())) is not None:
            yield number
    finally:
        producer._portal.run(numbers.aclose())


class _Taking(_Face[Taking], Generic[Taking, V]):
    """A source of messages: `with` opens it, `for` gives them out until it is closed."""

    def open(self) -> Self:
        """Register with the gateway. Raises Busy, ClientError."""
        self._portal.run(self._inner.open())
        return self

    def close(self) -> None:
        """Give back what was not acknowledged. Idempotent."""
        self._portal.end(self._inner.close())

    def stop(self) -> None:
        """Give out nothing more: loops over it end. From any thread, and from signal handlers."""
        self._portal.soon(self._inner.stop)

    def workers(self, n: int, handler: Callable[[Message[V]], object], *, by: By = "key") -> None:
        """Give each message to `handler`, in `n` threads, until it is closed or stopped.

        See `penstock.Consumer.workers`. A handler that ends the program (sys.exit) ends this: its message is
        given back, what the others have begun is finished, and SystemExit is raised here.
        """
        ends: list[BaseException] = []

        def work(message: Message[V]) -> None:
            try:
                handler(message)
            except Exception:
                raise
            except BaseException as error:  # in the loop it would end the client's thread
                ends.append(error)

        with ThreadPoolExecutor(n, "penstock-worker") as threads:

            async def handle(message: Message[V]) -> None:
                await asyncio.get_running_loop().run_in_executor(threads, work, message)
                if ends:
                    self._inner.stop()
                    raise asyncio.CancelledError

            self._portal.run(self._inner.workers(n, handle, by=by))
        if ends:
            raise ends[0]

    def respond(self, n: int, handler: Callable[[Message[V]], object], *, by: By = "message") -> None:
        """As `workers`, with what `handler` returns as the reply to each message that wants one.

        See `penstock.Consumer.respond`.
        """
        self.workers(n, lambda message: self._portal.run(answered(message, handler(message))), by=by)

    @overload
    def receive(self) -> Message[V]: ...
    @overload
    def receive(self, timeout_s: float | None) -> Message[V] | None: ...
    def receive(self, timeout_s: float | None = None) -> Message[V] | None:
        """The next message; None: none came in time. Raises Closed, ClientError."""
        return self._portal.run(self._inner.receive(timeout_s))

    def receive_many(self, most: int = 1000, timeout_s: float | None = None) -> list[Message[V]]:
        """At least one message and what else is here, `most` at most; [] when none came in time."""
        return self._portal.run(self._inner.receive_many(most, timeout_s))

    def batches(self, most: int = 1000) -> Iterator[list[Message[V]]]:
        """`receive_many`, until it is closed."""
        while True:
            try:
                yield self.receive_many(most)
            except Closed:
                return

    def __iter__(self) -> Iterator[Message[V]]:
        for batch in self.batches(1):
            yield from batch

    @contextmanager
    def process(self, message: Message[V]) -> Iterator[Message[V]]:
        """`with consumer.process(message):` acknowledges it, or gives it back when the block raises."""
        try:
            with handling(message):
                yield message
        except BaseException as error:
            self._portal.run(given_back(message, error))
            raise
        self._portal.run(message.source.consumer.ack(message))

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


class Consumer(_Taking[aio_consumer.Consumer[V], V], Generic[V]):
    """See `penstock.Consumer`."""

    pull = _waits(aio_consumer.Consumer[V].pull)
    ack = _waits(aio_consumer.Consumer[V].ack)
    ack_cumulative = _waits(aio_consumer.Consumer[V].ack_cumulative)
    nack = _waits(aio_consumer.Consumer[V].nack)
    reject = _waits(aio_consumer.Consumer[V].reject)
    extend = _waits(aio_consumer.Consumer[V].extend)
    seek = _waits(aio_consumer.Consumer[V].seek)
    pause = _waits(aio_consumer.Consumer[V].pause)
    go_on = _waits(aio_consumer.Consumer[V].go_on)


class Reader(Consumer[V]):
    """See `penstock.sdk.consuming.reader.Reader`."""

    def seek(self, to: Start) -> None:
        """Go on from there. Raises ClientError."""
        self._portal.run(self._inner.seek(to))

    def has_more(self) -> bool:
        """Whether something that was published before this call is not given out yet; of topics only."""
        return self._portal.run(cast("aio_reader.Reader[V]", self._inner).has_more())


class TopicsConsumer(_Taking[aio_topics.TopicsConsumer[V], V], Generic[V]):
    """See `penstock.sdk.consuming.topics`."""

    ack = _waits(aio_topics.TopicsConsumer[V].ack)
    nack = _waits(aio_topics.TopicsConsumer[V].nack)
    reject = _waits(aio_topics.TopicsConsumer[V].reject)
    extend = _waits(aio_topics.TopicsConsumer[V].extend)
    seek = _waits(aio_topics.TopicsConsumer[V].seek)

    @property
    def topics(self) -> list[str]:
        """Those that are consumed now."""
        return self._inner.topics


class RetryingConsumer(_Taking[aio_retrying.RetryingConsumer[V], V], Generic[V]):
    """See `penstock.Retry`."""

    ack = _waits(aio_retrying.RetryingConsumer[V].ack)
    nack = _waits(aio_retrying.RetryingConsumer[V].nack)
    reject = _waits(aio_retrying.RetryingConsumer[V].reject)
    retry_later = _waits(aio_retrying.RetryingConsumer[V].retry_later)


class Table(_Face[aio_table.Table[V]], Mapping[str, V], Generic[V]):
    """See `penstock.sdk.tables.table.Table`; `with` opens it."""

    refresh = _waits(aio_table.Table[V].refresh)

    def message(self, key: str) -> Message[V]:
        """The message that has the value of a key. Raises KeyError, ClientError."""
        return self._inner.message(key)

    def saved(self) -> bytes:
        """Its content now, to go on from; see `penstock.sdk.tables.table.Table.saved`. Raises ClientError."""

        async def saved() -> bytes:
            return self._inner.saved()  # in the loop, which changes it

        return self._portal.run(saved())

    def __getitem__(self, key: str) -> V:
        return self._inner[key]

    def __contains__(self, key: object) -> bool:
        return key in self._inner

    def __iter__(self) -> Iterator[str]:
        return iter(self._inner)

    def __len__(self) -> int:
        return len(self._inner)

    def open(self) -> Self:
        """Read what is there. Raises ClientError."""
        self._portal.run(self._inner.open())
        return self

    def close(self) -> None:
        """Follow it no more. Idempotent."""
        self._portal.end(self._inner.close())

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()


class Client(_Face[aio.Client]):
    """Made by `connect`; `with` closes it at the end."""

    call = _waits(aio.Client.call)
    request = _waits(aio.Client.request)
    reply = _waits(aio.Client.reply)
    cancel = _waits(aio.Client.cancel)
    producer = _makes(aio.Client.producer, Producer)
    subscribe = _makes(aio.Client.subscribe, Consumer)
    subscribe_topics = _makes(aio.Client.subscribe_topics, TopicsConsumer)
    reader = _makes(aio.Client.reader, Reader)
    table = _makes(aio.Client.table, Table)
    retrying = _makes(aio.Client.retrying, RetryingConsumer)
    transaction = _makes(aio.Client.transaction, Transaction)

    @property
    def admin(self) -> Admin:
        """Topics, subscriptions, queues, bindings."""
        return Admin(self._portal, self._inner.admin)

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self._inner.connected

    def close(self) -> None:
        """Flush and close everything. Idempotent."""
        try:
            self._portal.end(self._inner.close())
        except Closed:
            return
        finally:
            self._portal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _connects(make: Callable[P, aio.Client]) -> Callable[P, Client]:
    @functools.wraps(make)
    def connect(*args: P.args, **kwargs: P.kwargs) -> Client:
        inner = make(*args, **kwargs)
        portal = _Portal(inner.target.address)
        try:
            portal.run(inner.connect())
        except BaseException:
            portal.close()
            raise
        return Client(portal, inner)

    return connect


connect = _connects(aio.Client)
"""A client that is connected; the arguments are those of `penstock.connect`.

Raises ConnectionLost, LoginRefused.
"""

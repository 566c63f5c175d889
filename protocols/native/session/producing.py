"""The producers of one connection: handles, numbered batches, delays, transactions.

A named producer numbers its records; what it sends again is appended once, and a newer instance of the name
fences off the older (`log_core.producers`, the rule for batches). Numbers go up to 2^31 - 1 and begin again
at 0; a batch does not cross that.
"""

from __future__ import annotations

import struct
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.errors import PenstockError
from penstock.log_core.batch._batch import PERSISTENT, Record
from penstock.log_core.errors import OutOfSequence, ProducerFenced
from penstock.protocols.native.codec import frames, kinds
from penstock.protocols.native.codec._codec import Codec
from penstock.protocols.native.codec._producer import Producer, split_records
from penstock.protocols.native.codec.errors import RequestError, code_of, refusal, unknown_handle
from penstock.protocols.native.options import HANDLES_MAX, SINGLES_MAX
from penstock.protocols.properties._properties import parse
from penstock.router.exchanges.entries import QueueEntry
from penstock.router.messages.delay_names import delay_name
from penstock.router.messages.delayed import HORIZON_MS
from penstock.router.names import ENC_AMQP091, split_key_block
from penstock.router.publishing.capacity import Capacity, full
from penstock.router.publishing.publishing import Published

if TYPE_CHECKING:
    from penstock.protocols.native.session.session import Session
    from penstock.router.routes._routes import Route
    from penstock.router.rows import ProducerName
    from penstock.subscriptions.cursor._cursor import Cursor

__all__ = ["Producing", "check_records", "open_route"]

_NUMBERS: Final = 2**31
_AT: Final = struct.Struct(">QBBHIq")
_NAME_MAX: Final = 255
_PART: Final = struct.Struct(">II")
_ACKED: Final = struct.Struct(">QQ")
_ACKS_NONE, _ACKS_FSYNC = 0, 2
_RANGES_MAX: Final = 100_000
"""Of acknowledgements in one transaction."""

_WORDS: Final = {
    "not_found": (
        "there is no topic or queue where this producer sends to: it was deleted, or is not there yet",
        "create it, or correct its name: the producer goes on as it is",
    ),
    "reserved_header": (
        "a record has a header or property that is not served here: CC, BCC, x-penstock-*, x-mqtt-retain, "
        "a reply-to of the broker, or an expiration that is no number",
        "leave it out; delays, sequences and copies have fields of their own",
    ),
    "too_large": (
        "a batch whose records are looked at one by one has too many: it is delayed, or goes to a queue that "
        "may refuse, or to an exchange that reads headers",
        f"send batches of at most {SINGLES_MAX:,} records there",
    ),
    "properties_size": (
        "a record has properties of more than 131,052 bytes: AMQP's usual frame_max has no room for them",
        "send what is so large in the body",
    ),
    "foreign_user": ("a record's user-id is not the user who is logged in", "leave it out"),
}


def _malformed(message: str) -> RequestError:
    return RequestError("malformed", message, remedy="correct the client; docs/reference/native.md")


def _named(name: str, error: ProducerFenced | OutOfSequence) -> RequestError:
    """The log's refusal, which knows a producer by a key of its own, with the name that its user gave it."""
    if isinstance(error, ProducerFenced):
        message = f"producer '{name}' of epoch {error.epoch} was replaced by one of epoch {error.current}"
    else:
        message = f"producer '{name}' sent number {error.first} where {error.expected} follows"
    return RequestError(code_of(error), message, remedy=error.remedy)


def check_records(codec: Codec, records: bytes, count: int) -> None:
    """Whether these are `count` records that this user may send. Raises RequestError."""
    checked = codec.check_records(records, count)
    if checked == "malformed":
        raise _malformed(f"{count} records do not fit {len(records)} bytes")
    if checked != "ok":
        message, remedy = _WORDS[checked]
        raise RequestError(checked, message, remedy=remedy)


def open_route(session: Session, key: bytes) -> Route:
    """Where records with this key block go. Raises RoutingError, RequestError: nowhere."""
    route = session.codec.route(key)
    if route.per_message and session.vhost.firehose.is_on:
        # Each message is asked about then; who asks here looks at all of them at once.
        route = session.vhost.route(session.identity, ENC_AMQP091, key, None)
    if route.error is not None:
        assert isinstance(route.error, PenstockError)
        raise route.error
    if key.startswith(b"\0") and not (route.routed or route.per_message):
        message, remedy = _WORDS["not_found"]
        raise RequestError("not_found", message, remedy=remedy)
    return route


def _buries(guard: Cursor) -> bool:
    """Whether what it refuses becomes a dead letter."""
    entry = guard.queue.data
    return isinstance(entry, QueueEntry) and entry.bury_refused is not None


class Opened(NamedTuple):
    """A producer that is open."""

    epoch: int
    number: int | None
    """The last one, if it numbers messages itself; None: there is none."""
    lsn: int
    """To wait for."""


class Producing:
    """See the module."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._names: dict[int, str] = {}
        """Handles of producers with a name, as their users call them: errors say it."""
        self._labels: dict[int, bytes] = {}
        """Of the same handles, for lists of producers."""
        self._numbered: dict[int, int | None] = {}
        """Handles that number messages themselves; and what was refused and must come again first."""
        self._claims: dict[int, tuple[bytes, int]] = {}
        """Of exclusive ones of these, as the log calls them, and their claim."""

    # Handles

    def open(
        self,
        handle: int,
        key: bytes,
        name: str,
        known_as: ProducerName | None,
        epoch: int | None,
        numbered: bool = False,
        exclusive: bool = False,
    ) -> Opened:
        """A new producer. Its user calls it `name`, the log `known_as`; `exclusive`: no other may send.

        Raises:
            RequestError: `epoch` is an older one.
            RoutingError: nothing may or can be published there.

        """
        session = self._session
        route = session.codec.route(key)
        if route.error is not None:
            assert isinstance(route.error, PenstockError)
            raise route.error
        lsn, number = 0, None
        self._forget(handle)
        if numbered and known_as is not None:
            self._numbered[handle] = None
            if exclusive:
                self._claims[handle] = known_as.key, session.log.producers.claim(known_as.key)
            seen = session.log.producers.seen(known_as.key)
            if seen is not None:
                number, lsn = seen.last, seen.lsn
        elif known_as is not None:
            try:
                epoch, lsn = session.log.producers.begin(known_as.key, epoch, label=known_as.label)
            except ProducerFenced as error:
                raise _named(name, error) from error
        self._names[handle] = name
        self._labels[handle] = b"" if known_as is None else known_as.label
        session.codec.add_producer(
            Producer(handle, key, b"" if known_as is None else known_as.key, epoch or 0)
        )
        return Opened(epoch or 0, number, lsn)

    def _forget(self, handle: int) -> None:
        self._numbered.pop(handle, None)
        if handle in self._claims:
            self._session.log.producers.give_up(*self._claims.pop(handle))

    def lost(self) -> None:
        """The connection is gone."""
        self._names.clear()
        self._labels.clear()
        self._numbered.clear()
        for handle in list(self._claims):
            self._forget(handle)

    def end_read(self) -> None:
        """The frames of a read are handled: end the unit of named producers."""
        self._session.log.producers.close()

    # Batches

    def refused(self, id: int, sequence: int, count: int, why: str | PenstockError) -> None:
        """Tell the peer of a batch that was not appended."""
        if id in self._numbered and self._numbered[id] is None:
            self._numbered[id] = sequence
        if why == "unknown_handle":
            why = unknown_handle("producer", id)
        elif isinstance(why, str):
            message, remedy = _WORDS[why]
            why = RequestError(why, message, remedy=remedy)
        told = {"sequence": sequence, "count": count, **refusal(why)}
        self._session.codec.send(kinds.REFUSED, id, frames.encode(told))
        self._session.dirty()

    def admit(self, producer: Producer, sequence: int, count: int) -> int | None:
        """See `_codec.Host`."""
        if producer.id in self._numbered:
            return self._admit_numbered(producer, sequence, count)
        last = sequence + count - 1
        if last >= _NUMBERS:
            error = RequestError(
                "out_of_sequence",
                f"a batch with numbers {sequence} to {last}",
                remedy=f"numbers go up to {_NUMBERS - 1}; begin again at 0 in a batch of its own",
            )
            self.refused(producer.id, sequence, count, error)
            return None
        try:
            return self._session.log.producers.admit_batch(producer.name, producer.epoch, sequence, last)
        except (ProducerFenced, OutOfSequence) as error:
            if isinstance(error, OutOfSequence):
                lsn = self._session.log.producers.repeated(producer.name, producer.epoch, last)
                if lsn:
                    return -lsn
            self.refused(producer.id, sequence, count, _named(self._names[producer.id], error))
            return None

    def _admit_numbered(self, producer: Producer, number: int, count: int) -> int | None:
        missing = self._numbered[producer.id]
        claim = self._claims.get(producer.id)
        if claim is not None and not self._session.log.producers.holds(*claim):
            error = RequestError(
                "fenced",
                f"producer '{self._names[producer.id]}' is exclusive, and another connection has opened it",
                remedy="end this process, or open it again",
            )
        elif number >= 2**63:
            error = RequestError(
                "out_of_sequence",
                f"a batch with the number {number}",
                remedy="a producer that numbers messages itself has numbers below 2^63",
            )
        elif missing is not None and number > missing:
            # It would be a duplicate, once this one is there.
            error = RequestError(
                "out_of_sequence",
                f"number {missing} was refused, and {number} would come before it",
                remedy=f"send {missing} again first, or open the producer again to leave it out",
            )
        else:
            self._numbered[producer.id] = None
            return -self._session.log.producers.admit_sequence(producer.name, number)
        self.refused(producer.id, number, count, error)
        return None

    def note(self, producer: Producer, sequence: int, count: int, position: int) -> None:
        """A named producer's batch was appended."""
        producers, label = self._session.log.producers, self._labels[producer.id]
        if producer.id in self._numbered:
            producers.note(producer.name, sequence, sequence, position, label=label)
            return
        last = sequence + count - 1
        producers.note(producer.name, sequence, last, position, epoch=producer.epoch, label=label)

    def publish_each(
        self, producer: Producer, sequence: int, acks: int, records: list[tuple[bytes, bytes]]
    ) -> None:
        """Append one by one what queues may refuse, or goes by its headers: all of a batch, or nothing.

        A queue that makes dead letters of what it refuses does so for producers without names, record by
        record; what others numbered may come again, and is nowhere meanwhile.
        """
        session = self._session
        ways = [self._way(producer.key, props, body) for props, body in records]
        capacity = Capacity()
        for at, (route, record) in enumerate(ways):
            if route.error is not None:
                assert isinstance(route.error, PenstockError)
                self.refused(producer.id, sequence, len(records), route.error)
                return
            guard = capacity.refusing(route, len(record.body))
            if guard is not None and (producer.name or not _buries(guard)):
                error = RequestError(
                    "full",
                    f"{full(guard)}: record {at + 1} of {len(records)} has no room; none is kept",
                    remedy="let it be consumed and send the batch again, or send smaller batches",
                )
                self.refused(producer.id, sequence, len(records), error)
                return
        is_named = producer.key.startswith(b"\0")
        is_reply = session.vhost.replies.waits_at(producer.key)
        if is_named and not is_reply and not any(route.routed for route, _ in ways):
            self.refused(producer.id, sequence, len(records), "not_found")
            return
        if producer.name:
            session.begin_unit()
        first = last = buried = 0
        for route, one in ways:
            if is_reply:
                session.vhost.replies.deliver((one.key,), one.props, one.body)
                published = Published(session.log.appender.next_lsn - 1, route)
            else:
                published = session.vhost.publishing.append(
                    route, one.key, one.props, one.body, one.flags, one.priority, ENC_AMQP091, one.ttl
                )
            first = first or published.lsn
            last = max(last, published.lsn)
            buried += published.refused
        if producer.name:
            self.note(producer, sequence, len(records), first)
        if buried:
            error = RequestError(
                "full",
                f"{buried} of {len(records)} records are dead letters of a queue that is full",
                remedy="let it be consumed; records that were not refused come twice if you send them again",
            )
            self.refused(producer.id, sequence, len(records), error)
        elif acks != _ACKS_NONE:
            said = is_reply or not session.codec.tells_routed
            runs = groupby(said or route.routed for route, _ in ways)
            for routed, run in runs:
                count = len(list(run))
                session.codec.expect(producer.id, sequence, count, first, last, acks == _ACKS_FSYNC, routed)
                first += count

    def _way(self, key: bytes, props: bytes, body: bytes) -> tuple[Route, Record]:
        session = self._session
        found = parse(props)
        assert found is not None
        mode, priority, ttl, _, _ = found
        flags = PERSISTENT if mode == 2 else 0
        record = Record(0, key, props, body, (), flags, priority, ENC_AMQP091, 0, ttl, 0)
        route = session.codec.route(key)
        if route.per_message:
            assert session.broker.headers_of is not None
            route = session.vhost.route(session.identity, ENC_AMQP091, key, session.broker.headers_of(record))
        return route, record

    # Later

    def produce_at(self, id: int, payload: bytes) -> None:
        """PRODUCE_AT: a batch that is published at a time."""
        if len(payload) < _AT.size:
            self._session.fault("malformed", f"PRODUCE_AT has at least {_AT.size} bytes")
            return
        sequence, acks, compression, name_size, count, due_ms = _AT.unpack_from(payload)
        named = payload[_AT.size : _AT.size + name_size]
        if acks > _ACKS_FSYNC or compression > 2 or name_size > _NAME_MAX or len(named) < name_size:
            self._session.fault(
                "malformed",
                f"PRODUCE_AT: acks is 0, 1 or 2, compression 0, 1 or 2; a name has at most {_NAME_MAX} bytes",
            )
            return
        session, records = self._session, payload[_AT.size + name_size :]
        if compression:
            unpacked = session.unpacked(records)
            if unpacked is None:
                return
            records = unpacked
        producer = session.codec.producer(id)
        if producer is None:
            self.refused(id, sequence, count, "unknown_handle")
            return
        if count > SINGLES_MAX:
            self.refused(id, sequence, count, "too_large")
            return
        session.codec.spend(len(records) + 1024 * count)
        checked = session.codec.check_records(records, count)
        if checked == "malformed":
            session.fault("malformed", f"a batch of {count} records does not fit its {len(records)} bytes")
            return
        try:
            if checked != "ok":
                message, remedy = _WORDS[checked]
                raise RequestError(checked, message, remedy=remedy)
            open_route(session, producer.key)
            if producer.name:
                raise RequestError(
                    "unsupported",
                    "a named producer cannot delay",
                    remedy="open a producer without a name for that",
                )
            if not 0 <= due_ms <= session.log.wall_ms() + HORIZON_MS:
                raise RequestError(
                    "bad_field",
                    f"due at {due_ms} ms: before 1970, or beyond the horizon of 100 years",
                    remedy="set due to a time in ms since the epoch",
                )
            name = self._delay_name(producer.key, named, count)
        except PenstockError as error:
            self.refused(id, sequence, count, error)
            return
        if name is None:
            first, lsn = self._schedule(producer.key, due_ms, records, count)
        else:
            with session.log.unit():
                session.broker.delayed.cancel_named(session.vhost, session.identity, name)
                first, lsn = self._schedule(producer.key, due_ms, records, count, name)
        if acks != _ACKS_NONE:
            # By which bindings it goes is known when it is due.
            session.codec.expect(id, sequence, count, first, lsn, acks == _ACKS_FSYNC, True)

    def _delay_name(self, key: bytes, named: bytes, count: int) -> bytes | None:
        """The key of the name of a delayed message; None: it has none. Raises RequestError."""
        if not named:
            return None
        if count != 1:
            raise RequestError(
                "bad_field", f"{count} messages of one name", remedy="send each in a batch of its own"
            )
        try:
            name = named.decode()
        except UnicodeDecodeError:
            raise RequestError("bad_field", "the name is no UTF-8", remedy="give it as text") from None
        parts = split_key_block(key)
        assert parts is not None  # the producer was opened with it
        return delay_name(self._session.vhost.name, parts[0], name)

    def _schedule(
        self, key: bytes, due_ms: int, records: bytes, count: int, name: bytes | None = None
    ) -> tuple[int, int]:
        """The first and the last LSN of what waits now."""
        session, first, lsn = self._session, 0, 0
        for props, body in split_records(records, count):
            found = parse(props)
            assert found is not None
            mode, priority, ttl, _, _ = found
            lsn = session.broker.delayed.schedule(
                session.vhost.name,
                due_ms,
                ENC_AMQP091,
                key,
                props,
                body,
                flags=PERSISTENT if mode == 2 else 0,
                priority=priority,
                ttl_ms=ttl,
                name=name,
            )
            first = first or lsn
        return first, lsn

    # All or nothing

    def transact(self, request: int, payload: bytes) -> None:
        """TRANSACT: batches of several producers and acknowledgements, as one atomic unit of the log.

            batches u16 | settled u16 | batches x (producer u32 | count u32 | size u32 | records)
                                      | settled x (consumer u32 | ranges u32 | ranges x (first u64, last u64))

        Raises:
            RequestError: it cannot be done; nothing was.

        """
        session = self._session
        batches, settled = self._parts(payload)
        consumers = []
        for handle, ranges in settled.items():
            consumer = session.codec.consumer(handle)
            if consumer is None:
                raise unknown_handle("consumer", handle)
            # In order, and each once: so no more is looked at than is out.
            behind = 0
            for first, last in sorted(ranges):
                if first < behind or consumer.count_out(first, last) != last - first + 1 or last < first:
                    raise RequestError(
                        "stale_delivery",
                        f"of the deliveries {first} to {last} of consumer {handle} some are not out any more"
                        ", or are named twice",
                        remedy="abort: they come again, or were settled",
                    )
                behind = last + 1
            consumers.append((consumer, ranges))
        positions = []
        with session.log.unit():
            for producer, _, records, count in batches:
                # Resolved here, for the first message to a queue makes its feed.
                route = open_route(session, producer.key)
                positions.append(session.codec.append_records(route, producer.key, records, count))
            lsn = session.log.appender.next_lsn - 1 if positions else 0
            for consumer, ranges in consumers:
                for first, last in ranges:
                    consumer.ack(first, last)
                lsn = max(lsn, consumer.queue.promise())
        for consumer, _ in consumers:
            consumer.feed()
        session.answer(request, {"positions": positions}, lsn)

    def _parts(
        self, payload: bytes
    ) -> tuple[list[tuple[Producer, int, bytes, int]], dict[int, list[tuple[int, int]]]]:
        codec = self._session.codec
        try:
            n_batches, n_settled = struct.unpack_from(">HH", payload)
            if n_batches > HANDLES_MAX or n_settled > HANDLES_MAX:
                raise RequestError(
                    "too_large",
                    f"a transaction of {n_batches} batches and acknowledgements of {n_settled} consumers",
                    remedy=f"name each handle once; a connection has at most {HANDLES_MAX}",
                )
            at = 4
            batches = []
            for _ in range(n_batches):
                handle, count, size = struct.unpack_from(">III", payload, at)
                at += 12
                records = payload[at : at + size]
                if len(records) != size:
                    raise _malformed("TRANSACT is cut short")
                at += size
                producer = codec.producer(handle)
                if producer is None:
                    raise unknown_handle("producer", handle)
                check_records(codec, records, count)
                route = open_route(self._session, producer.key)
                if route.special:
                    raise RequestError(
                        "unsupported",
                        "a transaction cannot publish by headers, or to a queue that may refuse",
                        remedy="publish to a topic",
                    )
                batches.append((producer, handle, records, count))
            settled: dict[int, list[tuple[int, int]]] = {}
            named = 0
            for _ in range(n_settled):
                handle, n = _PART.unpack_from(payload, at)
                at += _PART.size
                if at + 16 * n > len(payload):
                    raise _malformed("TRANSACT is cut short")
                named += n
                if named > _RANGES_MAX:
                    raise RequestError(
                        "too_large",
                        f"a transaction with more than {_RANGES_MAX} ranges of acknowledgements",
                        remedy="use several transactions, or join adjacent ranges",
                    )
                settled.setdefault(handle, []).extend(_ACKED.iter_unpack(payload[at : at + 16 * n]))
                at += 16 * n
        except struct.error as error:
            raise _malformed("TRANSACT is cut short") from error
        if at != len(payload):
            raise _malformed(f"TRANSACT has {len(payload) - at} bytes too many")
        return batches, settled

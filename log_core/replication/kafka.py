"""The journal in Apache Kafka: one partition of one topic, by librdkafka (the extra `kafka`).

Entries are sent with acks=all by an idempotent producer with one request in flight: entries that gather
meanwhile become the next request, which is the group commit of a replicated log. They gather here. A thread
of librdkafka that has messages beside a request in flight asks again and again whether it may send, which
took a third of the owner's CPU. Kafka confirms in the order of sending. A thread of this module takes in
the answers.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from penstock.errors import StartError
from penstock.extras import install
from penstock.log_core.replication.journal import Answer, Bounds, JournalFailed, Trimmed
from penstock.log_core.replication.journal_options import KafkaOptions
from penstock.log_core.replication.kafka_notes import SETTINGS as NOTES_SETTINGS
from penstock.log_core.replication.kafka_notes import KafkaNotes, notes_topic

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

__all__ = ["KafkaJournal", "client_library"]

_LOG: Final = logging.getLogger("penstock.journal")

_PARTITION: Final = 0
_COPIES: Final = 3
_IN_SYNC: Final = 2
_SETTINGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
"""Of the topic, as it is made."""
_CLAIM_S: Final = 30.0
_NOTES_READ: Final = 500
"""Each node makes one in a second."""
_TOGETHER: Final = 64
_TOGETHER_BYTES: Final = 512 * 1024
"""Entries that are taken in together. They stay in the processor's cache until they are written."""
_POLL_S: Final = 0.25
_REQUEST_BYTES: Final = 900 * 1024
"""Of the entries of a request: librdkafka makes requests of at most 1,000,000 bytes."""
_GAP_POLL_S: Final = 0.02
_REACH_S: Final = 0.5
_AGAIN_S: Final = 0.1
_WARN_EACH_S: Final = 10.0
_GATHERING: Final = {"fetch.min.bytes": 1024 * 1024, "fetch.wait.max.ms": 25}
"""Entries gather for a moment at the broker: a request for each would cost both ends more."""
_AT_ONCE: Final = {"fetch.min.bytes": 1}


def client_library() -> Any:
    """The module confluent_kafka. Raises StartError: it is not installed."""
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError as error:
        raise StartError(
            f'log.engine = "kafka" needs the client library of Kafka: {error}',
            remedy=install("kafka"),
        ) from error
    return confluent_kafka


class KafkaJournal:
    """A node's handle on the journal: a warm producer, and readers."""

    def __init__(self, options: KafkaOptions) -> None:
        """Reach the brokers. Raises StartError: the library is missing, or they do not answer."""
        self._library = client_library()
        self._options = options
        self._ask_s: Final = options.answer_timeout_s
        self._answer: Answer | None = None
        self._lock = threading.Lock()
        self._in_flight = 0
        """Entries that librdkafka has."""
        self._gathered: deque[tuple[int, bytes]] = deque()
        """Those that wait until all of them are answered, with their indexes."""
        self._notes: KafkaNotes | None = None
        self._notes_reader: _Follower | None = None
        self._noted: deque[str] = deque(maxlen=_NOTES_READ)
        """Notes that were read, which end at the offset `_notes_end`."""
        self._notes_end = 0
        self._reader: _Follower | None = None
        self._asker: _Follower | None = None
        """Asks for the bounds alone: a gap is read meanwhile."""
        self._ends = False
        self._warned_at = -_WARN_EACH_S
        self._troubles: dict[int, str] = {}
        settings = options.client() | {
            "acks": "all",
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,
            "max.in.flight.requests.per.connection": 1,
            "message.timeout.ms": 0,
            "request.timeout.ms": 4000,
            "retry.backoff.ms": 50,
            "linger.ms": 0,
            "compression.type": options.compression,
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2_097_151,
            "error_cb": self._troubled,
        }
        try:
            self._producer = self._library.Producer(settings)
            self._admin = self._library.admin.AdminClient(options.client())
        except self._library.KafkaException as error:
            raise StartError(
                f"the settings of Kafka are refused: {error.args[0].str()}",
                remedy="correct the section kafka",
            ) from error
        self._reach()
        self._thread = threading.Thread(target=self._run, name="penstock-journal", daemon=True)
        self._thread.start()

    def _reach(self) -> None:
        """Wait for the first answer. Raises StartError: none comes in time, or Kafka refuses this node."""
        codes = self._library.KafkaError
        remedies = {
            codes._SSL: "correct kafka.ca_file, cert_file, key_file and security_protocol",
            codes._AUTHENTICATION: "correct kafka.username, password_file and sasl_mechanism",
        }
        deadline = time.monotonic() + self._ask_s
        self._warned_at = deadline  # an error says it
        while True:
            try:
                self._producer.list_topics(timeout=min(_REACH_S, self._ask_s))
                return
            except self._library.KafkaException as error:
                reason, remedy = error.args[0].str(), "start its brokers, or correct kafka.bootstrap_servers"
            self._producer.poll(0)  # tells `_troubled` what happened meanwhile
            refusals = [code for code in remedies if code in self._troubles]
            if refusals or time.monotonic() >= deadline:
                if refusals:
                    reason, remedy = self._troubles[refusals[-1]], remedies[refusals[-1]]
                where = ", ".join(self._options.bootstrap_servers)
                raise StartError(f"Kafka does not answer at {where}: {reason}", remedy=remedy)

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return self._options.topic

    # The topic

    def prepare(self) -> None:
        """Make the topic when it is missing, and check what the promises need of it. Raises StartError."""
        library, topic = self._library, self._options.topic
        try:
            there = self._producer.list_topics(timeout=self._ask_s).topics
            for name, settings in ((topic, _SETTINGS), (notes_topic(topic), NOTES_SETTINGS)):
                if name not in there:
                    self._create(name, settings)
            described = self._described()
            found = self._settings()
        except library.KafkaException as error:
            raise StartError(
                f"the topic {topic} cannot be made or described: {error.args[0].str()}",
                remedy="give kafka.username the rights to create, describe, read, write and delete records",
            ) from error
        if len(described.partitions) != 1:
            raise StartError(
                f"the topic {topic} has {len(described.partitions)} partitions",
                remedy="the log is one order: make the topic anew with 1 partition",
            )
        self._check({name: entry.value for name, entry in found.items()}, described)
        self._bounds(self._gap_reader())  # it has its connection to the leader then

    def _described(self) -> Any:
        """The topic's partitions. A topic that was just made has its leader a moment later."""
        deadline = time.monotonic() + self._ask_s
        while True:
            found = self._producer.list_topics(self._options.topic, timeout=self._ask_s).topics[
                self._options.topic
            ]
            if found.error is None and all(it.error is None for it in found.partitions.values()):
                return found
            if time.monotonic() > deadline:
                raise StartError(
                    f"the topic {self._options.topic} has no leader", remedy="look at the brokers of Kafka"
                )
            time.sleep(_AGAIN_S)

    def _settings(self) -> Any:
        """The topic's settings. Another broker may hear of a new topic later than the one that made it."""
        admin = self._library.admin
        resource = admin.ConfigResource(admin.ConfigResource.Type.TOPIC, self._options.topic)
        deadline = time.monotonic() + self._ask_s
        while True:
            try:
                return self._admin.describe_configs([resource], request_timeout=self._ask_s)[
                    resource
                ].result()
            except self._library.KafkaException as error:
                unknown = error.args[0].code() == self._library.KafkaError.UNKNOWN_TOPIC_OR_PART
                if not unknown or time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_S)

    def _create(self, topic: str, settings: dict[str, str]) -> None:
        library = self._library
        brokers = len(self._producer.list_topics(timeout=self._ask_s).brokers)
        copies = min(_COPIES, brokers)
        new = library.admin.NewTopic(
            topic,
            num_partitions=1,
            replication_factor=copies,
            config={**settings, "min.insync.replicas": str(max(1, copies - 1))},
        )
        try:
            self._admin.create_topics([new], request_timeout=self._ask_s)[topic].result()
        except library.KafkaException as error:
            if error.args[0].code() != library.KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def _check(self, settings: dict[str, str], described: Any) -> None:
        copies = len(described.partitions[_PARTITION].replicas)
        faults = []
        if copies < _COPIES:
            faults.append(f"it has {copies} copies, and fewer than {_COPIES} do not survive a broker")
        if int(settings["min.insync.replicas"]) < _IN_SYNC:
            faults.append(f"min.insync.replicas is {settings['min.insync.replicas']}, set it to {_IN_SYNC}")
        if settings["unclean.leader.election.enable"] != "false":
            faults.append("unclean.leader.election.enable is on, set it to false")
        if faults and not self._options.allow_weak:
            raise StartError(
                f"the topic {self._options.topic} may lose confirmed messages: {'; '.join(faults)}",
                remedy="change the topic; for tests alone, set kafka.allow_weak = true",
            )
        faults = []
        if settings["cleanup.policy"] != "delete" or settings["retention.ms"] != "-1":
            faults.append("set cleanup.policy=delete and retention.ms=-1: Kafka may delete nothing by itself")
        if settings["retention.bytes"] != "-1":
            faults.append("set retention.bytes=-1")
        if int(settings["max.message.bytes"]) < 1_000_000:
            faults.append("set max.message.bytes to 1048588 or more")
        if faults:
            raise StartError(
                f"the topic {self._options.topic} cannot carry a log: {'; '.join(faults)}",
                remedy="change the settings of the topic",
            )

    # Appending

    def _run(self) -> None:
        while not self._ends:
            self._producer.poll(_POLL_S)

    def _troubled(self, error: KafkaError) -> None:
        """Brokers are gone, or refuse this node: librdkafka goes on trying, so it is told now and then."""
        self._troubles[error.code()] = error.str()
        if time.monotonic() - self._warned_at >= _WARN_EACH_S:
            self._warned_at = time.monotonic()
            _LOG.warning("Kafka cannot be reached: %s", error.str())

    def _put(self, raw: bytes, on_delivery: Any) -> None:
        try:
            self._producer.produce(
                self._options.topic, value=raw, partition=_PARTITION, on_delivery=on_delivery
            )
        except (BufferError, self._library.KafkaException) as error:
            raise JournalFailed(f"Kafka takes no more entries: {error}") from error

    def _put_and_wait(self, raw: bytes) -> int:
        done = threading.Event()
        told: list[tuple[KafkaError | None, int | None]] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            told.append((error, message.offset()))
            done.set()

        self._put(raw, delivered)
        if not done.wait(_CLAIM_S):
            raise JournalFailed(f"Kafka kept an entry of {self._options.topic} not within {_CLAIM_S:.0f} s")
        error, offset = told[0]
        if error is not None or offset is None or offset < 0:
            raise JournalFailed(f"Kafka refused an entry: {error.str() if error else 'it has no offset'}")
        return offset

    def claim(self, raw: bytes) -> int:
        """Append a CLAIM and wait until it is kept; its offset. Raises JournalFailed."""
        return self._put_and_wait(raw)

    def hint(self, raw: bytes) -> int:
        """Append an entry without an index, and wait until it is kept; its offset. Raises JournalFailed."""
        return self._put_and_wait(raw)

    def begin(self, answer: Answer) -> None:
        """From now on tell `answer` of appended entries, in order, from a thread of the journal."""
        self._answer = answer

    def append(self, index: int, raw: bytes) -> None:
        """Append an entry behind all earlier ones, without waiting. Raises JournalFailed."""
        with self._lock:
            self._gathered.append((index, raw))
            if self._in_flight:
                return
            batch = self._next_request()
        self._send(batch)

    def _next_request(self) -> list[tuple[int, bytes]]:
        """Take the entries of one request out of those that gathered; the lock is held."""
        batch: list[tuple[int, bytes]] = []
        nbytes = 0
        while self._gathered and (not batch or nbytes + len(self._gathered[0][1]) <= _REQUEST_BYTES):
            batch.append(self._gathered.popleft())
            nbytes += len(batch[-1][1])
        self._in_flight = len(batch)
        return batch

    def _send(self, batch: list[tuple[int, bytes]]) -> None:
        messages = [{"value": raw, "callback": self._delivered(index)} for index, raw in batch]
        try:
            sent = self._producer.produce_batch(self._options.topic, messages, partition=_PARTITION)
        except (BufferError, self._library.KafkaException) as error:
            raise JournalFailed(f"Kafka takes no more entries: {error}") from error
        if sent < len(batch):
            raise JournalFailed(f"Kafka takes no more entries: {messages[sent].get('_error')}")

    def _delivered(self, index: int) -> Callable[[KafkaError | None, Message], None]:
        answer = self._answer
        assert answer is not None

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                answer(index, None, JournalFailed(f"Kafka refused an entry: {error.str()}"))
                return
            with self._lock:
                self._in_flight -= 1
                batch = [] if self._in_flight else self._next_request()
            if batch:
                try:
                    self._send(batch)
                except JournalFailed as failure:
                    answer(index, None, failure)
                    return
            offset = message.offset()
            answer(index, offset if offset is not None and offset >= 0 else None, None)

        return delivered

    # Reading

    def follow(self, first: int) -> _Follower:
        """Read from `first` on. Entries may gather for a moment, which costs less."""
        return _Follower(self._library, self._options, self.topic, first, _GATHERING)

    def follow_closely(self, first: int) -> _Follower:
        """The same, but each entry comes at once. `read` uses it, too; it is the journal's to close."""
        reader = self._gap_reader()
        reader.begin(first)
        return reader

    def note(self, text: str) -> None:
        """Tell others something about this node; does not wait, and may get lost."""
        if self._notes is None:
            self._notes = KafkaNotes(self._library, self._options)
        self._notes.note(text)

    def notes(self) -> list[str]:
        """Notes of all nodes, the newest ones last. Raises JournalFailed."""
        if self._notes_reader is None:
            self._notes_reader = _Follower(self._library, self._options, notes_topic(self.topic))
        reader = self._notes_reader
        first, end = self._bounds(reader)
        if end < self._notes_end:  # the topic was made anew
            self._notes_end = 0
        first = max(first, end - _NOTES_READ, self._notes_end)
        reader.begin(first)
        try:
            deadline = time.monotonic() + self._ask_s
            while first < end:
                if self._ends or time.monotonic() > deadline:
                    raise JournalFailed("Kafka does not tell the notes of the nodes in time")
                for offset, raw in reader.poll(_POLL_S):
                    self._noted.append(raw.decode())
                    first = self._notes_end = offset + 1
        finally:
            reader.end()
        return list(self._noted)

    def read(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """The entries from `first` to `end`, without `end`. Waits for them. Raises JournalFailed."""
        reader = self._gap_reader()
        reader.begin(first)
        try:
            while first < end:
                if self._ends:
                    raise JournalFailed("the journal was closed while Kafka did not answer")
                for offset, raw in reader.poll(_GAP_POLL_S):
                    if offset >= end:
                        return
                    yield offset, raw
                    first = offset + 1
        finally:
            reader.end()

    def _gap_reader(self) -> _Follower:
        """It is kept: confirms wait for it, and a new one takes a second to reach the brokers."""
        if self._reader is None:
            self._reader = _Follower(self._library, self._options, self.topic)
        return self._reader

    def bounds(self) -> Bounds:
        """Raises JournalFailed: the journal does not answer."""
        if self._asker is None:
            self._asker = _Follower(self._library, self._options, self.topic)
        return self._bounds(self._asker)

    def _bounds(self, follower: _Follower) -> Bounds:
        deadline = time.monotonic() + self._ask_s
        while True:
            try:
                return follower.bounds(self._ask_s)
            except JournalFailed:  # a client that is new may not know the leader of a new topic yet
                if self._ends or time.monotonic() > deadline:
                    raise
            time.sleep(_AGAIN_S)

    def trim(self, before: int) -> None:
        """Delete the entries below the offset `before`. Raises JournalFailed."""
        library = self._library
        where = library.TopicPartition(self._options.topic, _PARTITION, before)
        try:
            for future in self._admin.delete_records([where], request_timeout=self._ask_s).values():
                future.result()
        except library.KafkaException as error:
            raise JournalFailed(f"Kafka did not delete old entries: {error.args[0].str()}") from error

    def close(self) -> None:
        """Let go of it; entries that are not kept yet may get lost."""
        self._ends = True
        self._thread.join()
        for reader in (self._reader, self._notes_reader, self._asker):
            if reader is not None:
                reader.close()


class _Follower:
    """Reads one partition in order, for one thread."""

    def __init__(
        self,
        library: Any,
        options: KafkaOptions,
        topic: str,
        first: int = -1,
        settings: Mapping[str, int] = _AT_ONCE,
    ) -> None:
        """`first`: the offset to begin with, or -1: `begin` tells it; `settings`: when entries come."""
        self._library = library
        self._topic = topic
        self._told = ""
        self._together = _TOGETHER
        self._consumer = library.Consumer(
            options.client()
            | {
                "group.id": f"{self._topic}.readers",  # librdkafka wants one; nothing is noted for it
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                **settings,
                "fetch.error.backoff.ms": 50,
                "fetch.message.max.bytes": 4 * 1024 * 1024,
                "queued.max.messages.kbytes": 16384,
                # A full queue is not looked at again for so long; the default of 1 s makes a rebuild wait.
                "fetch.queue.backoff.ms": 5,
                "check.crcs": False,
            }
        )
        if first >= 0:
            self.begin(first)

    def begin(self, first: int) -> None:
        """Read from `first` on."""
        self._consumer.assign([self._library.TopicPartition(self._topic, _PARTITION, first)])

    def end(self) -> None:
        """Read no more, until `begin`."""
        self._consumer.unassign()

    def poll(self, seconds: float) -> list[tuple[int, bytes]]:
        """Some entries, the first of them within `seconds`. Raises Trimmed, JournalFailed."""
        library, consumer = self._library, self._consumer
        first = consumer.poll(seconds)
        if first is None:
            return []
        found = []
        for message in (first, *consumer.consume(self._together, 0)):
            error = message.error()
            if error is None:
                found.append((message.offset(), message.value() or b""))
            elif error.code() in (
                library.KafkaError._AUTO_OFFSET_RESET,
                library.KafkaError.OFFSET_OUT_OF_RANGE,
            ):
                raise Trimmed(f"the journal does not hold the next entry any more: {error.str()}")
            elif error.code() == library.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise JournalFailed(
                    f"the topic {self._topic} is gone",
                    remedy="the data folders are whole: set log.engine to local on the last owner to go on",
                )
            elif error.fatal():
                raise JournalFailed(f"Kafka cannot be read any more: {error.str()}")
            elif error.str() != self._told:
                self._told = error.str()
                _LOG.warning("Kafka cannot be read for now: %s", self._told)
        if found:
            mean = 1 + sum(len(raw) for _, raw in found) // len(found)
            self._together = max(1, min(_TOGETHER, _TOGETHER_BYTES // mean))
        return found

    def end_seen(self) -> int:
        """The partition's end as of the newest answer with entries; negative: there was none yet."""
        where = self._library.TopicPartition(self._topic, _PARTITION)
        _, end = self._consumer.get_watermark_offsets(where, cached=True)
        return int(end)

    def bounds(self, seconds: float) -> Bounds:
        """As of now, asked of the brokers. Raises JournalFailed: they do not answer in time."""
        where = self._library.TopicPartition(self._topic, _PARTITION)
        try:
            found = self._consumer.get_watermark_offsets(where, timeout=seconds, cached=False)
        except self._library.KafkaException as error:
            raise JournalFailed(f"Kafka does not tell its offsets: {error.args[0].str()}") from error
        if found is None:
            raise JournalFailed("Kafka does not tell its offsets in time")
        return Bounds(*found)

    def close(self) -> None:
        """End. The brokers are not told: a consumer's own close waits for ever when they are gone."""
        self._consumer.unassign()
        del self._consumer

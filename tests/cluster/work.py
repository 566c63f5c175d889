"""Clients of all protocols at once, which live through takeovers and tell what they were promised.

The streams of `tests.crash` at a steady rate: AMQP, dead letters of AMQP, MQTT at QoS 1 and 2, and one of
HTTP. Beside them the SDK: a named producer, transactions over two topics, and delayed messages.
"""

from __future__ import annotations

import asyncio
import threading
import time
import traceback
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

import httpx

import penstock
from bench.load_amqp import Client
from penstock.sdk.errors import ClientError, ConnectionLost
from tests.crash.sdk_work import bodies_of
from tests.crash.streams import AmqpStream, DeadLetterStream, MqttStream, Stream

__all__ = ["KINDS", "SdkWork", "streams_of"]

KINDS = ("amqp", "letters", "mqtt1", "mqtt2", "http")

_AHEAD = 50
_DELAYS_S = (0.05, 0.4, 1.5, 3.0)
_AGAIN_S = 0.05
_PULL_MS = 1000


class _Steady(Stream):
    """Publishes no faster than a rate, so that a long run fits the machine and the memory."""

    per_s = 100.0
    _began = 0.0
    _sent = 0

    def _may_send(self, in_flight: int) -> bool:
        now = time.monotonic()
        self._began = self._began or now
        if (now - self._began) * self.per_s < self._sent or not super()._may_send(in_flight):
            return False
        # A pause is not made good for: at most so many at once.
        self._sent = max(self._sent + 1, int((now - self._began) * self.per_s) - _AHEAD)
        return True


class _Amqp(_Steady, AmqpStream):
    def _publish_on(self, client: Client) -> None:
        self.history.connections.append(self._next)
        super()._publish_on(client)


class _Letters(_Amqp, DeadLetterStream):
    pass


class _Mqtt(_Steady, MqttStream):
    pass


class _Http(_Steady):
    """One request at a time publishes some messages, and never again what was not answered."""

    _flying = 0

    @property
    def in_flight(self) -> int:
        return self._flying

    def _client(self) -> httpx.Client:
        base = f"http://127.0.0.1:{self.port}/v1/vhosts/%2F/queues/{self.name}"
        return httpx.Client(base_url=base, auth=("guest", "guest"), timeout=30)

    def _publish(self) -> None:
        while self._publishing:
            with suppress(httpx.TransportError), self._client() as client:
                while self._publishing:
                    some = []
                    while len(some) < 20 and self._may_send(len(some)):
                        some.append(self._take())
                    if not some:
                        time.sleep(_AGAIN_S)
                        continue
                    self._flying = len(some)
                    messages = [{"value": body.decode()} for _, body in some]
                    answer = client.post("/messages", json={"messages": messages})
                    self._flying = 0
                    if answer.status_code == 200:
                        for sequence, _ in some:
                            self._acked(sequence)

    def _consume(self) -> None:
        while self._running:
            with suppress(httpx.TransportError), self._client() as client:
                if not self._ready.is_set() and client.put("").status_code not in (200, 201, 204):
                    continue
                self._ready.set()
                while self._running:
                    answer = client.post("/pull", json={"max_messages": 200, "wait_ms": _PULL_MS})
                    if answer.status_code == 404:
                        self._session_lost()
                        return
                    messages = answer.json().get("messages", []) if answer.status_code == 200 else []
                    for message in messages:
                        flagged = bool(message.get("redelivered"))
                        self._received(message["value"].encode(), flagged=flagged)
                    if messages:
                        client.post("/ack", json={"handles": [message["handle"] for message in messages]})
            time.sleep(_AGAIN_S)


def streams_of(ports: dict[str, int], kinds: Sequence[str], per_s: float) -> list[Stream]:
    """A stream of each kind; `ports`: of the links to the nodes, by protocol; `per_s`: messages of each."""
    made: list[_Steady] = []
    for kind in kinds:
        match kind:
            case "amqp":
                made.append(_Amqp("amqp", ports["amqp"]))
            case "letters":
                letters = _Letters("letters", ports["amqp"])
                # A full queue refuses letters, which are sent again later.
                letters.history.at_least_once, letters.history.ordered = True, False
                made.append(letters)
            case "mqtt1" | "mqtt2":
                made.append(_Mqtt(kind, ports["mqtt"], int(kind[-1])))
            case "http":
                made.append(_Http("http", ports["http"]))
                # The messages of a pull whose answer got lost come when its lease ends.
                made[-1].history.ordered = False
    for stream in made:
        stream.per_s = per_s
    return list(made)


@asynccontextmanager
async def _opened(producer: penstock.Producer) -> AsyncIterator[penstock.Producer]:
    """It is open in the block. A connection that is lost meanwhile does not open it: it is tried again."""
    while True:
        try:
            await producer.open()
            break
        except ConnectionLost:
            await asyncio.sleep(_AGAIN_S)
    try:
        yield producer
    finally:
        await producer.close()


class SdkWork(threading.Thread):
    """A named producer, transactions and delayed messages, until `stopping` is set."""

    def __init__(self, port: int, per_s: float) -> None:
        super().__init__(name="sdk", daemon=True)
        self.stopping = threading.Event()
        self.failure = ""
        self.sent: set[int] = set()
        self.attempted = 0
        self.committed: set[int] = set()
        self.due_ms: dict[int, int] = {}
        """Of confirmed delayed messages, by number."""
        self._sent_again: set[int] = set()
        """Delayed messages that may have been sent twice: a producer that does so has no name."""
        self._url = f"penstock://127.0.0.1:{port}"
        self._pause_s = 1 / per_s

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException:
            self.failure = traceback.format_exc()

    async def _run(self) -> None:
        async with penstock.connect(self._url, close_timeout_s=120) as client:
            async with asyncio.TaskGroup() as group:
                for work in (self._sending, self._moving, self._delaying):
                    group.create_task(work(client))

    async def _sending(self, client: penstock.Client) -> None:
        async with _opened(client.producer("numbers", name="steady")) as producer:
            while not self.stopping.is_set():
                number, self.attempted = self.attempted, self.attempted + 1
                await producer.send(b"%d" % number)
                self.sent.add(number)
                await asyncio.sleep(self._pause_s)

    async def _moving(self, client: penstock.Client) -> None:
        number = 0
        async with _opened(client.producer("left")) as left, _opened(client.producer("right")) as right:
            while not self.stopping.is_set():
                try:
                    async with client.transaction() as tx:
                        tx.send(b"%d" % number, to=left)
                        tx.send(b"%d" % number, to=right)
                    self.committed.add(number)
                except ClientError:
                    pass  # it happened, or not
                number += 1
                await asyncio.sleep(self._pause_s)

    async def _delaying(self, client: penstock.Client) -> None:
        number = 0
        async with _opened(client.producer("delayed")) as producer:
            while not self.stopping.is_set():
                delay_s = _DELAYS_S[number % len(_DELAYS_S)]
                connection = client.reconnects
                sent = await producer.send(b"%d" % number, deliver_after_s=delay_s)
                assert sent.due_ms is not None
                self.due_ms[number] = sent.due_ms
                if client.reconnects > connection:
                    self._sent_again.add(number)
                number += 1
                await asyncio.sleep(self._pause_s)

    def findings(self) -> list[str]:
        """The broken promises, in words; it has ended."""
        return asyncio.run(self._findings())

    async def _findings(self) -> list[str]:
        found = [self.failure] if self.failure else []
        async with penstock.connect(self._url) as client:
            numbers = await bodies_of(client, "numbers")
            if numbers != sorted(set(numbers)):
                found.append("the named producer's numbers came twice, or not in order")
            found += _missing("named", self.sent, numbers)
            left, right = await bodies_of(client, "left"), await bodies_of(client, "right")
            if left != right:
                found.append(f"transactions happened in part: {sorted(set(left) ^ set(right))[:5]}")
            if len(set(left)) != len(left):
                found.append("a transaction happened twice")
            found += _missing("transaction", self.committed, left)
            found += await self._late(client)
        return found

    async def _late(self, client: penstock.Client) -> list[str]:
        seen: dict[int, int] = {}
        found = []
        async with client.reader("delayed", start="earliest") as reader:
            while not set(self.due_ms) <= set(seen):
                messages = await reader.receive_many(1000, 30)
                if not messages:
                    break
                for message in messages:
                    number = int(message.body)
                    if number in seen and number not in self._sent_again:
                        found.append(f"the delayed message {number} came twice")
                    seen[number] = message.timestamp_ms
        early = [number for number, due in self.due_ms.items() if seen.get(number, due) < due]
        if early:
            found.append(f"delayed messages came early: {early[:5]}")
        return found + _missing("delayed", set(self.due_ms), list(seen))


def _missing(what: str, promised: set[int], there: list[int]) -> list[str]:
    lost = sorted(promised - set(there))
    return [f"lost of {what}: {len(lost)}, first {lost[:5]}"] if lost else []

"""A shovel between two gateways by the native protocol: each message is brought once, in order.

Messages go to a numbered producer of the target, whose numbers are their positions at the source. So the
target knows those that it has, over kills of either side: it confirms them as duplicates and appends nothing.

    source --DELIVER, DELIVER_STORED: positions p..q--> PRODUCE, number q --> target
       <------------------ ACK ------------------------ CONFIRM q ---------------+

A batch has the number of its last message. It must be all new, or all there. So messages go one by one until
the target confirms the first one that is new; from then on all are, and go in the batches that they came in.
Duplicates are those that were under way when a side was lost. Far more of them mean that the source began
anew with lower positions: then the shovel stops.

A stream is read by a subscription of its own. A queue gives its messages to nobody else meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import struct
from collections import deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from penstock.protocols.links.amqp.uri import Uri, masked, parse_uri
from penstock.protocols.links.errors import LinkError
from penstock.protocols.links.link import Link
from penstock.protocols.links.native.wire import Connection, Refused
from penstock.protocols.links.tls import client_tls
from penstock.protocols.native.codec import kinds
from penstock.protocols.native.codec._inbox import Inbox
from penstock.protocols.native.codec._records import Record, encode_records

if TYPE_CHECKING:
    from penstock.protocols.links.amqp.settings import ShovelSettings
    from penstock.protocols.links.local import Local

__all__ = ["NativeShovel"]

_HANDLE: Final = 1
_BATCH: Final = 5000
"""Messages of a batch at most: some queues take no more than 10,000 at once."""
_PRODUCE: Final = struct.Struct(">QBBHI")
_CONFIRM: Final = struct.Struct(">QQII")
_ACK: Final = struct.Struct(">I4xQQ")
_CREDIT: Final = struct.Struct(">II")
_AGAIN: Final = 1
_AGAIN_MOST: Final = 200_000
"""Duplicates at the beginning of a connection: those under way, and acknowledgements of the last 100 ms."""
_CREDIT_BYTES: Final = 32 << 20
_LOOK_S: Final = 5.0
"""Between two looks at how many messages wait at the source."""


class NativeShovel(Link):
    """See the module."""

    kind = "shovel"

    def __init__(self, vhost: str, name: str, settings: ShovelSettings, user: str, local: Local) -> None:
        """A shovel that `run` begins.

        Args:
            vhost: Of the parameter.
            name: Of the parameter.
            settings: Its ends; both have the protocol `penstock`.
            user: The user who logs in where a URI names no host.
            local: The gateway's own side.

        """
        super().__init__(vhost, name, settings.reconnect_delay_s)
        self.settings: Final = settings
        self.remaining: int | None = None
        """It is never over."""
        self._user = user
        self._local = local
        self._ends = settings.source.uris[0], settings.destination.uris[0]
        self._pending: deque[tuple[int, int, int]] = deque()
        """Number, last tag and count of each batch that is sent and not confirmed."""
        self._is_new = False
        """The target has confirmed a message of this connection that it had not."""
        self.lag: int | None = None

    def facts(self) -> Mapping[str, Any]:
        source, destination = self.settings.source, self.settings.destination
        optional = {
            "src_queue": source.queue,
            "dest_queue": destination.queue,
            "dest_exchange": destination.exchange,
            "dest_exchange_key": destination.key,
        }
        return {
            "src_uri": masked(self._ends[0]).partition("?")[0],
            "src_protocol": "penstock",
            "dest_uri": masked(self._ends[1]).partition("?")[0],
            "dest_protocol": "penstock",
            **{name: one for name, one in optional.items() if one is not None},
            "ack_mode": "on-confirm",
            "remaining": "unlimited",
            "pending": sum(count for _, _, count in self._pending),
            "messages_ready": self.lag,
        }

    @property
    def _producer(self) -> str:
        """The name of the producer: another source or another target has other numbers."""
        source, destination = self.settings.source, self.settings.destination
        uris = [(uri.host, uri.port, uri.vhost) for uri in map(parse_uri, self._ends)]
        words = self.vhost, self.name, uris, source.queue
        ends = destination.queue, destination.exchange, destination.key
        return f"shovel-{hashlib.sha256(repr((words, ends)).encode()).hexdigest()[:32]}"

    async def _serve(self) -> None:
        source, destination = self.settings.source, self.settings.destination
        self._ends = random.choice(source.uris), random.choice(destination.uris)
        self._pending.clear()
        self._is_new = False
        async with (
            await self._open("destination", parse_uri(self._ends[1])) as target,
            await self._open("source", parse_uri(self._ends[0])) as taken,
        ):
            place: dict[str, Any] = {"topic": destination.queue}
            if destination.queue is None:
                place = {"exchange": destination.exchange or "", "routing_key": destination.key or ""}
            await target.request("open_producer", handle=_HANDLE, name=self._producer, numbered=True, **place)
            place = await self._subscribe(taken)
            self._up()
            taken.send(kinds.CREDIT, _HANDLE, _CREDIT.pack(source.prefetch, _CREDIT_BYTES))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._take(taken, target))
                tasks.create_task(self._confirmed(taken, target))
                tasks.create_task(_look(taken, place))

    async def _open(self, end: str, uri: Uri) -> Connection:
        login = {"user": uri.user, "password": uri.password, "vhost": uri.vhost}
        if not uri.host:
            login |= {"user": self._user, "password": self._local.ticket(uri.vhost, self._user)}
            streams = await self._local.connect("native")
            return await Connection.open(end, "the gateway itself", 0, None, login, streams)
        tls = None
        if uri.tls:
            names = uri.parameters
            tls = client_tls(
                ca_file=names.get("cacertfile", ""),
                cert_file=names.get("certfile", ""),
                key_file=names.get("keyfile", ""),
                verify=names.get("verify") != "verify_none",
            )
        return await Connection.open(end, uri.host, uri.port, tls, login)

    async def _subscribe(self, source: Connection) -> dict[str, str]:
        """Consume; the fields of a request that describes what is consumed."""
        settings = self.settings.source
        most = {"max_unacked": settings.prefetch}
        try:
            await source.request("subscribe", handle=_HANDLE, queue=settings.queue, exclusive=True, **most)
            return {"queue": str(settings.queue)}
        except Refused as error:
            if error.code not in ("not_a_queue", "unsupported"):
                raise
            await source.request(
                "subscribe",
                handle=_HANDLE,
                topic=settings.queue,
                subscription=self._producer,
                kind="exclusive",
                start="earliest",
                **most,
            )
            return {"topic": str(settings.queue)}

    def _described(self, answer: Mapping[str, Any]) -> None:
        of_stream = answer.get("subscriptions", {}).get(self._producer, {})
        self.lag = answer.get("ready", of_stream.get("backlog"))

    async def _take(self, source: Connection, target: Connection) -> None:
        """Send to the target what comes from the source."""
        inbox = Inbox(Record, None, 1, 1)
        last = 0
        while True:
            for kind, _, payload in await source.frames():
                if kind == kinds.DELIVER:
                    inbox.deliver(payload)
                elif kind == kinds.DELIVER_STORED:
                    try:
                        inbox.deliver_stored(payload)
                    except ValueError as error:
                        raise LinkError(f"source: a batch is damaged: {error}") from None
                elif kind == kinds.RESPONSE:
                    self._described(orjson.loads(payload))
                elif kind == kinds.EVENT:
                    raise LinkError("source: its queue or subscription is gone, or continues elsewhere")
            while records := inbox.take(_BATCH if self._is_new else 1):
                for one in records:
                    if one.position <= last:
                        raise LinkError("source: it gives messages out of order; use the protocol amqp091")
                    last = one.position
                self._produce(target, records)
            await target.drain()
            if (granted := inbox.granted())[0]:
                source.send(kinds.CREDIT, _HANDLE, _CREDIT.pack(*granted))

    def _produce(self, target: Connection, records: list[Record]) -> None:
        """Send a batch, in as many frames as it needs."""
        at = 0
        while at < len(records):
            size, end = 64, at
            while end < len(records):
                size += 8 + len(records[end].body) + len(records[end].block)
                if end > at and size > target.frame_max:
                    break
                end += 1
            part = records[at:end]
            at = end
            head = _PRODUCE.pack(part[-1].position, kinds.ACKS_FSYNC, 0, 0, len(part))
            packed = encode_records([one.body for one in part], [one.block for one in part])
            target.send(kinds.PRODUCE, _HANDLE, head, packed)
            self._pending.append((part[-1].position, part[-1].tag, len(part)))

    async def _confirmed(self, source: Connection, target: Connection) -> None:
        """Acknowledge at the source what the target has."""
        acknowledged = again = 0
        while True:
            tag = 0
            for kind, _, payload in await target.frames():
                if kind != kinds.CONFIRM:
                    continue
                number, _, _, flags = _CONFIRM.unpack(payload)
                expected, its_tag, count = self._pending.popleft()
                if number != expected:
                    raise LinkError("destination: it confirms a batch that was not sent")
                if not flags & _AGAIN:
                    self._is_new = True
                    self.counts.forwarded += count
                else:
                    again += count
                    if self._is_new or again > _AGAIN_MOST:
                        raise LinkError(
                            "source: it began anew with lower positions, or another shovel sends for it",
                            remedy="make the shovel again with another name",
                        )
                tag = its_tag
            if tag:
                source.send(kinds.ACK, _HANDLE, _ACK.pack(0, acknowledged + 1, tag))
                acknowledged = tag
                await source.drain()


async def _look(source: Connection, place: Mapping[str, str]) -> None:
    while True:
        source.ask("describe", **place)
        await asyncio.sleep(_LOOK_S)

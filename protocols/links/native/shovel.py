"""A shovel between two gateways by the native protocol: each message is brought once, in order.

Messages go to a numbered producer of the target, whose numbers are their positions at the source. When the
target opens it, it says the last number that it has on disk. So the shovel leaves out what is there already,
over kills of either side. All behind it is new.

    source --DELIVER, DELIVER_STORED: positions p..q--> Packer --PRODUCE, number q--> target
       <------------------ ACK --------------------------------- CONFIRM q -------------+

The producer is exclusive: what an earlier connection of the shovel still sends is refused.

Positions are those of one log, so the producer has the log in its name: a source that began anew has another
one. Messages that are left out were under way when a side was lost. Far more of them mean that the source
went back to a copy of its log, with lower positions: then the shovel stops.

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
from penstock.protocols.links.native._packer import OutOfOrder, Packer
from penstock.protocols.links.native.wire import Connection, Refused
from penstock.protocols.links.tls import client_tls
from penstock.protocols.native.codec import kinds

if TYPE_CHECKING:
    from penstock.protocols.links.amqp.settings import ShovelSettings
    from penstock.protocols.links.local import Local

__all__ = ["NativeShovel"]

_HANDLE: Final = 1
_CONFIRM: Final = struct.Struct(">QQII")
_ACK: Final = struct.Struct(">I4xQQ")
_CREDIT: Final = struct.Struct(">II")
_AGAIN: Final = 1
_AGAIN_MOST: Final = 200_000
"""Messages that may come again: those under way, and those that were acknowledged in the last 100 ms."""
_CREDIT_BYTES: Final = 1 << 20
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
        self._acknowledged = 0
        """Tags up to it are settled at the source."""
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
    def _subscription(self) -> str:
        """The name of the subscription to a stream: another shovel has another one."""
        source, destination = self.settings.source, self.settings.destination
        uris = [(uri.host, uri.port, uri.vhost) for uri in map(parse_uri, self._ends)]
        words = self.vhost, self.name, uris, source.queue
        ends = destination.queue, destination.exchange, destination.key
        return f"shovel-{hashlib.sha256(repr((words, ends)).encode()).hexdigest()[:32]}"

    async def _serve(self) -> None:
        source, destination = self.settings.source, self.settings.destination
        self._ends = random.choice(source.uris), random.choice(destination.uris)
        self._pending.clear()
        self._acknowledged = 0
        async with (
            await self._open("destination", parse_uri(self._ends[1])) as target,
            await self._open("source", parse_uri(self._ends[0])) as taken,
        ):
            place: dict[str, Any] = {"topic": destination.queue}
            if destination.queue is None:
                place = {"exchange": destination.exchange or "", "routing_key": destination.key or ""}
            opened = await target.request(
                "open_producer",
                handle=_HANDLE,
                name=f"{self._subscription}-{taken.log_id}",  # another log has other positions
                numbered=True,
                exclusive=True,
                **place,
            )
            packer = Packer(_HANDLE, target.frame_max, opened["number"] or 0)
            described = await self._subscribe(taken)
            self._up()
            taken.send(kinds.CREDIT, _HANDLE, _CREDIT.pack(source.prefetch, _CREDIT_BYTES))
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._take(taken, target, packer))
                tasks.create_task(self._confirmed(taken, target))
                tasks.create_task(_look(taken, described))

    async def _open(self, end: str, uri: Uri) -> Connection:
        login = {"user": uri.user, "password": uri.password, "vhost": uri.vhost}
        if not uri.host:
            login |= {"user": self._user, "password": self._local.ticket(uri.vhost, self._user)}
            stream = await self._local.connect("native")
            return await Connection.open(end, "the gateway itself", 0, None, login, stream)
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
                subscription=self._subscription,
                kind="exclusive",
                start="earliest",
                **most,
            )
            return {"topic": str(settings.queue)}

    def _described(self, answer: Mapping[str, Any]) -> None:
        of_stream = answer.get("subscriptions", {}).get(self._subscription, {})
        self.lag = answer.get("ready", of_stream.get("backlog"))

    async def _take(self, source: Connection, target: Connection, packer: Packer) -> None:
        """Send to the target what comes from the source."""
        while True:
            try:
                others = await source.packed(packer)
            except ValueError as error:
                raise LinkError(f"source: a batch is damaged: {error}") from None
            except OutOfOrder:
                raise LinkError("source: it gives messages out of order; use the protocol amqp091") from None
            for kind, _, payload in others:
                if kind == kinds.RESPONSE:
                    self._described(orjson.loads(payload))
                elif kind == kinds.EVENT:
                    raise LinkError("source: its queue or subscription is gone, or continues elsewhere")
            if packer.left_out > _AGAIN_MOST:
                raise LinkError(
                    "source: it went back to a copy of its log, with lower positions",
                    remedy="make the shovel again with another name",
                )
            if packer.frames:
                self._pending.extend(packer.batches)
                target.write(packer.frames)
                await target.drain()
            elif packer.tag > self._acknowledged and not self._pending:
                await self._settle(source, packer.tag)
            if (granted := packer.granted())[0]:
                source.send(kinds.CREDIT, _HANDLE, _CREDIT.pack(*granted))

    async def _confirmed(self, source: Connection, target: Connection) -> None:
        """Acknowledge at the source what the target has."""
        while True:
            tag = 0
            for kind, _, payload in await target.frames():
                if kind != kinds.CONFIRM:
                    continue
                number, _, _, flags = _CONFIRM.unpack(payload)
                expected, tag, count = self._pending.popleft()
                if number != expected or flags & _AGAIN:
                    raise LinkError("destination: it confirms a batch that was not sent")
                self.counts.forwarded += count
            if tag:
                await self._settle(source, tag)

    async def _settle(self, source: Connection, tag: int) -> None:
        """Acknowledge all up to a tag."""
        source.send(kinds.ACK, _HANDLE, _ACK.pack(0, self._acknowledged + 1, tag))
        self._acknowledged = tag
        await source.drain()


async def _look(source: Connection, place: Mapping[str, str]) -> None:
    while True:
        source.ask("describe", **place)
        await asyncio.sleep(_LOOK_S)

"""A federated exchange: messages that are published to an exchange of the upstream come to the one here.

    upstream's exchange --bindings--> internal exchange "NAME A" or "NAME B" --> queue NAME ==link==> exchange

NAME is "federation: UPSTREAM'S EXCHANGE -> GATEWAY[:VHOST][:EXCHANGE]". The bindings are those of the
exchange here: what nobody here is bound for stays at the upstream. They lead to an internal exchange, so that
the queue needs no change. Each connection makes the other one of the two, gives it all bindings, and deletes
the one before: bindings that went away meanwhile are gone with it.

Source: rabbitmq.com/docs/federated-exchanges; rabbit_federation_exchange_link.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from penstock.protocols.links.amqp._relay import Relay
from penstock.protocols.links.amqp.federation.federated import Federated, FederatedLink
from penstock.protocols.links.amqp.federation.hops import UPSTREAM, bound_from, exchange_change
from penstock.protocols.links.amqp.header import short_string
from penstock.protocols.links.amqp.methods import (
    ExchangeDeclare,
    ExchangeDelete,
    QueueBind,
    QueueDeclare,
    QueueDelete,
)
from penstock.protocols.links.amqp.mover import End, Mover
from penstock.protocols.links.amqp.uri import Uri, parse_uri
from penstock.protocols.links.amqp.wire import CHANNEL, METHOD, Connection

if TYPE_CHECKING:
    from penstock.protocols.links.local import Local

__all__ = ["Bindings", "ExchangeLink"]

Bindings = Mapping[tuple[str, bytes], Mapping[str, Any]]
"""Arguments by routing key and encoded arguments."""

_BIND: Final = b"\x00\x28\x00\x1e\x00\x00"
_UNBIND: Final = b"\x00\x28\x00\x28\x00\x00"
_NOWAIT: Final = b"\x01"
_FRAME: Final = struct.Struct(">BHI")


class ExchangeLink(FederatedLink):
    """See the module."""

    def __init__(self, federated: Federated, user: str, local: Local, cluster: str) -> None:
        super().__init__(federated, user, local, cluster)
        self._bindings: Bindings = {}
        """Those of the exchange here."""
        self._bound: dict[tuple[str, bytes], bytes] = {}
        """The tables of those that were made at the upstream, on this connection."""
        self._upstream_end: End | None = None
        self._suffix = ""

    @property
    def _base(self) -> str:
        """The name of the queue at the upstream."""
        federated = self.federated
        here = self.cluster
        if federated.vhost != parse_uri(self._uri).vhost:
            here += f":{federated.vhost}:{federated.name}"
        elif federated.name != federated.upstream_name:
            here += f":{federated.name}"
        return f"federation: {federated.upstream_name} -> {here}"

    def bind(self, bindings: Bindings) -> None:
        """The exchange here has these bindings now."""
        self._bindings = bindings
        if self._upstream_end is not None:
            try:
                self._propagate(self._upstream_end.connection)
            except OSError:
                pass  # whoever reads there finds it lost, too, and the next connection makes them all

    async def _federate(self, source: End, target: End, uri: Uri) -> None:
        upstream, there = self.upstream, source.connection
        name = self.federated.upstream_name
        passive = ExchangeDeclare(exchange=name, passive=True)
        if not await self._is_there(uri, passive):
            declare = ExchangeDeclare(exchange=name, **self.federated.declared)
            await there.call(declare, commands.Exchange.DeclareOk)
        await self._declare_queue(there)
        before = f"{self._base} A"
        if await self._is_there(uri, ExchangeDeclare(exchange=before, passive=True)):
            self._suffix = "B"
        else:
            before, self._suffix = f"{self._base} B", "A"
        await self._declare_internal(there)
        self._bound = {}
        self._upstream_end = source
        try:
            self._propagate(there)
            bind = QueueBind(queue=self._base, exchange=self._internal)
            await there.call(bind, commands.Queue.BindOk)
            await there.call(ExchangeDelete(exchange=before), commands.Exchange.DeleteOk)
            await there.call(commands.Basic.Qos(0, upstream.prefetch, False), commands.Basic.QosOk)
            facts = self._there(there, uri)
            relay = Relay(
                channel=CHANNEL,
                exchange=short_string(self.federated.name),
                change=exchange_change(
                    (self.cluster, self.vhost),
                    facts,
                    max_hops=upstream.max_hops,
                    trusts_user_id=upstream.trust_user_id,
                    frame_max=target.connection.frame_max,
                ),
            )
            mover = Mover(
                source,
                target,
                relay,
                queue=self._base,
                mode=upstream.ack_mode,
                progress=self._progress,
                arguments={},
                consumer_tag=upstream.consumer_tag,
                no_place="",
            )
            self._up()
            mover.consume()
            await mover.run()
        finally:
            self._upstream_end = None

    @property
    def _internal(self) -> str:
        return f"{self._base} {self._suffix}"

    async def _declare_queue(self, there: Connection) -> None:
        declare = QueueDeclare(queue=self._base, durable=True, arguments=self.upstream.queue_arguments)
        await there.call(declare, commands.Queue.DeclareOk)

    async def _declare_internal(self, there: Connection) -> None:
        declare = ExchangeDeclare(
            exchange=self._internal,
            exchange_type="fanout",
            durable=True,
            auto_delete=True,
            internal=True,
            arguments={"x-internal-purpose": "federation"},
        )
        await there.call(declare, commands.Exchange.DeclareOk)

    def _propagate(self, there: Connection) -> None:
        """Make the bindings at the upstream that are here, and take away those that are not."""
        server = str(there.server.get("cluster_name", "")), parse_uri(self._uri).vhost
        here = self.cluster, self.vhost
        exchange = f"{self.federated.name} {self._suffix}"
        frames = []
        for identity, arguments in self._bindings.items():
            if identity not in self._bound:
                table = bound_from(arguments, here, exchange, server, self.upstream.max_hops)
                if table is not None:
                    self._bound[identity] = table
                    frames.append(self._binding(_BIND, identity[0], table))
        for identity in [one for one in self._bound if one not in self._bindings]:
            frames.append(self._binding(_UNBIND, identity[0], self._bound.pop(identity)))
        if frames:
            there.write(frames)

    def _binding(self, method: bytes, key: str, table: bytes) -> bytes:
        """The frame of exchange.bind or exchange.unbind; pamqp would change the types in the table."""
        names = map(short_string, (self._internal, self.federated.upstream_name, key))
        payload = method + b"".join(names) + _NOWAIT + table
        return _FRAME.pack(METHOD, CHANNEL, len(payload)) + payload + b"\xce"

    async def clean(self) -> None:
        async with await self._open(UPSTREAM, parse_uri(self._uri)) as there:
            for suffix in ("A", "B"):
                delete = ExchangeDelete(exchange=f"{self._base} {suffix}")
                await there.call(delete, commands.Exchange.DeleteOk)
            await there.call(QueueDelete(queue=self._base), commands.Queue.DeleteOk)

"""A federated queue: its messages come from the queue at the upstream while consumers here want some.

The link consumes there with priority -1, so that consumers at the upstream come first. It does so while the
queue here is empty and one of its consumers has credit. A consumer of negative priority is the link of a
gateway that this one is the upstream of: it does not count, or messages would go round between two gateways
for ever.

Source: rabbitmq.com/docs/federated-queues; rabbit_federation_queue, rabbit_federation_queue_link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pamqp.frame
from pamqp import commands

from penstock.protocols.links.amqp._relay import Relay
from penstock.protocols.links.amqp.federation.federated import Federated, FederatedLink
from penstock.protocols.links.amqp.federation.hops import queue_change
from penstock.protocols.links.amqp.methods import Publish, QueueDeclare
from penstock.protocols.links.amqp.mover import End, Mover
from penstock.protocols.links.amqp.uri import Uri
from penstock.protocols.links.amqp.wire import CHANNEL
from penstock.protocols.links.errors import LinkError

if TYPE_CHECKING:
    from penstock.protocols.links.local import Local

__all__ = ["QueueLink"]

_LOOK_S: Final = 0.05
"""Between two looks at whether the queue here needs messages."""


class QueueLink(FederatedLink):
    """See the module."""

    def __init__(
        self, federated: Federated, user: str, local: Local, cluster: str, needs: Callable[[], bool]
    ) -> None:
        """`needs`: whether consumers here want more than there is."""
        super().__init__(federated, user, local, cluster)
        self._needs = needs

    async def _federate(self, source: End, target: End, uri: Uri) -> None:
        upstream, there = self.upstream, source.connection
        name = self.federated.upstream_name
        capabilities: Any = there.server.get("capabilities")
        if not isinstance(capabilities, dict) or capabilities.get("consumer_priorities") is not True:
            raise LinkError("upstream: it has no priorities of consumers, which federated queues need")
        if not await self._is_there(uri, QueueDeclare(queue=name, passive=True)):
            declare = QueueDeclare(queue=name, **self.federated.declared)
            await there.call(declare, commands.Queue.DeclareOk)
        await there.call(commands.Basic.Qos(0, upstream.prefetch, False), commands.Basic.QosOk)
        publish = Publish(routing_key=self.federated.name, mandatory=True)
        change = queue_change(
            self._there(there, uri),
            trusts_user_id=upstream.trust_user_id,
            frame_max=target.connection.frame_max,
        )
        mover = Mover(
            source,
            target,
            Relay(channel=CHANNEL, publish=pamqp.frame.marshal(publish, CHANNEL), change=change),
            queue=name,
            mode=upstream.ack_mode,
            progress=self._progress,
            arguments={"x-priority": -1},
            consumer_tag=upstream.consumer_tag,
            no_place=f"downstream: there is no queue '{self.federated.name}' any more",
        )
        self._up()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow(mover))
            tasks.create_task(mover.run())

    async def _follow(self, mover: Mover) -> None:
        """Consume at the upstream while the queue here needs messages."""
        consumes = False
        while True:
            needs = self._needs()
            if needs != consumes:
                consumes = needs
                if needs:
                    mover.consume()
                else:
                    mover.cancel()
            await asyncio.sleep(_LOOK_S)

    async def clean(self) -> None:
        """The queue at the upstream is its users', not the link's."""

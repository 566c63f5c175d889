"""Subscriptions that outlive their links, as JMS has them: a queue of their own, bound to a topic.

    source with durable 1 or 2          the queue "subscription/CONTAINER/LINK", until the link is closed;
                                        a link that is only detached leaves it
    ... with the capability `shared`    several links take turns; their names have the subscription's in
                                        front of the first "|"
    ... with `global`, too              "subscription//LINK": of all containers
    attach without a source             finds the subscription, so that the link can be closed

A subscription that is attached for another topic, or with other filters, begins anew; while it has other
links it is refused. Filters stand among the arguments of its binding. Names are percent-encoded.

Source: AMQP JMS Mapping (working draft), section on subscriptions, as Qpid JMS has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from penstock.protocols.amqp10.channel.refusals import LinkError
from penstock.protocols.amqp10.codec.performatives import Attach, Source
from penstock.router.errors import NotFound

if TYPE_CHECKING:
    from penstock.protocols.amqp10.messages.addresses import Place
    from penstock.protocols.amqp10.session.session import Session
    from penstock.router.arguments import Arguments
    from penstock.subscriptions.queue.queue import Queue

__all__ = ["Subscription", "find_subscription", "is_subscription"]

_PREFIX: Final = "subscription"
_FILTERS: Final = "x-filters"
_LINK_DETACH: Final = "link-detach"
_NAME_MAX: Final = 255


def is_subscription(source: Source) -> bool:
    """Whether what the link reads from is to outlive it, or is shared."""
    return source.durable > 0 or "shared" in source.capabilities


class Subscription:
    """The subscription of a link."""

    def __init__(self, session: Session, attach: Attach, source: Source, filters: str) -> None:
        """`filters`: what they say."""
        self._session = session
        self._arguments: Arguments = {_FILTERS: filters} if filters else {}
        self.durable = source.durable > 0
        self.shared = "shared" in source.capabilities
        self.ends_with_link = self.durable and source.expiry_policy == _LINK_DETACH
        self.name = _name(session, attach.name, source.capabilities)

    def subscribe(self, place: Place, bind: Callable[[str, Place, Arguments], None]) -> Queue:
        """Its queue, made if need be; `bind` binds a new one. Raises RoutingError, LinkError."""
        session, vhost = self._session, self._session.vhost
        known = vhost.queues.get(self.name)
        if known is not None:
            bound = [(one.source.name, one.key, one.arguments.get(_FILTERS)) for one in known.bindings]
            if bound != [(place.exchange, place.routing_key, self._arguments.get(_FILTERS))]:
                if known.queue.consumer_count:
                    raise LinkError(
                        "amqp:resource-locked",
                        f"the subscription '{self.name}' has links for another topic, or with other filters",
                    )
                vhost.delete_queue(self.name, session.actor)
        begins = self.name not in vhost.queues
        vhost.declare_queue(
            self.name, session.actor, durable=self.durable, auto_delete=self.shared and not self.durable
        )
        if begins:
            bind(self.name, place, self._arguments)
        else:
            vhost.bind_queue(self.name, place.exchange, place.routing_key, session.actor, self._arguments)
        return vhost.queue(self.name, session.actor)

    def closed(self) -> None:
        """Its last link is over, and so is it."""
        vhost = self._session.vhost
        entry = vhost.queues.get(self.name)
        if entry is not None and self.durable and not entry.queue.consumer_count:
            vhost.delete_queue(self.name, self._session.actor)


def find_subscription(session: Session, attach: Attach) -> Source:
    """The source of a subscription that is there, for a link that names none. Raises NotFound."""
    name = _name(session, attach.name, attach.desired_capabilities)
    if name not in session.vhost.queues:
        raise NotFound("subscription", attach.name, session.vhost.name)
    capabilities = tuple(attach.desired_capabilities)
    return Source(f"/queues/{quote(name, safe='')}", 2, "never", capabilities=capabilities)


def _name(session: Session, link: str, capabilities: tuple[str, ...]) -> str:
    shared = "shared" in capabilities
    name = link.partition("|")[0] if shared else link
    container = "" if shared and "global" in capabilities else session.container
    queue = f"{_PREFIX}/{quote(container, safe='')}/{quote(name, safe='')}"
    if len(queue) > _NAME_MAX:
        raise LinkError(
            "amqp:invalid-field",
            f"container and link of a subscription make a name of more than {_NAME_MAX} bytes",
        )
    return queue
